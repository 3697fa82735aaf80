"""The decisions, pure: no I/O, no clock, no random, no logging.

``state`` is what a run knows, ``fold.apply`` the only thing that changes it, ``steps`` says what
comes next.
"""
