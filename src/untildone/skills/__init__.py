"""Skills: what an agent may call like a tool and that may do as much as a run of its own.

A person writes them (``Skill``, ``@skill``), or a converged run becomes one (``DistilledSkill``).
``SkillRegistry`` holds those of this process, ``SkillLibrary`` those in a folder.
"""

from __future__ import annotations

from untildone.skills.base import Skill
from untildone.skills.distilled import DistilledSkill
from untildone.skills.function_skill import FunctionSkill, skill
from untildone.skills.library import SkillLibrary
from untildone.skills.registry import SkillRegistry

__all__ = [
    "DistilledSkill",
    "FunctionSkill",
    "Skill",
    "SkillLibrary",
    "SkillRegistry",
    "skill",
]
