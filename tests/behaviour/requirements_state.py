"""What a run counts, keeps and can be resumed from: one sentence for each line of the contract."""

REQUIREMENTS: dict[str, str] = {
    # --- Counts and fields
    "counts.iterations": "loop_iterations counts the finished iterations, on every path.",
    "counts.before-the-predicates": "An iteration is counted before any judge sees its result.",
    "counts.cut-short": "An iteration cut short is not counted; its turns and usage are.",
    "counts.best-iteration": "best_iteration is the one that the returned text comes from.",
    "counts.belongs-to-the-iteration": (
        "text, confidence, tool_calls, messages and finish_reason are the returned iteration's."
    ),
    "counts.belongs-to-the-run": "Usage, turns, scores and loop_iterations are the whole run's.",
    "counts.usage": "Usage sums the calls of workers, judges, repairs, retries and nested runs.",
    "counts.retries": "A failed try is charged and stays the same turn.",
    "counts.unknown-usage": "A call whose cost nobody reports is unknown, never free.",
    "counts.nothing-shared": "One agent serves a thousand runs at once; counters live in the run.",
    # --- What holds for every run
    "holds.cap-of-turns": "A cap of n turns never makes n + 1.",
    "holds.cap-of-iterations": "A ceiling of n iterations never makes n + 1.",
    "holds.terminal-is-terminal": "Nothing runs after the exit is decided.",
    "holds.answered-once": "Every call is answered exactly once, in call order, on every path.",
    "holds.usage-adds-up": "The usage of a result is what its model calls cost.",
    "holds.callers-messages": "The caller's messages are never changed and never shared.",
    "holds.prefix": "Each request begins with the one before, or anew with the question.",
    "holds.same-streamed": "A run gives the same whether it is watched or not.",
    "holds.cancel-anywhere": "Cancelling at any await leaves no task and keeps the result.",
    "holds.queue-ends": "The queue ends on every path, once.",
    "holds.nothing-is-lost": "What a run raises carries its best result so far.",
    "holds.no-group": "No exception group leaves a run.",
    # --- Resume
    "resume.same-outcome": "Going on from any prefix of a log gives the undisturbed outcome.",
    "resume.nothing-twice": "Going on repeats no finished call of a model or a tool.",
    "resume.same-log": (
        "The prefix and the new events are the undisturbed log, but for the second start of a call"
        " that was unfinished."
    ),
    "resume.through-json": "A log goes through JSON and back and loses nothing.",
    "resume.twice": "A resumed run can be resumed again.",
    "resume.interrupted-tool": (
        "A call in doubt is run again if its tool is idempotent, else answered as interrupted."
    ),
    "resume.model-failure": "A model that failed is asked again unless the run ended with that.",
    "resume.approvals": "A run that waits for a person goes on with the decision.",
    "resume.branches": "Candidates that were finished are not run again; the others go on.",
    "resume.refused": "A log without its beginning, or another configuration, is refused.",
    "resume.counts-go-on": "A resumed run goes on counting where the log ends.",
    "resume.events": "A resumed run shows what is new and ends its queue.",
}
