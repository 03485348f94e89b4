"""The table of docs/energy.md: the ways of sharing energy out, against what the simulator knows."""

import pytest

from tools.rendering import accuracy
from tools.rendering.accuracy import MIXES, Outcome, play

GPUTALLY = [f"GPUTally, {seconds} s" for seconds in accuracy.WINDOWS_SECONDS]
EQUAL, DCGM = "equal parts", "all to each (DCGM)"
SHORT = 300


@pytest.mark.parametrize("mix", MIXES)
def test_gputally_charges_exactly_what_the_gpu_used_and_dcgm_a_multiple(mix: str) -> None:
    outcome = play(MIXES[mix], SHORT)
    total = sum(outcome.true.values())
    for way in GPUTALLY:
        assert sum(outcome.charged[way].values()) == total
        assert outcome.total_error(way) < outcome.total_error(DCGM)
    assert sum(outcome.charged[EQUAL].values()) == pytest.approx(total, abs=len(MIXES[mix]))
    assert sum(outcome.charged[DCGM].values()) == len(MIXES[mix]) * total


def test_equal_owners_get_equal_shares() -> None:
    outcome = play(MIXES["equal"], SHORT)
    assert all(outcome.total_error(way) < 0.01 for way in GPUTALLY)


def test_sm_time_does_not_distinguish_power() -> None:
    outcome = play(MIXES["compute and memory"], SHORT)
    for way in GPUTALLY:
        assert outcome.error(way, "memory bound") > 0.2
        assert outcome.error(way, "compute bound") < -0.1


def test_an_owner_with_less_work_is_charged_less() -> None:
    outcome = play(MIXES["80 / 20"], SHORT)
    for way in GPUTALLY:
        assert outcome.charged[way]["small"] < outcome.charged[way]["large"] / 3
        assert outcome.total_error(way) < outcome.total_error(EQUAL) / 4


def test_errors_are_ratios_of_the_true_energy() -> None:
    outcome = Outcome({"a": 100, "b": 300}, {"way": {"a": 150, "b": 250}})
    assert outcome.error("way", "a") == 0.5
    assert outcome.error("way", "b") == pytest.approx(-1 / 6)
    assert outcome.total_error("way") == 0.25


def test_the_table_has_every_owner_and_is_deterministic() -> None:
    text = accuracy.table(60)
    assert text == accuracy.table(60)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert rows[0] == ["mix", "owner", "true energy", *GPUTALLY, EQUAL, DCGM]
    assert {len(row) for row in rows} == {8}
    owners = [(mix, guest.name) for mix, guests in MIXES.items() for guest in guests]
    assert [(row[0], row[1]) for row in rows[2:] if row[1] != "**all**"] == owners
    assert [row[0] for row in rows if row[1] == "**all**"] == list(MIXES)
    assert "-0.0%" not in text
