"""Text of others in logs, terminals and pages.

Names of processes, cgroups and pods, and the errors of drivers and servers are whatever their makers chose.
An escape sequence rewrites a terminal, a newline forges a line of a log, U+202E reverses the text behind it.
"""

from collections.abc import Iterable
from typing import TextIO


def printable(text: str) -> str:
    """One line: a character that is not printable is its escape sequence, such as \\n, \\x1b and \\u202e."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def print_lines(lines: Iterable[str], out: TextIO) -> None:
    """All output of commands for people."""
    for line in lines:
        print(printable(line), file=out, flush=True)
