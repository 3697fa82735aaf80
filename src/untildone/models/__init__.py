"""Models: wire adapters, one protocol each, and wrappers around the ``Model`` port."""
