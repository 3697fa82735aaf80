"""The refine loop, its judges and its ends: one sentence for each line of the contract."""

REQUIREMENTS: dict[str, str] = {
    # --- The doors and the configuration
    "refine.run-agent-delegates": (
        "An agent with a loop_config loops, through run_agent and run_agent_loop alike."
    ),
    "refine.no-loop-config": (
        "Without a loop_config run_agent_loop is one agent run, with no loop iterations."
    ),
    "refine.tools-once": (
        "Tools are discovered once a run; given ones replace the agent's, an empty list is none."
    ),
    "refine.config-defaults": "LoopConfig has S1's fields and defaults.",
    "refine.config-is-immutable": "A LoopConfig does not change after it was built.",
    "refine.config-types": "A setting of the wrong kind is refused by name when it is built.",
    "refine.bounds": (
        "Bounds are checked when the config is built; zero, None and NaN never mean unlimited."
    ),
    "refine.config-warning": (
        "A setting that has no effect without a verifier is harmless, and building it warns."
    ),
    "refine.never-ignored": "A setting that cannot have an effect is refused, never ignored.",
    # --- An iteration
    "refine.inner-exit-is-an-iteration": (
        "An agent run that ends at max_turns or stuck is judged, refined and counted like others."
    ),
    "refine.inner-exit-named": (
        "The iteration's event names the inner exit, which is never the exit of the loop."
    ),
    "refine.max-turns-raise": (
        'With on_max_turns="raise" MaxTurnsError leaves the loop and the run ends as an error.'
    ),
    "refine.approval-stops": (
        "A pending approval ends the run before anything is judged, and the run can be resumed."
    ),
    "refine.stop-condition": (
        "A met stop condition closes the iteration and raises LoopConvergedError with the result."
    ),
    "refine.stop-condition-first": "Nobody is asked about an iteration that met stop_condition.",
    "refine.own-text": "What the caller wrote is never taken for what the agent answered.",
    # --- Who is asked
    "refine.evaluation-order": (
        "The order is stop_condition, verifier, convergence_fn, then the criteria in theirs."
    ),
    "refine.verifier-every-iteration": "The verifier grades every iteration.",
    "refine.either-of-the-pair": "Either of verifier and convergence_fn is enough for that pair.",
    "refine.criteria-after-the-pair": (
        "Criteria are asked only if what is set of verifier and convergence_fn passed."
    ),
    "refine.first-that-asks-wins": (
        "The first criterion that asks for another iteration wins; later ones are not asked."
    ),
    "refine.all-criteria": "Nothing converges before every criterion is satisfied.",
    "refine.nothing-set": "A loop that nothing judges runs to its ceiling.",
    "refine.sync-and-async": "Predicates and criteria may be sync or async.",
    "refine.awaitable-awaited": "An awaitable is awaited and never taken as truth.",
    "refine.truth-of-a-predicate": "The answer of a predicate counts by its truth.",
    "refine.verifier-among-criteria": "A Verifier may stand among the criteria.",
    "refine.one-result-for-all-judges": "All who judge an iteration are shown one result.",
    "refine.who-asked": (
        "The iteration's event names who asked for another one: kind, name, class or setting."
    ),
    "refine.oracle": "The loop as a whole does what a second reading of the contract says.",
    # --- Plateau
    "refine.plateau-reference": (
        "A plateau is measured from the last score that beat the former reference."
    ),
    "refine.plateau-tolerance": "A gain of exactly min_improvement is one, whatever floats say.",
    "refine.plateau-from-third": "A plateau is looked for from the third scored iteration on.",
    "refine.plateau-patience": "As many misses in a row as plateau_patience are a plateau.",
    "refine.plateau-best": "A plateau returns the best-scored iteration.",
    "refine.plateau-adaptive-only": "Only an adaptive loop with a verifier has a plateau.",
    "refine.plateau-before-ceiling": (
        "Converging comes before the plateau, and the plateau before the ceiling."
    ),
    "refine.plateau-min-improvement-zero": (
        "With min_improvement 0 a rise counts, however small, and an equal score does not."
    ),
    # --- The end
    "refine.converged-returns-this": "A converged loop returns the iteration that converged.",
    "refine.ceiling": "A ceiling of n makes n agent runs at most, beside every other end.",
    "refine.ceiling-best": "At the ceiling the iteration that was scored best is returned.",
    "refine.ceiling-last": "At the ceiling the last iteration is returned where none was scored.",
    "refine.ties-latest": "Of equal scores the latest wins.",
    "refine.criteria-scores-never-choose": "Scores made inside criteria never choose the result.",
    "refine.returned-exits": (
        "converged, plateau, max_iterations and criterion_error are returned as results."
    ),
    "refine.raised-exits": (
        "stop_condition, unsatisfied, error and criterion_error under FAIL_RUN are raised."
    ),
    # --- What the agent is told
    "refine.winning-feedback": "The next iteration is told the feedback of the one that asked.",
    "refine.prompt-default": "Without feedback it is told refine_prompt, by default S1's.",
    "refine.messages-verbatim": "The messages of a verdict are sent verbatim instead.",
    "refine.prefix-stable": "What was sent is never changed, only added to.",
    "refine.tools-in-refine": "Calls and answers of earlier iterations stay in the conversation.",
    "refine.empty-prompt": "An empty refine_prompt appends nothing.",
    "refine.empty-answer": "An empty answer is never sent back as an empty message.",
    "refine.fresh-context": (
        "A fresh context has the system prompt, the original messages and one log of all feedback."
    ),
    "refine.fresh-context-prompt": (
        "Without any feedback a fresh context has refine_prompt, or nothing where that is empty."
    ),
    "refine.seed-never-reused": "No sampling seed is used in two iterations.",
    "refine.event-has-no-feedback": (
        "The iteration's event tells whether there was feedback, never what it said."
    ),
    # --- Criteria
    "criteria.forms": (
        "A criterion is a callable or has evaluate(ctx) and gives a verdict, a bool or a pair."
    ),
    "criteria.context": (
        "A criterion sees the iteration, its result, both conversations and all feedback so far."
    ),
    "criteria.nonsense": "What is no verdict is an error and never taken for one.",
    # --- A judge that raises
    "error.returned": "By default the last response is returned, with the error, and it is logged.",
    "error.named": "The iteration's event names the judge that raised.",
    "error.nothing-more-is-asked": "After a judge has raised nothing more is asked.",
    "error.last-response": "It is the last response that is returned, not the best-scored one.",
    "error.fail-run": "With FAIL_RUN that very exception leaves the run.",
    "error.independent": "on_criterion_error and on_exhausted are independent.",
    "error.not-false": "A predicate that raises is never taken as false.",
    "error.time-out": "A time-out inside a judge is a criterion error.",
    "error.foreign-cancel": (
        "A CancelledError is a criterion error while the run's own task is not being cancelled."
    ),
    "error.own-cancel": "The run's own cancellation is never a criterion error.",
    "error.unreachable-verifier": "A verifier that cannot be reached is a criterion error.",
    "error.on-the-last-iteration": "An error in the last iteration is an error, not the ceiling.",
    # --- LoopConvergedError from a judge
    "early.same-as-stop-condition": (
        "LoopConvergedError raised by a judge is the same as a met stop condition."
    ),
    "early.own-result": "It may bring a result of its own; without one it is the current one.",
    "early.belongs-to-its-run": (
        "It belongs to the run that raised it: elsewhere it is a call's result or a judge's error."
    ),
    # --- The last iteration, and FAIL_RUN
    "last.criteria-not-asked": "Criteria are not asked about the last iteration.",
    "last.pair-is-asked": "Verifier and convergence_fn are asked about the last iteration.",
    "last.evaluate-final": "With evaluate_final criteria are asked about the last iteration too.",
    "fail.ceiling": "With FAIL_RUN a ceiling that nothing accepted raises LoopUnsatisfiedError.",
    "fail.plateau": "With FAIL_RUN a plateau that nothing accepted raises it too.",
    "fail.last-is-judged": (
        "With FAIL_RUN the last iteration is judged once more, and there is no further agent run."
    ),
    "fail.best-so-far": "LoopUnsatisfiedError carries the best-scored result.",
    "fail.others-unchanged": "FAIL_RUN fails nothing that was accepted, stopped or not judged.",
    "fail.nothing-to-satisfy": "FAIL_RUN with nothing to satisfy is a config error.",
    "fail.spelling": "Outcomes may be given in S3's spelling; others are refused.",
    "fail.streamed-text": "A streaming reader has the last text before the failure.",
    # --- The verifier
    "verifier.scores-are-kept": "A score is a real number from 0 to 1 and counts as it is.",
    "verifier.no-score": "What is no score is an error and never one.",
    "verifier.one-repair": "A judge's reply that cannot be used is asked for once more, only once.",
    "verifier.no-repair-for-functions": "An evaluate_fn is not asked again.",
    "verifier.readable-replies": "A verdict is read bare, fenced and in prose.",
    "verifier.outage": "An outage is never a score of 0.0.",
    "verifier.threshold": "A score of the threshold or more passes, whoever grades.",
    "verifier.converged-wins": "A converged of True or False wins over the threshold.",
    "verifier.confirmations": (
        "A pass is graded again; one refusal means not converged, with the lower score."
    ),
    "verifier.answer-is-data": "What is judged is delimited as data and cannot close its frame.",
    "verifier.rubric-adds": "An own rubric replaces no other instruction to the judge.",
    "verifier.structured-output": "The judge is asked for structured output, and told so in words.",
    "verifier.sees-the-answer": "An evaluate_fn sees the iteration's result; it may be async.",
    "verifier.own-grader": "Any object with evaluate grades, by the default threshold.",
    "verifier.confidence": "A confidence that an evaluate_fn sets is the iteration's.",
    "verifier.usage": "Every call of a judge is metered, also with a model of its own.",
    "verifier.default-model": "The agent's own model judges where no other is named.",
    "verifier.retries": "The agent's retry policy holds for its judges.",
    "verifier.event": "Each graded iteration shows one VERIFIER_SCORED, before its LOOP_ITERATION.",
    "verifier.complexity": "The complexity of a task is true or false, after one repair at most.",
    "verifier.bounds": "The settings of a verifier are checked when it is built.",
    "query.last-user-message": "The query of a run is the caller's last user message.",
    # --- search_loop
    "search.stops-when-confident": "A search stops when the confidence reaches its threshold.",
    "search.warns": "A search in which no iteration set a confidence warns.",
    "search.fresh-agent": "A search has the given tool alone and every other setting of the agent.",
    "search.loop-config": (
        "A search keeps the agent's loop_config but for max_iterations and convergence_fn."
    ),
    "search.bounds": "The bounds of a search are checked before anything runs.",
}
