"""Memories around a run: one sentence for each line of the contract.

Numbers in brackets are those of the known faults (`known-faults.md`) that a requirement rules out.
"""

REQUIREMENTS: dict[str, str] = {
    # ── Reading ──────────────────────────────────────────────────────────────────────────────────
    "memory.read-once": "Playbook, episodes and provider are read once a run, before iteration 1.",
    "memory.query": "Memories are asked with the caller's last user message.",
    "memory.injected-once": (
        "What memories know stands once in the one system message of every request, and each"
        " iteration has the same (48)."
    ),
    "memory.fresh-context": "A fresh context keeps what memories said.",
    "memory.framed": "Remembered text is delimited as data and cannot leave its frame.",
    "memory.bounded": "What is remembered cannot fill the prompt, however long it is.",
    "memory.own-forms-left-out": (
        "A provider that also keeps playbooks and episodes gives the run none of their stored form."
    ),
    "memory.own-drafts": "A run never recalls its own drafts, also when it is resumed (49).",
    "memory.precedence": (
        "The loop's playbook and episodes win over the agent's, and only one of each is used."
    ),
    "memory.task-tag": "The playbook's tag is the loop's, else the agent's, else the agent's name.",
    "memory.without-a-loop": (
        "Without a refine loop memories are read and one episode of unknown outcome is recorded."
    ),
    # ── Episodes ─────────────────────────────────────────────────────────────────────────────────
    "memory.episode-each-iteration": (
        "Each finished iteration is recorded as one episode, with its answer, grade and tools."
    ),
    "memory.outcome": (
        "An outcome is success, partial or failure by the iteration's grade, and unknown without"
        " one."
    ),
    # ── Curation ─────────────────────────────────────────────────────────────────────────────────
    "memory.curated-from-what-was-returned": (
        "A playbook learns from the run's graded iterations and the grade of what was returned, not"
        " of what came last."
    ),
    "memory.curated-with-a-verifier-only": (
        "Without a verifier a playbook is read and learns nothing, and building that warns."
    ),
    "memory.curated-on-every-learning-exit": (
        "A run that converged, plateaued, hit its ceiling, failed to satisfy, stopped early or had"
        " a failing judge teaches."
    ),
    "memory.not-curated": "A run that was cancelled, failed or waits for a person teaches nothing.",
    "memory.counts-in-usage": (
        "Reflection goes by the run's metered path and counts in its usage, whoever reflects."
    ),
    "memory.full-still-learns": "A full playbook still learns.",
    # ── Events ───────────────────────────────────────────────────────────────────────────────────
    "memory.events": (
        "EPISODE_RECALLED, EPISODE_RECORDED and PLAYBOOK_UPDATED come in the contract's order with"
        " S1's payloads, the last one before DONE; MEMORY_RETRIEVE counts what a provider gave."
    ),
    # ── Nothing else changes ─────────────────────────────────────────────────────────────────────
    "memory.changes-nothing-else": (
        "Switching memories on changes nothing of what the loop does otherwise."
    ),
    "memory.failures-cost-nothing": (
        "A memory that raises, hangs or gives nonsense is reported and never costs an answer (46)."
    ),
    "memory.cancelled": "A run that is cancelled inside a memory is cancelled.",
    "memory.checked-when-built": "What is no memory is refused when the configuration is built.",
    "memory.resume": (
        "With memories on, every prefix of a log, folded and continued, gives the same result,"
        " repeats no finished reflection, and records and teaches nothing twice (45)."
    ),
    "memory.concurrent": (
        "Many concurrent loops on shared memories lose no entry and see none of each other's."
    ),
}
