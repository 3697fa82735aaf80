"""The two loops. ``refine.py`` is the outer one, ``turns.py`` the inner one; read them first."""
