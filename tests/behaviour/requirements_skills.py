"""Skills, distillation and MCP servers: one sentence for each line of the contract.

Numbers in brackets are those of the known faults (`known-faults.md`) that a requirement rules out.
"""

REQUIREMENTS: dict[str, str] = {
    # ── Skills ───────────────────────────────────────────────────────────────────────────────────
    "skills.like-tools": "An agent's skills are offered and called like its tools.",
    "skills.clash": "A skill and a tool of one name are refused by that name.",
    "skills.registry": "SkillRegistry is process-wide: register, get, list_all, clear.",
    "skills.s1-page": "S1's snippet distils a skill that SkillRegistry.list_all shows.",
    # ── Distillation ─────────────────────────────────────────────────────────────────────────────
    "distil.converged-only": "A run is distilled after the exit converged and after no other.",
    "distil.quality": (
        "Quality is the returned iteration's score, else its confidence, and must reach the"
        " threshold."
    ),
    "distil.name": "The name is the task tag and eight hex of the query, at most 64 characters.",
    "distil.replaces": "Distilling the same again replaces the skill.",
    "distil.event": "SKILL_EXTRACTED names skill and score, after the loop's events, before DONE.",
    "distil.description": "The description is made of tag and query and carries no secrets.",
    "distil.no-silent-no-op": "auto_extract_skill without anything that grades warns.",
    "distil.changes-nothing": "Distillation changes neither the result nor anything before it.",
    "distil.never-costs": "A distillation that fails costs no answer.",
    "distil.once": "A resumed run gives the same result and repeats no logged distillation.",
    # ── Replay ───────────────────────────────────────────────────────────────────────────────────
    "replay.fresh-agent": (
        "A distilled skill runs a fresh agent: same prompt, tools, servers, skills, model,"
        " parameters, hooks and retries, no refine loop."
    ),
    "replay.any-task": "It does whatever task it is given and repeats no frozen answer.",
    "replay.never-itself": "A skill cannot call itself, not by way of another one either (50).",
    "replay.cost": "What a skill spends counts for the run that called it.",
    "replay.converged-inside": "A LoopConvergedError leaving a skill is that call's success.",
    "replay.hooks": "A tool that is denied stays denied inside a skill (28).",
    # ── MCP servers ──────────────────────────────────────────────────────────────────────────────
    "mcp.like-tools": "The tools of MCP servers are offered and called like functions.",
    "mcp.once": "Servers are asked for their tools once a run, not an iteration or branch (30).",
    "mcp.closed": "Servers are closed at the end of the run, on every path.",
    "mcp.one-error": "A call that a server fails costs one error result, not the run.",
    "mcp.unreachable": "A server that cannot be used ends the run before it began, by name.",
    "mcp.clash": "Two servers with a tool of one name are refused, and a prefix helps.",
    # ── All of them ──────────────────────────────────────────────────────────────────────────────
    "extras.change-nothing": "Having skills, servers and distillation changes nothing else.",
}
