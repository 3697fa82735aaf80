"""Distillation: a converged run becomes a skill that does such work again."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import re
from dataclasses import replace
from typing import Any, ClassVar, Final

from untildone.agent import Agent, LoopConfig
from untildone.assembly import start_run
from untildone.domain.errors import SkillError, describe
from untildone.domain.exits import ExitReason
from untildone.entrance import Options
from untildone.skills.base import Skill, running
from untildone.skills.registry import SkillRegistry
from untildone.tools.options import check_name

_log = logging.getLogger("untildone")

_LONGEST_NAME: Final = 64
_LONGEST_DESCRIPTION: Final = 1024
_LONGEST_QUERY: Final = 160
_QUERY_WINDOW: Final = 2_000
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, in full sentences."}},
    "required": ["task"],
    "additionalProperties": False,
}


class DistilledSkill(Skill):
    """An agent that has done a task well, ready to do others like it.

    It remembers no answer: each call runs a fresh agent with the same instructions, tools, MCP
    servers, skills, model, parameters, hooks and retries, without a refine loop and memories.

    Args:
        name: Its name; letters, digits, ``_`` and ``-``, at most 64.
        description: What its callers read.
        agent: The agent; a skill of the name ``name`` among its skills is left out.

    Raises:
        ConfigError: The name cannot be used.
    """

    _guards_itself: ClassVar[bool] = True

    def __init__(self, name: str, description: str, agent: Agent) -> None:
        self.name = check_name(name)
        self.description = description
        self.parameters = _PARAMETERS
        self.agent = replace(
            agent,
            skills=[skill for skill in agent.skills if getattr(skill, "name", None) != name],
            loop_config=None,
            memory=None,
            procedural_memory=None,
            episodic_memory=None,
        )

    def __repr__(self) -> str:
        return f"DistilledSkill({self.name!r})"

    async def execute(self, **kwargs: Any) -> str:
        """Runs the agent on ``task`` and gives its answer: ``await skill.execute(task="…")``.

        An answer that the agent did not finish begins with a line that says so.

        Raises:
            SkillError: ``task`` is missing, the call comes out of this very skill, or a tool of the
                agent waits for an approval, which nobody can give in here.
            Exception: Whatever the run raises.
        """
        task = kwargs.pop("task", None)
        if not isinstance(task, str) or kwargs:
            raise SkillError(
                f"the skill {self.name!r} takes a text: await skill.execute(task='...')"
            )
        with running(self):
            result = await start_run(self.agent, [{"role": "user", "content": task}], Options())
        match result.exit_reason:
            case ExitReason.SATISFIED:
                return result.text
            case ExitReason.AWAITING_APPROVAL:
                raise SkillError(
                    f"a tool of the skill {self.name!r} waits for an approval that cannot be given"
                    " inside a skill; let approve_tool decide at once, or run the agent itself"
                )
            case reason:
                return f"[{self.name} stopped early: {reason}]\n{result.text}"


async def distil_skill(agent: Agent, task_tag: str, query: str) -> str:
    """Makes a skill of an agent, registers it, and keeps it in the loop's library if it has one.

    Args:
        agent: The agent whose run converged.
        task_tag: The run's task tag.
        query: The run's query.

    Returns:
        The skill's name; one that had it before is replaced.
    """
    name = skill_name(task_tag, query)
    skill = DistilledSkill(name, await _description(agent.loop_config, task_tag, query), agent)
    SkillRegistry.register(skill)
    library = None if agent.loop_config is None else agent.loop_config.skill_library
    if library is not None:
        try:
            await asyncio.to_thread(library.save, skill)
        except Exception as error:
            _log.warning("the skill %r is not kept in %r: %s", name, library, describe(error))
    return name


def skill_name(task_tag: str, query: str) -> str:
    """``<tag>_<8 hex of the query>``, at most 64 characters.

    Of a tag that cannot be written so, what can be is kept, and 4 hex of the whole keep it apart
    from others.
    """
    tail = f"_{_hex(query, 8)}"
    room = _LONGEST_NAME - len(tail)
    tag = _NOT_IN_NAMES.sub("_", task_tag)
    if tag != task_tag or not tag or len(tag) > room:
        mark = f"-{_hex(task_tag, 4)}"
        tag = (tag.strip("_-") or "skill")[: room - len(mark)] + mark
    return tag + tail


def described(task_tag: str, query: str) -> str:
    """A description that shows neither secrets nor personal data, as far as they can be seen."""
    from untildone.tools.redaction import redacted  # compiles its patterns: 25 ms

    text = query[:_QUERY_WINDOW]
    if len(query) > _QUERY_WINDOW:
        text = text.rpartition(" ")[0]  # a word that is cut in two may be half a key
    text = " ".join(redacted(text).split())
    if len(text) > _LONGEST_QUERY:
        text = text[:_LONGEST_QUERY].rpartition(" ")[0] or text[:_LONGEST_QUERY]
        text += "…"
    tag = " ".join(redacted(task_tag).split())[:_LONGEST_NAME]
    return f"Does tasks of the kind {tag!r}" + (f", such as: {text}" if text else "")


async def _description(loop: LoopConfig | None, task_tag: str, query: str) -> str:
    """The given one, else one of tag and query; an empty one leaves the query out."""
    given = None if loop is None else loop.skill_description
    text: Any = described(task_tag, query) if given is None else given
    if callable(text):
        text = text(task_tag, query)
        if inspect.isawaitable(text):
            text = await text
    return str(text).strip()[:_LONGEST_DESCRIPTION] or described(task_tag, "")


def _hex(text: str, digits: int) -> str:
    whole = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole, usedforsecurity=False).hexdigest()[:digits]
