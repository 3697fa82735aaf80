"""For tests of agents: models and clocks that do what they are told. Public.

``ScriptedModel`` replies from a script, ``FakeClock`` never waits, ``EventLog`` keeps a run's log.
"""

from __future__ import annotations

from untildone.testing.clock import FakeClock
from untildone.testing.log import EventLog
from untildone.testing.scripted import ScriptedModel, SeenRequest, call, reply

__all__ = ["EventLog", "FakeClock", "ScriptedModel", "SeenRequest", "call", "reply"]
