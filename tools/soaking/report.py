"""The figures of a soak, as Markdown, and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools.benchmark.figures import percentile
from tools.rendering.markdown import table
from tools.soaking.process import Usage

MIB = 1 << 20
GROWTH_BYTES = 2 * MIB
"""How much more memory the same process may have at the end than after the first third of the time."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that a soak has counted."""

    seconds: float
    seed: int
    rounds: int
    names: Mapping[str, int]
    asked: int
    answered: int
    failed_by_plan: int
    parsed: int
    scrape_seconds: Sequence[float]
    most_bytes: int
    usages: tuple[Usage, Usage, Usage]
    """At the start, after a third, and at the end; the last two are of one process."""
    drawn_millijoules: int
    lost_millijoules: int
    wrong: Mapping[tuple[str, ...], int]
    new_ledgers: int
    restarts: Mapping[str, int]
    faults: Mapping[str, int]
    attacks: Mapping[str, int]
    """By hostile clients and by the relayed exporter."""
    failures: Sequence[str]
    failure_count: int


def grown(figures: Figures) -> Iterator[str]:
    """What the exporter has more of at the end than after a third of the time."""
    _, third, end = figures.usages
    if end.resident_bytes > third.resident_bytes + GROWTH_BYTES:
        yield f"memory grew from {_mib(third)} to {_mib(end)} MiB"
    if end.threads > third.threads:
        yield f"threads grew from {third.threads} to {end.threads}"
    if end.descriptors > third.descriptors:
        yield f"descriptors grew from {third.descriptors} to {end.descriptors}"


def text(figures: Figures, command: str, date: str) -> str:
    """The table, with how it was measured."""
    ordered = sorted(figures.scrape_seconds)
    start, third, end = figures.usages
    unplanned = figures.asked - figures.answered - figures.failed_by_plan
    rows = [
        ("duration", f"{figures.seconds / 60:.0f} minutes, {figures.rounds:,} rounds, seed {figures.seed}"),
        ("owners on the GPUs, each with a new name", _counts(figures.names)),
        ("scrapes asked", f"{figures.asked:,}"),
        (
            "answered",
            f"{figures.answered:,}, at most {figures.most_bytes / 1000:,.0f} kB; "
            f"{figures.parsed:,} of them read by Prometheus' Python client, too",
        ),
        ("failed during planned restarts", f"{figures.failed_by_plan:,}"),
        ("failed otherwise", f"{unplanned:,}"),
        ("p50 / p99 / slowest", " / ".join(f"{1000 * one:.1f} ms" for one in _points(ordered))),
        (
            "memory at the start / after a third / at the end",
            f"{_mib(start)} / {_mib(third)} / {_mib(end)} MiB",
        ),
        ("threads", f"{start.threads} / {third.threads} / {end.threads}"),
        ("descriptors", f"{start.descriptors} / {third.descriptors} / {end.descriptors}"),
        ("energy drawn", f"{figures.drawn_millijoules / 1000:,.3f} J"),
        ("joules lost", f"{figures.lost_millijoules / 1000:g}"),
        ("wrong owners", f"{len(figures.wrong)}, {sum(figures.wrong.values()) / 1000:g} J"),
        ("restarts", _counts(figures.restarts)),
        ("ledgers begun again after the state was lost, by GPU", f"{figures.new_ledgers:,}"),
        ("faults", _counts(figures.faults)),
        ("connections of hostile clients, answers of the hostile upstream", _counts(figures.attacks)),
        ("checks that failed", f"{figures.failure_count:,}"),
    ]
    return (
        f"Written by `{command}` on {date}. Memory must not grow by more than {GROWTH_BYTES // MIB} MiB "
        "from the first third to the end, threads and descriptors not at all: it is the same process "
        "all that time.\n\n"
        f"{table(('', ''), rows)}"
    )


def _points(ordered: Sequence[float]) -> tuple[float, float, float]:
    if not ordered:
        return (0.0, 0.0, 0.0)
    return percentile(ordered, 50), percentile(ordered, 99), ordered[-1]


def _mib(usage: Usage) -> str:
    return f"{usage.resident_bytes / MIB:.1f}"


def _counts(counts: Mapping[str, int]) -> str:
    each = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(counts.items()))
    return f"{sum(counts.values()):,}: {each}" if counts else "0"
