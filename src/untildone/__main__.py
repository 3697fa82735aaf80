"""``python -m untildone``."""

from untildone.cli import main

main()
