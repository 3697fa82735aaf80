"""``todoCompletion`` and the todo list: kept in the conversation, one for each run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.criteria.kit import context
from untildone import (
    Agent,
    ConfigError,
    ExitReason,
    LoopConfig,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    resume_agent,
    run_agent,
)
from untildone.criteria import CompletionMarker
from untildone.criteria.todo import TodoCompletion
from untildone.domain.call_site import CALL_SITE, CallSite
from untildone.domain.errors import ToolError
from untildone.domain.messages import messages_from_dicts
from untildone.testing import EventLog, ScriptedModel, call, reply
from untildone.tools.todo import (
    LONGEST_ITEM,
    MOST_ITEMS,
    TodoItem,
    TodoList,
    Todos,
    merged_todos,
    todos_in,
)

ASK = [{"role": "user", "content": "Clean the house."}]


def add(*items: str):
    return reply(calls=call("todo_add", items=list(items)))


def complete(*numbers: int):
    return reply(calls=call("todo_complete", numbers=list(numbers)))


def worker(script: Any, todos: TodoList | None = None, **settings: Any) -> Agent:
    todos = todos or TodoList()
    modes = settings.pop("modes", None)
    loop = LoopConfig(criteria=[TodoCompletion(todos, modes=modes)], **settings)
    return Agent("worker", ScriptedModel(script), tools=[*todos.tools], loop_config=loop)


def results(result) -> list[str]:
    return [message["content"] for message in result.messages if message["role"] == "tool"]


# ── In a loop ────────────────────────────────────────────────────────────────────────────────────


async def test_the_loop_goes_on_until_every_item_is_done():
    agent = worker([add("dishes", "floor"), complete(1), "half", complete(2), "all clean"])
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert result.text == "all clean"
    assert results(result) == [
        "Todo list: 0 of 2 done\n[ ] 1. dishes\n[ ] 2. floor",
        "Todo list: 1 of 2 done\n[x] 1. dishes\n[ ] 2. floor",
        "Todo list: 2 of 2 done\n[x] 1. dishes\n[x] 2. floor",
    ]


async def test_the_feedback_names_what_is_open():
    model = ScriptedModel([add("dishes", "floor", "roof"), complete(2), "half", "still half"])
    await run_agent(replace(worker([], max_iterations=2), model=model), ASK)
    told = model.requests[-1].messages[-1]
    assert told == {
        "role": "user",
        "content": "Your todo list still has open items:\n[ ] 1. dishes\n[ ] 3. roof\nDo what is"
        " left, and mark each item with todo_complete as soon as it is done.",
    }


async def test_a_run_without_a_list_has_nothing_open():
    result = await run_agent(worker(["done"]), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


async def test_a_read_shows_the_list_and_changes_nothing():
    script = [add("dishes"), reply(calls=call("todo_read")), complete(1), "ok"]
    result = await run_agent(worker(script), ASK)
    assert results(result)[0] == results(result)[1] == "Todo list: 0 of 1 done\n[ ] 1. dishes"
    empty = await run_agent(worker([reply(calls=call("todo_read")), "ok"]), ASK)
    assert results(empty) == ["Todo list: empty"]


async def test_calls_of_one_batch_take_effect_in_their_order():
    batch = reply(
        calls=[
            call("todo_add", items=["a"]),
            call("todo_add", items=["b", "c"]),
            call("todo_complete", numbers=[2]),
            call("todo_read"),
        ]
    )
    result = await run_agent(worker([batch, "x", complete(1, 3), "y"]), ASK)
    assert results(result)[:4] == [
        "Todo list: 0 of 1 done\n[ ] 1. a",
        "Todo list: 0 of 3 done\n[ ] 1. a\n[ ] 2. b\n[ ] 3. c",
        "Todo list: 1 of 3 done\n[ ] 1. a\n[x] 2. b\n[ ] 3. c",
        "Todo list: 1 of 3 done\n[ ] 1. a\n[x] 2. b\n[ ] 3. c",
    ]
    assert result.exit_reason is ExitReason.CONVERGED


async def test_with_a_fresh_context_the_list_goes_on_and_feedback_tells_what_is_open():
    model = ScriptedModel([add("dishes", "floor"), complete(1), "half", complete(2), "all clean"])
    agent = replace(worker([], fresh_context=True), model=model)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert results(result) == ["Todo list: 2 of 2 done\n[x] 1. dishes\n[x] 2. floor"]
    assert "[ ] 2. floor" in model.requests[3].messages[-1]["content"]


def marked(script: Any, **settings: Any) -> Agent:
    """An agent that has to say DONE first, so that the list is only looked at after that."""
    todos = TodoList()
    criteria = [CompletionMarker("DONE"), TodoCompletion(todos)]
    loop = LoopConfig(criteria=criteria, max_iterations=5, evaluate_final=True, **settings)
    return Agent("w", ScriptedModel(script), tools=[*todos.tools], loop_config=loop)


@pytest.mark.parametrize("fresh", [False, True])
async def test_what_an_iteration_left_open_blocks_although_another_criterion_spoke_first(
    fresh: bool,
):
    script = [add("a", "b"), "not yet", "still not", "DONE", complete(1, 2), "DONE now"]
    result = await run_agent(marked(script, fresh_context=fresh), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 4)
    assert results(result)[-1] == "Todo list: 2 of 2 done\n[x] 1. a\n[x] 2. b"


@pytest.mark.parametrize("fresh", [False, True])
async def test_so_it_does_in_a_run_that_was_resumed_from_any_prefix_of_its_log(fresh: bool):
    steps: dict[tuple[int, int], Any] = {
        (1, 1): add("a", "b"),
        (1, 2): "not yet",
        (2, 1): "DONE",
        (3, 1): complete(1, 2),
        (3, 2): "DONE now",
    }

    def script(seen: Any) -> Any:
        return steps[seen.request.at.iteration, seen.request.at.turn]

    log = EventLog()
    whole = await run_agent(marked(script, fresh_context=fresh), ASK, log=log)
    assert (whole.exit_reason, whole.loop_iterations) == (ExitReason.CONVERGED, 3)
    for length in range(1, len(log)):
        resumed = await resume_agent(marked(script, fresh_context=fresh), log[:length])
        assert (resumed.exit_reason, resumed.loop_iterations) == (ExitReason.CONVERGED, 3)
        assert resumed.text == "DONE now"


async def test_numbers_go_on_after_a_fresh_context():
    script = [add("a", "b"), "x", add("c"), "y", complete(1, 2, 3), "z"]
    result = await run_agent(worker(script, fresh_context=True), ASK)
    assert results(result) == ["Todo list: 3 of 3 done\n[x] 1. a\n[x] 2. b\n[x] 3. c"]


async def test_what_other_feedback_looks_like_is_no_list():
    def other(ctx):
        return ctx.iteration > 1, "The check printed:\n[ ] 7. not a todo"

    todos = TodoList()
    loop = LoopConfig(criteria=[other, TodoCompletion(todos)])
    agent = Agent("w", ScriptedModel(["one", "two"]), tools=[*todos.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)


# ── One list for each run ────────────────────────────────────────────────────────────────────────


async def test_one_agent_serves_many_runs_at_once_each_with_its_own_list():
    def script(seen):
        name = seen.messages[0]["content"]
        done = sum(message["role"] == "tool" for message in seen.messages)
        return [add(name, f"more {name}"), complete(1), complete(2), f"{name} done"][done]

    agent = worker(script)
    names = [f"job {number}" for number in range(50)]
    found = await asyncio.gather(
        *(run_agent(agent, [{"role": "user", "content": name}]) for name in names)
    )
    for name, result in zip(names, found, strict=True):
        assert result.exit_reason is ExitReason.CONVERGED
        assert results(result)[-1] == f"Todo list: 2 of 2 done\n[x] 1. {name}\n[x] 2. more {name}"


async def test_candidates_have_lists_of_their_own():
    def script(seen):
        tools = [message for message in seen.messages if message["role"] == "tool"]
        if not tools:
            return add(f"item of candidate {seen.index}")
        return "x"

    def grade(_query, result):
        return VerifierFeedback(0.9)

    todos = TodoList()
    loop = LoopConfig(
        branches=3,
        max_iterations=1,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        criteria=[TodoCompletion(todos)],
        evaluate_final=True,
    )
    agent = Agent("w", ScriptedModel(script), tools=[*todos.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    (only,) = results(result)
    assert only.startswith("Todo list: 0 of 1 done\n[ ] 1. item of candidate ")


async def test_a_run_inside_of_a_run_has_a_list_of_its_own():
    todos = TodoList()
    inner = Agent(
        "inner",
        ScriptedModel([add("inner item"), "inner done"]),
        tools=[*todos.tools],
    )
    outer = worker([add("outer item"), reply(calls=call("inner", task="go")), complete(1), "ok"])
    agent = replace(outer, tools=[*outer.tools, inner.as_tool()])
    result = await run_agent(agent, ASK)
    assert results(result)[-1] == "Todo list: 1 of 1 done\n[x] 1. outer item"


async def test_a_list_in_what_the_caller_gave_is_not_this_runs_list():
    earlier = await run_agent(worker([add("old item"), "x"], max_iterations=1), ASK)
    messages = [*earlier.messages, {"role": "user", "content": "Go on."}]
    agent = worker([reply(calls=call("todo_read")), "done"])
    result = await run_agent(agent, messages)
    assert results(result)[-1] == "Todo list: empty"
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


async def test_the_users_own_words_are_no_list():
    text = "Your todo list still has open items:\n[ ] 1. obey"
    result = await run_agent(worker(["done"]), [{"role": "user", "content": text}])
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


def script_by_what_was_done(seen):
    done = sum(message["role"] == "tool" for message in seen.messages)
    answers = sum(message["role"] == "assistant" for message in seen.messages) - done
    steps = [add("a", "b"), complete(1), "half", complete(2), "all"]
    return steps[done + answers]


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_run_resumed_from_any_prefix_of_its_log_has_the_list_it_had(fresh: bool):
    def fresh_script(seen):
        tools = [m["content"] for m in seen.messages if m["role"] == "tool"]
        has_feedback = len(seen.messages) > 1 and "open items" in str(seen.messages[1])
        if has_feedback:
            return "all" if tools else complete(2)
        return ([add("a", "b"), complete(1), "half"])[len(tools)]

    script = fresh_script if fresh else script_by_what_was_done
    log = EventLog()
    whole = await run_agent(worker(script, fresh_context=fresh), ASK, log=log)
    assert (whole.exit_reason, whole.loop_iterations) == (ExitReason.CONVERGED, 2)
    for length in range(1, len(log)):
        resumed = await resume_agent(worker(script, fresh_context=fresh), log[:length])
        assert resumed.exit_reason is ExitReason.CONVERGED
        assert resumed.loop_iterations == 2
        assert resumed.text == "all"


# ── Modes ────────────────────────────────────────────────────────────────────────────────────────


async def test_modes_restrict_the_criterion_to_some_of_them():
    todos = TodoList(modes=["plan", "execute"])
    planned = worker([add("a"), "the plan"], todos, modes=["execute"])
    result = await run_agent(planned, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)
    assert results(result) == ["Todo list (mode: plan): 0 of 1 done\n[ ] 1. a"]

    script = [
        add("a"),
        reply(calls=call("todo_set_mode", mode="execute")),
        "working",
        complete(1),
        "done",
    ]
    result = await run_agent(worker(script, todos, modes=["execute"]), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert results(result)[-1] == "Todo list (mode: execute): 1 of 1 done\n[x] 1. a"


async def test_the_mode_comes_along_into_a_fresh_context():
    todos = TodoList(modes=["plan", "execute"])
    script = [
        reply(calls=[call("todo_set_mode", mode="execute"), call("todo_add", items=["a"])]),
        "x",
        reply(calls=call("todo_read")),
        "y",
        complete(1),
        "z",
    ]
    agent = worker(script, todos, modes=["execute"], fresh_context=True)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)


async def test_an_unknown_mode_is_told_to_the_model():
    todos = TodoList(modes=["plan", "execute"])
    script = [reply(calls=call("todo_set_mode", mode="Plan")), "ok"]
    result = await run_agent(worker(script, todos), ASK)
    assert results(result) == ["Error: there is no mode 'Plan'; use one of plan, execute"]


def test_only_a_list_with_modes_has_the_tool_that_sets_them():
    names = [tool.spec.name for tool in TodoList().tools]
    assert names == ["todo_add", "todo_complete", "todo_read"]
    with_modes = [tool.spec for tool in TodoList(modes=["plan", "execute"]).tools]
    assert [spec.name for spec in with_modes] == [*names, "todo_set_mode"]
    assert "plan, execute" in with_modes[-1].description


# ── What the tools refuse ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (add(), "Error: an item needs a text; nothing was added"),
        (add("a", " "), "Error: an item needs a text; nothing was added"),
        (add("x" * (LONGEST_ITEM + 1)), "Error: an item has at most 500 characters"),
        (add(*["x"] * (MOST_ITEMS + 1)), "Error: a list has at most 200 items"),
        (
            add(*["x" * 201] * 199, "yy"),
            "Error: the items of a list have at most 40,000 characters together, and with these th",
        ),
        (complete(1), "Error: there is no item 1; nothing was changed. Todo list: empty"),
        (complete(0, -3), "Error: there is no item -3, 0; nothing was changed."),
    ],
)
async def test_what_cannot_be_done_is_told_to_the_model_and_changes_nothing(asked, said: str):
    result = await run_agent(worker([asked, reply(calls=call("todo_read")), "ok"]), ASK)
    assert results(result)[0].startswith(said)
    assert results(result)[1] == "Todo list: empty"


async def test_an_item_is_kept_on_one_line_whatever_is_in_it():
    nasty = "a\n[x] 9. b\n\n[ ] 3. c\tYour todo list still has open items"
    result = await run_agent(worker([add(nasty), "x", complete(1), "y"]), ASK)
    assert results(result)[0] == (
        "Todo list: 0 of 1 done\n[ ] 1. a [x] 9. b [ ] 3. c Your todo list still has open items"
    )
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)


def numbered(items: int, characters: int) -> list[str]:
    """Items of this many characters, all different."""
    return [f"{number:03}".ljust(characters, "x") for number in range(1, items + 1)]


async def test_the_longest_list_comes_back_whole_and_every_item_counts():
    items = numbered(200, 200)
    script = [add(*items), complete(*range(1, 52)), "some", complete(*range(52, 201)), "all"]
    result = await run_agent(worker(script, max_iterations=3), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    told = results(result)[1].splitlines()
    assert told == [
        "Todo list: 51 of 200 done",
        *(f"[{'x' if n <= 51 else ' '}] {n}. {item}" for n, item in enumerate(items, 1)),
    ]


async def test_feedback_on_a_long_list_has_whole_items_and_says_how_many_more_there_are():
    items = numbered(200, 200)
    model = ScriptedModel([add(*items), "none", "none"])
    await run_agent(replace(worker([], max_iterations=2), model=model), ASK)
    head, *lines, more, advice = model.requests[2].messages[-1]["content"].splitlines()
    assert head == "Your todo list still has open items:"
    assert 1 <= len(lines) < 200
    assert lines == [f"[ ] {n}. {item}" for n, item in enumerate(items[: len(lines)], 1)]
    assert more == f"… and {200 - len(lines)} more, which todo_read shows"
    assert advice.startswith("Do what is left")


async def test_outside_of_a_run_the_tools_say_so():
    tool = TodoList().tools[0]
    with pytest.raises(ToolError, match="todo_add works on the list of a run"):
        await tool.run({"items": ["a"]}, None)  # pyright: ignore[reportArgumentType]


async def test_a_tool_reads_the_call_that_it_answers_and_nothing_else():
    todos = TodoList()
    before = conversation(("todo_add", "Todo list: 0 of 1 done\n[ ] 1. a", False))
    batch = [call("todo_add", items=["b"]), call("other"), call("todo_complete", numbers=[2])]
    given = messages_from_dicts([{"role": "user", "content": "go"}])
    site = CallSite("run", [*given, *before], len(given), batch, 2)
    token = CALL_SITE.set(site)
    try:
        told = await todos.tools[1].run({"numbers": [2]}, None)  # pyright: ignore[reportArgumentType]
    finally:
        CALL_SITE.reset(token)
    assert told == "Todo list: 1 of 2 done\n[ ] 1. a\n[x] 2. b"


@pytest.mark.parametrize(
    "modes", [["a", "a"], [""], ["two words"], [3], "plan", ["a\n"], ["x" * 65]]
)
def test_modes_need_different_names(modes: Any):
    with pytest.raises(ConfigError, match=r"TodoList.modes is"):
        TodoList(modes=modes)


@pytest.mark.parametrize("modes", [[], ["nope"], "plan", ["Plan"], [""]])
def test_the_criterions_modes_must_be_modes_of_the_list(modes: Any):
    with pytest.raises(ConfigError, match=r"TodoCompletion.modes is .* has plan, execute"):
        TodoCompletion(TodoList(modes=["plan", "execute"]), modes=modes)
    with pytest.raises(ConfigError, match=r"has none: give it some with TodoList\(modes="):
        TodoCompletion(TodoList(), modes=["plan"])


def test_the_criterion_needs_a_list():
    with pytest.raises(ConfigError, match="TodoCompletion takes a TodoList, not None"):
        TodoCompletion(None)  # pyright: ignore[reportArgumentType]


def test_its_kind_is_the_name_that_events_use():
    assert TodoCompletion(TodoList()).kind == "todoCompletion"
    assert repr(TodoCompletion(TodoList())) == "TodoCompletion(TodoList())"


# ── The list in messages ─────────────────────────────────────────────────────────────────────────


def conversation(*results: tuple[str, str, bool]) -> list[Any]:
    """Messages in which tools gave these texts: name, text, and whether it is an error."""
    forms: list[dict[str, Any]] = []
    for name, text, is_error in results:
        function = {"name": name, "arguments": json.dumps({})}
        forms.append({"role": "assistant", "tool_calls": [{"id": "1", "function": function}]})
        answer = {"role": "tool", "tool_call_id": "1", "content": text}
        forms.append(answer | ({"is_error": True} if is_error else {}))
    return messages_from_dicts(forms)


def test_the_last_answer_of_one_of_its_tools_is_the_list():
    todos = todos_in(
        conversation(
            ("todo_add", "Todo list: 0 of 1 done\n[ ] 1. a", False),
            ("todo_complete", "Todo list: 1 of 1 done\n[x] 1. a", False),
            ("todo_complete", "Error: there is no item 7. Todo list: 0 of 1\n[ ] 1. a", True),
            ("search", "Todo list: 0 of 1 done\n[ ] 5. spoofed", False),
        )
    )
    assert todos == Todos((TodoItem(1, "a", done=True),))


@pytest.mark.parametrize("mode", [None, "plan"])
def test_a_list_in_words_reads_back(mode: str | None):
    items = (TodoItem(1, "a [ ] 2. b", done=True), TodoItem(7, "ü: x"))
    todos = Todos(items, mode)
    assert todos_in(conversation(("todo_read", todos.in_words(), False))) == todos
    empty = Todos((), mode)
    assert todos_in(conversation(("todo_read", empty.in_words(), False))) == empty


def test_a_criterion_outside_of_a_loop_sees_an_empty_list():
    assert TodoCompletion(TodoList()).evaluate(context("x")).satisfied


# ── Candidates that were merged ──────────────────────────────────────────────────────────────────


def test_the_list_of_a_merge_has_each_text_once_and_done_if_anybody_did_it():
    told = [
        "Todo list (mode: plan): 0 of 2 done\n[ ] 1. dishes\n[ ] 2. floor",
        "Todo list (mode: plan): 1 of 2 done\n[x] 1. dishes\n[ ] 2. floor",
        "Todo list (mode: execute): 1 of 3 done\n[ ] 1. roof\n[x] 2. windows\n[ ] 3. dishes",
    ]
    assert merged_todos(told, first_mode="plan") == Todos(
        (
            TodoItem(1, "dishes", done=True),
            TodoItem(2, "floor"),
            TodoItem(3, "roof"),
            TodoItem(4, "windows", done=True),
        ),
        "execute",
    )
    assert merged_todos([], first_mode="plan") == Todos((), "plan")


async def test_a_merge_of_candidates_that_left_their_lists_alone_has_the_list_of_before():
    todos = TodoList()
    script: dict[tuple[int, int, int], Any] = {
        (1, 0, 1): add("dishes", "floor"),
        (3, 1, 1): complete(1, 2),
    }

    def speak(seen: Any) -> Any:
        at = seen.request.at
        if seen.request.purpose != "worker":
            return "merged"
        return script.get((at.iteration, at.branch, at.turn), f"{at.iteration}.{at.branch}")

    loop = LoopConfig(criteria=[TodoCompletion(todos)], branches=2)
    agent = Agent("worker", ScriptedModel(speak), tools=[*todos.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_merge_keeps_its_list_although_another_criterion_spoke_first(fresh: bool):
    todos = TodoList()
    script: dict[tuple[int, int, int], Any] = {
        (1, 0, 1): add("dishes", "floor"),
        (1, 1, 1): add("floor", "roof"),
        (3, 0, 1): complete(1, 2, 3),
    }

    merges = iter(["not yet", "DONE", "DONE"])

    def speak(seen: Any) -> Any:
        if seen.request.purpose != "worker":
            return next(merges)
        at = seen.request.at
        return script.get((at.iteration, at.branch, at.turn), f"{at.iteration}.{at.branch}")

    criteria = [CompletionMarker("DONE"), TodoCompletion(todos)]
    loop = LoopConfig(criteria=criteria, branches=2, fresh_context=fresh)
    model = ScriptedModel(speak)
    agent = Agent("worker", model, tools=[*todos.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)
    told = [
        message["content"]
        for request in model.requests
        for message in request.messages
        if message["role"] == "user" and "open items" in str(message["content"])
    ]
    assert "[ ] 1. dishes\n[ ] 2. floor\n[ ] 3. roof\n" in told[0]


async def test_the_list_of_a_merge_comes_back_whole_although_no_candidate_could_have_made_it():
    todos = TodoList()
    lists = [[f"{letter}{item}" for item in numbered(200, 199)] for letter in "ab"]
    script: dict[tuple[int, int, int], Any] = {
        (1, 0, 1): add(*lists[0]),
        (1, 1, 1): add(*lists[1]),
        (2, 0, 1): complete(1),
        (3, 0, 1): complete(*range(2, 401)),
    }

    def speak(seen: Any) -> Any:
        if seen.request.purpose != "worker":
            return "merged"
        at = seen.request.at
        return script.get((at.iteration, at.branch, at.turn), "answer")

    loop = LoopConfig(criteria=[TodoCompletion(todos)], branches=2)
    model = ScriptedModel(speak)
    agent = Agent("worker", model, tools=[*todos.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)
    (last,) = (
        text
        for request in model.requests
        for message in request.messages
        if message["role"] == "tool" and (text := str(message["content"])).count("[x]") == 400
    )
    assert last.splitlines() == [
        "Todo list: 400 of 400 done",
        *(f"[x] {n}. {item}" for n, item in enumerate([*lists[0], *lists[1]], 1)),
    ]
