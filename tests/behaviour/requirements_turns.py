"""Words, turn loop, stuck, events, exits, cancellation: one sentence for each line of the contract.

Numbers in brackets are those of the known faults (`known-faults.md`) that a requirement rules out.
"""

REQUIREMENTS: dict[str, str] = {
    # ── Words ────────────────────────────────────────────────────────────────────────────────────
    "words.two-bounds": (
        "max_turns bounds an agent run and max_iterations the refine loop; the two share no name,"
        " no field, no exit and no error."
    ),
    "words.query": (
        "The query is the caller's last user message in every iteration, never a refine prompt."
    ),
    "words.exit-reasons": "There are thirteen exit reasons, and they are a StrEnum.",
    # ── Bounds and presets ───────────────────────────────────────────────────────────────────────
    "bounds.presets": "SIMPLE, RESEARCH and CODING are S2's sizes: 10, 30 and 100.",
    "bounds.counts": "What counts something is a whole number of one or more, or refused at once.",
    "bounds.no-unlimited": (
        "0, None and NaN never mean unlimited: they are refused, and the error says so (6)."
    ),
    "bounds.thresholds": "A threshold is a number in [0, 1], or refused at once.",
    "bounds.not-negative": "min_improvement and its like are finite and 0 or more, or refused.",
    "bounds.config-error": "A ConfigError is an UntildoneError and a ValueError.",
    "bounds.stuck-pairs": "A stop limit of the stuck policy is not below its nudge limit.",
    "bounds.choices": "A setting with named choices refuses any other value and names them.",
    "bounds.bad-input": "Bad input is refused before anything runs, naming what to do.",
    # ── The doors ────────────────────────────────────────────────────────────────────────────────
    "doors.s1-signature": "run_agent and run_agent_loop take what S1's take, by keyword too.",
    "doors.sync": "run_agent_sync gives what run_agent gives, where no event loop runs.",
    # ── The turn loop ────────────────────────────────────────────────────────────────────────────
    "turns.conversation-and-tools": (
        "A turn sends the model the conversation so far and the run's tools."
    ),
    "turns.satisfied": "A reply without tool calls ends the turns, and the exit is satisfied.",
    "turns.answer-verbatim": "The text of the result is that reply, never stripped.",
    "turns.s2-keys": "What S2 calls answer, steps and exit are text, turns and exit_reason.",
    "turns.finish-reason": "The provider's finish reason, such as length, is on the result.",
    "turns.empty-answer": "An empty answer is a result, but never sent back as a message.",
    "turns.default-cap": "An agent run has ten turns where nobody says otherwise.",
    "turns.at-most-n": "A cap of n never makes n + 1 turns, and the nth may bring the answer (13).",
    "turns.last-calls-run": "The tool calls of the last turn are run like all others.",
    "turns.cap-is-a-result": (
        "At the cap there is a result with the last text, the conversation and the usage."
    ),
    "turns.cap-can-raise": "With on_max_turns='raise' the cap is a MaxTurnsError with the result.",
    "turns.retry-same-turn": "A model call that is retried or falls back stays one turn.",
    # ── Structured output ────────────────────────────────────────────────────────────────────────
    "output.parsed": "A reply that fits response_model is on the result as parsed.",
    "output.repair-is-a-turn": "An output repair is a turn, and needs one left.",
    "output.refused": "A reply that does not fit after one repair is an OutputParseError.",
    # ── Tool calls ───────────────────────────────────────────────────────────────────────────────
    "tools.concurrent": "All calls of one reply run concurrently.",
    "tools.attachments": (
        "Images and files that a tool returns reach the model as such; its text has a note of each."
    ),
    "tools.call-order": "Results are appended in call order, whatever order they finish in.",
    "tools.answered-once": (
        "Each call is answered exactly once on every path: result, failure, denial, cancel, nudge."
    ),
    "tools.sync-in-thread": "A sync tool runs in a worker thread and blocks nobody (29).",
    "tools.pool-size": "The caller sizes the pool: no more sync tools run at once.",
    "tools.arguments-must-fit": (
        "Arguments that are no JSON object or do not fit the schema run nothing (27)."
    ),
    "tools.cut-reply": "A call that was cut off with its reply runs nothing and is told so (27).",
    "tools.unknown-tool": "A call of an unknown tool runs nothing.",
    "tools.error-to-act-on": "A call that ran nothing gets a short error that says what would fit.",
    "tools.raising": "A tool that raises gives an error result, and the run goes on.",
    "tools.foreign-cancel": "A CancelledError that is not the run's own is a failure of that call.",
    "tools.converged-inside": (
        "A LoopConvergedError that leaves a tool is that call's success (10)."
    ),
    "tools.discovered-once": "Tools are discovered once a run, not once an iteration (30).",
    "tools.tool-defs": "tool_defs replace the agent's tools; None means its own, [] means none.",
    "tools.hooks": (
        "Hooks are told of the work, their failures change nothing, and derived agents keep them"
        " (28)."
    ),
    # ── Approval ─────────────────────────────────────────────────────────────────────────────────
    "approval.true-runs": "approve_tool sees tool and arguments, and True runs the call.",
    "approval.denied-runs-nothing": (
        "Any other answer but None denies the call, raising too: nothing runs, and it is answered."
    ),
    "approval.reason-is-read": "The text of a denial is what the model reads.",
    "approval.none-pauses": "None pauses the run with the exit awaiting_approval.",
    "approval.nothing-judged": "A paused iteration is neither judged nor counted.",
    "approval.resume-with-decision": "A paused run can be resumed with the decision.",
    # ── Stuck ────────────────────────────────────────────────────────────────────────────────────
    "stuck.nudge-then-stop": "The first signal is one nudge; a later one of stop level ends it.",
    "stuck.levels": "Live, identical calls are nudged after the fourth, stopped after the eighth.",
    "stuck.judged-after-calls": "Stuck is judged after the calls have run.",
    "stuck.keeps-text": "A stuck run keeps its last text, its conversation and its usage.",
    "stuck.nudge-text": (
        "The nudge is a user message after the batch's last result, by default in S2's words (33)."
    ),
    "stuck.no-self-reset": (
        "A user message resets the counters but not the memory, and recovery is not flagged (39)."
    ),
    "stuck.precedes-cap": "Stuck is looked at before the cap.",
    "stuck.action-stop": "action='stop' ends the run at the first signal of stop level.",
    "stuck.action-off": "action='off' turns it off.",
    "stuck.per-iteration": "Detector and nudge allowance begin anew with each iteration.",
    "stuck.cycles": "Cycles of any length are seen, also with a text between (37).",
    "stuck.canonical": "Arguments are compared as values, not as they are written.",
    "stuck.masked": "Timestamps, ids and durations in a result are no news.",
    "stuck.same-error": "The same call with the same error is nudged after three in a row.",
    "stuck.error-streak": (
        "One tool with one error text and other arguments is nudged after five in a row."
    ),
    "stuck.transient": "Transient errors have a limit of their own: six.",
    "stuck.near-duplicates": (
        "Near-duplicate arguments with an equal result are nudged after six in a row."
    ),
    "stuck.identical-25": "One identical call is noticed at the 25th though its result changes.",
    "stuck.same-text": "The same assistant text three times with nothing between is noticed.",
    "stuck.changing-results": "Polling with changing results is left alone (35).",
    "stuck.polling": "An unchanged answer of a tool declared polling is no repeat.",
    "stuck.batch-work": "One tool with other arguments each time is batch work (36).",
    "stuck.paging": "Arguments that differ in numbers only are paging.",
    "stuck.one-batch": "Identical calls in one batch count once (38).",
    "stuck.nondeterministic": "Of a tool declared nondeterministic only the call counts.",
    "stuck.volatile": "Fields declared volatile are left out of the comparison.",
    "stuck.s2-function": "is_stuck is public and does what S2's function does.",
    # ── Events ───────────────────────────────────────────────────────────────────────────────────
    "events.end-mark": "A top-level run ends its queue with None on every path (22).",
    "events.ended-unbegun": "A run that is cancelled before its first step ends its queue too.",
    "events.done-or-error": (
        "Before the end mark comes DONE for returned exits and stop_condition, else ERROR."
    ),
    "events.cancel-full-queue": (
        "On cancellation the end mark takes the place of the oldest items of a full queue."
    ),
    "events.bounded-loses-nothing": "A bounded queue slows the run and never loses an event.",
    "events.one-queue-many-runs": "Each top-level run ends the queue it was given, every time.",
    "events.nested-runs": "A run inside a run ends a queue of its own, never the outer run's.",
    "events.order": "Events come in the order in which things happen.",
    "events.payload-keys": "S1's payload keys are kept.",
    "events.scored-once": "VERIFIER_SCORED comes once an iteration.",
    "events.candidates": (
        "Events of candidates carry their branch and come before BRANCH_SELECTED."
    ),
    "events.no-early-refining": "No iteration is announced before its answer exists (23).",
    "events.agent-id": "Every event names its agent by the id given to the run, else its name.",
    "events.shape": "A StreamEvent is event, data and agent_id, and goes as JSON and as SSE.",
    "events.loop-iteration": (
        "LOOP_ITERATION comes exactly once for each finished iteration, with exactly its keys."
    ),
    "events.no-feedback-text": "No feedback text stands in LOOP_ITERATION.",
    "events.discard-chars": "What a live reader must drop of a broken stream is announced.",
    "events.retry-announced": "A stream that is retried announces it, and the text comes once.",
    "events.same-result": "Text, exit and usage are the same with and without a reader (26).",
    # ── stream_agent ─────────────────────────────────────────────────────────────────────────────
    "stream.yields-events": "stream_agent yields StreamEvents, ends, and then has the result.",
    "stream.raises-after-error": "What the run raised is raised after its ERROR event.",
    "stream.context-manager": "stream_agent is an async context manager.",
    "stream.aclose": "aclose cancels the work and awaits it; it may be called at any time.",
    "stream.leaving-cancels": "Leaving a stream early cancels the work (25).",
    # ── Exits ────────────────────────────────────────────────────────────────────────────────────
    "exits.returned": "These exits are returned as a result that names them.",
    "exits.raised": "These exits are raised, each as its own exception type.",
    "exits.named-everywhere": "The exit reason stands on result, terminal event and log.",
    "exits.unsatisfied": "LoopUnsatisfiedError has S3's error type.",
    "exits.terminal": "After the exit decision no worker, tool or grader call starts.",
    "exits.first-cause": "The first terminal cause wins.",
    # ── Cancellation ─────────────────────────────────────────────────────────────────────────────
    "cancel.everywhere": "A run can be cancelled wherever it waits, and ends as cancelled.",
    "cancel.leaves-nothing": "A cancelled run leaves no task behind.",
    "cancel.answers-calls": "Every call of a cancelled batch is answered.",
    "cancel.keeps-best": "A cancelled loop keeps its best finished iteration.",
    "cancel.sync-tools": "A cancelled run neither waits for a sync tool nor hears of it later.",
    "cancel.siblings": "A failing call leaves no sibling running and none unanswered (41).",
    # ── Nothing is lost ──────────────────────────────────────────────────────────────────────────
    "lost.partial-result": "partial_result finds the best so far on any exception (9).",
    "lost.foreign-unchanged": "A foreign exception leaves the run itself, type and text unchanged.",
    "lost.no-group": "No ExceptionGroup of ours leaks.",
    "lost.sinks": "A sink or queue that fails is reported and never costs an answer.",
    "lost.callers-messages": "The caller's messages are never changed.",
    "lost.shared-config": "No counter lives on a shared agent or config (40).",
    "usage.sums": "A result's usage is the sum over all model calls made for its run, by whomever.",
    "usage.failed-calls": "A failed call costs what it cost, and unknown where nobody said (43).",
}
