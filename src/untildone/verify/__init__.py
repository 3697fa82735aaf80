"""Those who grade answers, the ``Verifier``, and merge them, the ``APEXSynthesizer``."""

from __future__ import annotations

from untildone.verify.apex import ApexCitation, ApexConfig, APEXSynthesizer
from untildone.verify.verifier import Verifier, VerifierConfig

__all__ = ["APEXSynthesizer", "ApexCitation", "ApexConfig", "Verifier", "VerifierConfig"]
