"""The seal of a bill: a chain of SHA-256 hashes over its lines.

A sealed line has `seal-sha256-` and a hash near its end. The hash covers the one before it and every byte
from there to the end of the line: the line itself, and lines without a seal above it. The last line is
sealed, so no byte is outside of the chain. There is no key: after a change all hashes that follow can be
computed again, so the last one is noted elsewhere. The next bill contains it (`previous-sha256-`).
"""

import hashlib
import re
from dataclasses import dataclass

MARK = "seal-sha256-"
OPEN = MARK + "0" * 64
"""Where the hash of a line goes."""
PREVIOUS = "previous-sha256-"
_END = "end of the bill"
_SEAL = re.compile(re.escape(MARK) + r"([0-9a-f]{64})(?=[^\n]{0,12}$)", re.MULTILINE)
"""Texts of others are not that near to the end of a line."""


@dataclass(frozen=True, slots=True)
class Chain:
    """That a bill is sealed, and which one it continues."""

    previous: str = ""
    """`previous-sha256-` and the last hash of the bill before it; empty for the first bill."""


class NotSealed(Exception):
    """The text is no sealed bill."""


@dataclass(frozen=True, slots=True)
class Verdict:
    seal: str
    """The last hash."""
    previous: str
    """The last hash of the bill before it; empty for the first bill."""
    lines: int
    """The number of sealed lines."""
    changed: tuple[str, ...]
    """What was changed: lines of the file."""


def close(text: str) -> str:
    """The text with its hashes in place of `OPEN`; its last line is one with a seal."""
    digest, begin = "", 0
    closed = []
    for seal in _SEAL.finditer(text):
        end = _end_of_line(text, seal.end())
        before, after = text[begin : seal.start()], text[seal.end() : end]
        digest = _next(digest, before + after, last=end == len(text))
        closed += [before, MARK, digest, after]
        begin = end
    return "".join(closed)


def verify(text: str) -> Verdict:
    """Raises NotSealed."""
    digest = computed = ""
    begin, count = 0, 0
    changed = []
    for seal in _SEAL.finditer(text):
        end = _end_of_line(text, seal.end())
        part, last = text[begin : seal.start()] + text[seal.end() : end], end == len(text)
        expected = _next(digest, part, last=last)
        # After a line of which only the hash was changed, the next one still fits.
        if seal[1] in (expected, _next(computed, part, last=last)):
            computed = seal[1]
        else:
            computed = expected
            changed.append(_lines(text, begin, end))
        begin, digest, count = end, seal[1], count + 1
    if not count:
        raise NotSealed("has no seal: it was not written with --seal")
    if begin < len(text):
        changed.append(_lines(text, begin, len(text)))
    previous = re.search(re.escape(PREVIOUS) + "([0-9a-f]{64})", text)
    return Verdict(digest, previous[1] if previous else "", count, tuple(changed))


def mark_previous(digest: str) -> str:
    """How a bill names the last hash of the one before it."""
    return PREVIOUS + digest if digest else ""


def report(verdict: Verdict) -> list[str]:
    """What `--verify` prints."""
    if not verdict.changed:
        return [f"ok: {verdict.lines} sealed lines are unchanged", f"{MARK}{verdict.seal}"]
    return [
        *(f"changed: {lines}" for lines in verdict.changed),
        "A line is also reported if one beside it was removed, added, or replaced with its hash.",
    ]


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _next(digest: str, part: str, *, last: bool) -> str:
    """That a line is the last one is part of its hash: so missing lines at the end are found."""
    return hashlib.sha256((digest + part + (_END if last else "")).encode()).hexdigest()


def _lines(text: str, begin: int, end: int) -> str:
    first = text.count("\n", 0, begin) + 1
    last = max(text.count("\n", 0, end - 1) + 1, first)
    return f"line {last}" if first == last else f"lines {first} to {last}"
