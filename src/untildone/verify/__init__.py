"""Those who grade answers, the ``Verifier``, and merge them, the ``APEXSynthesizer``.

The names are loaded when they are first used: who grades needs no merging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from untildone.lazy import lazy_names

if TYPE_CHECKING:
    from untildone.verify.apex import ApexCitation, ApexConfig, APEXSynthesizer
    from untildone.verify.verifier import Verifier, VerifierConfig

_WHERE = {
    "APEXSynthesizer": "apex",
    "ApexCitation": "apex",
    "ApexConfig": "apex",
    "Verifier": "verifier",
    "VerifierConfig": "verifier",
}

__all__ = ["APEXSynthesizer", "ApexCitation", "ApexConfig", "Verifier", "VerifierConfig"]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
