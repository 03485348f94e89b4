"""The tools' code. Scripts at the top level start it; each package below says what it does."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""


class Failed(Exception):
    """Something could not be done; the text says what and, where known, what to do about it."""
