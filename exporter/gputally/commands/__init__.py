"""The commands beside `serve`, a module or package each; and the findings of `check` and `verify`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

OK = "ok"
NOTE = "note"
"""For information: no action is needed."""
WARNING = "warning"
PROBLEM = "problem"
"""Of `check`: something cannot be read."""
FAILURE = "failure"
"""Of `verify`: only these fail the command."""
NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report."""

    level: str
    subject: str
    text: str
    fix: str = ""
    final: bool = False
    """Waiting does not improve it."""
    early: bool = False
    """It is not a failure, but waiting may give a better result."""


def passed(findings: Iterable[Finding]) -> bool:
    return all(finding.level != FAILURE for finding in findings)


def report_lines(findings: Sequence[Finding]) -> Iterator[str]:
    level_width = max((len(finding.level) for finding in findings), default=0)
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.level:<{level_width}}  {finding.subject:<{width}}  {finding.text}"
        if finding.fix:
            yield f"{'':<{level_width + width + 4}}fix: {finding.fix}"


def some(names: Iterable[str], most: int = 5) -> str:
    """The first of the names, and the number of the others."""
    listed = sorted(set(names))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
