"""Branches, several candidates an iteration: one sentence for each line of the contract.

Numbers in brackets are those of the known faults (`known-faults.md`) that a requirement rules out.
"""

REQUIREMENTS: dict[str, str] = {
    # ── Running ──────────────────────────────────────────────────────────────────────────────────
    "branches.at-once": "The candidates of an iteration run at the same time.",
    "branches.apart": "A candidate sees what was before the iteration and nothing of the others.",
    "branches.temperature": "Each candidate may have a temperature of its own.",
    "branches.seed": "A seed is another one for each candidate and iteration.",
    "branches.cancelled": "Cancelling the run cancels every candidate (41).",
    # ── Grades ───────────────────────────────────────────────────────────────────────────────────
    "branches.best-wins": "With a verifier the candidate with the best score goes forward.",
    "branches.ties": "Of equally good candidates the one with the lowest index wins.",
    "branches.graded-once": "Each candidate is graded exactly once, the winner not again (17).",
    "branches.confirmed": "Only the winner's pass is confirmed; a refusal brings the lower score.",
    "branches.winner-feedback": "The winner's feedback is the iteration's, and no other one's.",
    "branches.winner-only": (
        "stop_condition, convergence_fn and criteria see the winner and no other candidate."
    ),
    "branches.early-stop": (
        "With branch_early_stop the first candidate that passes ends the rest and goes forward."
    ),
    "branches.converged-error": (
        "LoopConvergedError from a candidate's grader ends the run with that candidate, as it does"
        " where there is only one."
    ),
    # ── Failures ─────────────────────────────────────────────────────────────────────────────────
    "branches.cap-raised": (
        "With on_max_turns='raise' a candidate that used all its turns is out, and all of them fail"
        " the run."
    ),
    "branches.foreign-cancellation": (
        "A CancelledError while the run is not being cancelled is a failure of what raised it."
    ),
    "branches.go-on": (
        "A run that failed with all its candidates says what to leave out of its log to go on."
    ),
    "branches.failed-candidate": "A candidate that fails is dropped and the others go on.",
    "branches.failed-grading": "A candidate whose grading fails is dropped.",
    "branches.one-left": "Where one candidate is left, nothing is merged.",
    "branches.all-failed": "Where all candidates fail, the first one's error leaves the run.",
    "branches.all-gradings-failed": (
        "Where all gradings fail, that is a criterion error with candidate 0's."
    ),
    "branches.approval": "A pending approval in any candidate ends the run as awaiting_approval.",
    # ── Votes ────────────────────────────────────────────────────────────────────────────────────
    "branches.vote": "With branch_vote the first candidate of the most frequent key goes forward.",
    "branches.vote-abstains": (
        "A candidate whose key is None abstains; where all do, the first with an answer goes"
        " forward."
    ),
    "branches.vote-equality": "Keys are one answer exactly where they are equal, hashable or not.",
    "branches.vote-same-winner": "A vote that stops early has the winner that asking all has.",
    "branches.vote-stops": "A vote asks no more candidates once its winner is certain.",
    # ── Merging ──────────────────────────────────────────────────────────────────────────────────
    "branches.merge": "A merge goes forward as one assistant message.",
    "branches.merge-confidence": (
        "The confidence of a merge is its last line, or None where that cannot be read; nobody asks"
        " again."
    ),
    "branches.merge-keeps": "A merge keeps the candidates' tool calls, and is read as the output.",
    "branches.merge-fits": (
        "A merge is asked for by the schema of the response_model and repaired once; one that does"
        " not fit sends the first candidate that does forward."
    ),
    "branches.merge-empty": "A merge without an answer in it replaces no candidate.",
    "branches.own-synthesizer": (
        "An own synthesizer with a keyword model has the run's metered way to models."
    ),
    "branches.bad-merge": "A synthesizer that gives no result costs no answer.",
    "branches.merged-todos": (
        "The todo list of a merge is that of all candidates: what any has done is done, what nobody"
        " has done is open."
    ),
    # ── What is seen ─────────────────────────────────────────────────────────────────────────────
    "branches.usage": "The calls of losing and of dropped candidates count.",
    "branches.events": (
        "Events of candidates carry branch and come first; then BRANCH_SELECTED, VERIFIER_SCORED,"
        " EPISODE_RECORDED, LOOP_ITERATION."
    ),
    "branches.resume": "Every prefix of a log with early stops or ends leads to the same end.",
}
