"""`gputally verify`: does the whole installation work, from the exporters to the dashboards?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OK = "ok"
WARNING = "warning"
FAILURE = "failure"
NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. What could not be looked at is NOT_CHECKED, never OK; only FAILURE fails."""

    level: str
    subject: str
    text: str
    fix: str = ""
    final: bool = False
    """It will not get better by waiting."""
    early: bool = False
    """It is no failure, but waiting may tell more."""


def passed(findings: Iterable[Finding]) -> bool:
    return all(finding.level != FAILURE for finding in findings)


def report_text(findings: Sequence[Finding]) -> str:
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<11}  {finding.subject:<{width}}  {finding.text}")
        if finding.fix:
            lines.append(f"{'':<{width + 15}}fix: {finding.fix}")
    return "\n".join(lines)


def some(names: Iterable[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    listed = sorted(set(names))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
