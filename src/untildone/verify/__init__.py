"""Graders: the ``Verifier``."""

from __future__ import annotations

from untildone.verify.verifier import Verifier, VerifierConfig

__all__ = ["Verifier", "VerifierConfig"]
