"""What agents remember: playbooks, past episodes, and the places where these are kept.

The names are loaded when they are first used; only the SQL and Redis providers need an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from untildone.lazy import lazy_names

if TYPE_CHECKING:
    from untildone.memory.episodic import EpisodicMemory
    from untildone.memory.file import FileMemoryProvider
    from untildone.memory.in_memory import InMemoryProvider
    from untildone.memory.playbook import PlaybookEntry
    from untildone.memory.procedural import ProceduralMemory
    from untildone.memory.redis import RedisMemoryProvider
    from untildone.memory.scoped import Found, ScopedMemoryProvider
    from untildone.memory.sql import SQLMemoryProvider

_WHERE = {
    "EpisodicMemory": "episodic",
    "FileMemoryProvider": "file",
    "Found": "scoped",
    "InMemoryProvider": "in_memory",
    "PlaybookEntry": "playbook",
    "ProceduralMemory": "procedural",
    "RedisMemoryProvider": "redis",
    "SQLMemoryProvider": "sql",
    "ScopedMemoryProvider": "scoped",
}

__all__ = [
    "EpisodicMemory",
    "FileMemoryProvider",
    "Found",
    "InMemoryProvider",
    "PlaybookEntry",
    "ProceduralMemory",
    "RedisMemoryProvider",
    "SQLMemoryProvider",
    "ScopedMemoryProvider",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
