"""How often a model without native tool calls uses the right tool, when it is told in the prompt.

Run it: ``python examples/prompted_tools.py`` (the extra ``local`` and the weights; half a minute).
The tools and tasks here were set aside before the prompt was written: it was tuned on others.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from untildone import Agent, run_agent
from untildone.models.local_model import LocalModel
from untildone.models.prompted_tools import PromptedToolsModel


def translate(word: str, language: str) -> str:
    """Translates a word into a language."""
    return f"in {language}, {word} is Haus"


def read_file(name: str) -> str:
    """Reads a file."""
    return f"{name} has 3 lines: milk, bread, tea"


def multiply(a: int, b: int) -> str:
    """Multiplies two numbers."""
    return str(a * b)


def play_song(title: str) -> str:
    """Plays a song."""
    return f"playing {title} now"


TOOLS: list[Callable[..., str]] = [translate, read_file, multiply, play_song]


@dataclass(frozen=True)
class Task:
    """A request, the one call that does it, and what its answer must hold."""

    text: str
    tool: str
    arguments: dict[str, Any]
    answer: str


TASKS = [
    Task(
        "What is the German word for house?",
        "translate",
        {"word": "house", "language": "German"},
        "Haus",
    ),
    Task("What is 6 times 7?", "multiply", {"a": 6, "b": 7}, "42"),
    Task("Open the file list.csv.", "read_file", {"name": "list.csv"}, "milk"),
    Task("Play Yesterday.", "play_song", {"title": "Yesterday"}, "playing"),
    Task("Translate dog into French.", "translate", {"word": "dog", "language": "French"}, "Haus"),
    Task("Multiply 12 and 11.", "multiply", {"a": 12, "b": 11}, "132"),
    Task("What does the file todo.txt say?", "read_file", {"name": "todo.txt"}, "milk"),
    Task("Put on the song Hello.", "play_song", {"title": "Hello"}, "playing"),
    Task(
        "How do you say water in Spanish?",
        "translate",
        {"word": "water", "language": "Spanish"},
        "Haus",
    ),
    Task("How much is 25 * 4?", "multiply", {"a": 25, "b": 4}, "100"),
    Task("Show me notes.md.", "read_file", {"name": "notes.md"}, "milk"),
    Task("I want to hear Imagine.", "play_song", {"title": "Imagine"}, "playing"),
]


@dataclass
class Hits:
    """How many tasks had the right tool, the right arguments too, and an answer from its result."""

    tasks: int = 0
    tool: int = 0
    arguments: int = 0
    answer: int = 0


async def measure(tasks: Sequence[Task], temperature: float) -> Hits:
    """Runs each task once."""
    model = PromptedToolsModel(LocalModel("smollm2"), most_calls=1)
    agent = Agent("tester", model, tools=TOOLS, temperature=temperature, max_tokens=80)
    hits = Hits()
    for task in tasks:
        result = await run_agent(agent, [{"role": "user", "content": task.text}])
        (call,) = result.tool_calls or [{"tool": None, "args": None}]
        hits.tasks += 1
        hits.tool += call["tool"] == task.tool
        hits.arguments += call["tool"] == task.tool and call["args"] == task.arguments
        hits.answer += call["tool"] == task.tool and task.answer in result.text
        print(f"{task.text:<38} {call['tool']}({call['args']})  {result.text}")
    return hits


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="how many of the tasks")
    parser.add_argument("--temperature", type=float, default=0.0)
    given = parser.parse_args()
    hits = asyncio.run(measure(TASKS[: given.tasks], given.temperature))
    print(
        f"right tool {hits.tool}, right arguments too {hits.arguments},"
        f" answer from its result {hits.answer}, of {hits.tasks}"
    )


if __name__ == "__main__":
    main()
