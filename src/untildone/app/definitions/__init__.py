"""Agents as data: read from YAML, JSON or TOML, checked as a whole, built into an ``Agent``."""
