"""The table of docs/energy.md: the ways of dividing energy, against what the simulator knows."""

import pytest

from tools.rendering import accuracy
from tools.rendering.accuracy import DCGM, EQUAL, GPUTALLY, MIXES, SM_TIME, WAYS, MixResult, play

SHORT = 600
ALIKE = ["80 / 20, alike", "bursty beside steady", "time slices of 8 tenants", "MIG"]
MEMORY_BOUND = "compute bound jobs beside a memory bound service, in turns of seconds"
KNOWN_WORSE = "the same at 2 : 1"
"""Of SM time alone, two errors cancel in part: who waits for memory is charged too much for its work and, as
the smaller one, too little of the idle power. Nothing that a driver reports tells their work apart."""


@pytest.mark.parametrize("mix", MIXES)
def test_over_an_hour_gputally_is_exact_in_sum_and_no_worse_than_sm_time_alone(mix: str) -> None:
    outcome = play(MIXES[mix])
    total = sum(outcome.true.values())
    assert sum(outcome.charged[GPUTALLY].values()) == pytest.approx(total, rel=0.002)
    error = outcome.total_error(GPUTALLY)
    assert error <= outcome.total_error(SM_TIME) or mix == KNOWN_WORSE
    assert error <= outcome.total_error(DCGM)
    if mix in ALIKE:
        assert error <= 0.03
    if mix == MEMORY_BOUND:
        assert error <= 0.15


def test_the_mixes_that_are_meant_to_be_there_are_there() -> None:
    assert set(ALIKE) | {MEMORY_BOUND, KNOWN_WORSE, "MPS"} <= MIXES.keys()


def test_an_owner_with_less_work_is_charged_less() -> None:
    outcome = play(MIXES["80 / 20, alike"], SHORT)
    assert outcome.charged[GPUTALLY]["small"] < outcome.charged[GPUTALLY]["large"] / 2
    assert outcome.total_error(GPUTALLY) < outcome.total_error(EQUAL) / 4


def test_nothing_that_the_driver_reports_tells_kernels_in_one_time_slice_apart() -> None:
    outcome = play(MIXES["the same in time slices"], SHORT)
    assert outcome.error(GPUTALLY, "memory bound") > 0.1
    assert outcome.error(GPUTALLY, "compute bound") < -0.1


def test_errors_are_ratios_of_the_true_energy() -> None:
    outcome = MixResult({"a": 100, "b": 300}, {"way": {"a": 150, "b": 250}})
    assert outcome.error("way", "a") == 0.5
    assert outcome.error("way", "b") == pytest.approx(-1 / 6)
    assert outcome.total_error("way") == 0.25


def test_the_table_has_every_mix_and_owner_and_is_the_same_each_time() -> None:
    text = accuracy.table(60)
    assert text == accuracy.table(60)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert rows[0] == ["mix", *WAYS, "GPUTally, by owner"]
    assert {len(row) for row in rows} == {len(WAYS) + 2}
    assert [row[0] for row in rows[2:]] == list(MIXES)
    for row, mix in zip(rows[2:], MIXES.values(), strict=True):
        assert all(guest.name in row[-1] for guest in mix.guests)
    assert "-0.0%" not in text
