"""From data to agents: definitions, and what else turns settings into running things."""
