"""The tools' code. Scripts at the top level start it; each package below says what it does."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""


class Failed(Exception):
    """Something could not be done; the text says what and, where known, what to do about it."""


class Missing(Failed):
    """This machine lacks what a test or tool needs: a program, a privilege, a kernel feature.

    A test that raises it is left out of the run, with the text as the reason (tests/conftest.py).
    """
