"""What a soak says about its figures."""

from array import array
from dataclasses import replace

from tools.soaking.process import Usage
from tools.soaking.report import GROWTH_BYTES, Figures, grown, text

MIB = 1 << 20
STEADY = Usage(30 * MIB, 12, 20)
FIGURES = Figures(
    seconds=3600,
    seed=7,
    rounds=9000,
    names={"pod": 90_000, "slurm": 4_000},
    asked=15_000,
    answered=14_990,
    failed_by_plan=10,
    parsed=300,
    scrape_seconds=array("d", [0.003, 0.001, 0.002]),
    most_bytes=400_000,
    usages=(STEADY, STEADY, STEADY),
    drawn_millijoules=1_234_567,
    lost_millijoules=0,
    wrong={},
    new_ledgers=10,
    restarts={"SIGTERM": 3},
    faults={"GPU lost and back": 2},
    attacks={"send_garbage": 40},
    failures=[],
    failure_count=0,
)


def test_the_table_has_every_figure() -> None:
    page = text(FIGURES, "tools/soak 60 --seed 7", "2026-01-01 00:00 UTC")
    for row in (
        "| duration | 60 minutes, 9,000 rounds, seed 7 |",
        "| owners on the GPUs, each with a new name | 94,000: pod 90,000, slurm 4,000 |",
        "| failed otherwise | 0 |",
        "| p50 / p99 / slowest | 2.0 ms / 3.0 ms / 3.0 ms |",
        "| memory at the start / after a third / at the end | 30.0 / 30.0 / 30.0 MiB |",
        "| energy drawn | 1,234.567 J |",
        "| joules lost | 0 |",
        "| wrong owners | 0, 0 J |",
        "| restarts | 3: SIGTERM 3 |",
        "| connections of hostile clients, answers of the hostile upstream | 40: send garbage 40 |",
    ):
        assert row in page


def test_nothing_has_grown_within_the_limit() -> None:
    end = replace(STEADY, resident_bytes=STEADY.resident_bytes + GROWTH_BYTES)
    assert list(grown(replace(FIGURES, usages=(STEADY, STEADY, end)))) == []


def test_memory_threads_and_descriptors_that_grow_are_failures() -> None:
    end = Usage(33 * MIB, 13, 21)
    assert list(grown(replace(FIGURES, usages=(STEADY, STEADY, end)))) == [
        "memory grew from 30.0 to 33.0 MiB",
        "threads grew from 12 to 13",
        "descriptors grew from 20 to 21",
    ]
