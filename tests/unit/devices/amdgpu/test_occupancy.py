"""The sampler of occupancy: when it runs, that it ends, and that the reader does not wait for it."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from gputally.devices import Errors
from gputally.devices.amdgpu import occupancy as occupancy_module
from gputally.devices.amdgpu.occupancy import CardOccupancy, OccupancySampler, counts_every_die
from tools.servers.waiting import wait_until

CARD, OTHER = "ffff:c1:00.0", "ffff:c2:00.0"  # on no host of another test


@pytest.mark.parametrize(
    ("gfx_version", "driver_version", "sound"),
    [
        (90402, "6.11.0-29-generic", False),
        (90402, "6.10.5", False),
        (90400, "5.14.0-503.el9.x86_64", False),
        (90402, None, False),
        (90402, "6.12.12", True),
        (90402, "6.12.0-55.el10", True),
        (90402, "7.1.0-rc4", True),
        (90010, "6.8.5", True),
        (90010, None, True),
        (90500, "6.14.14", True),
        (0, "5.10.0", True),
    ],
)
def test_mi300_is_counted_whole_since_linux_6_12(
    gfx_version: int, driver_version: str | None, sound: bool
) -> None:
    assert counts_every_die(gfx_version, driver_version) is sound


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("occupancy-ffff")}


def occupancy(directory: Path, units: int) -> tuple[str, ...]:
    directory.mkdir(exist_ok=True)
    (directory / "cu_occupancy").write_text(f"{units}\n")
    return (str(directory),)


def test_a_thread_per_gpu_samples_while_there_is_something_to_watch(tmp_path: Path) -> None:
    sampler, errors = OccupancySampler(), Counter[tuple[str, str]]()
    sums = Counter[tuple[int, int]]()
    watched = {
        CARD: {(1, 10): occupancy(tmp_path / "a", 30), (1, 11): occupancy(tmp_path / "b", 10)},
        OTHER: {(2, 10): occupancy(tmp_path / "c", 5)},
    }

    def sampled_twice() -> bool:
        for gpu_id, units in sampler.take(errors).items():
            sums.update({(gpu_id, pid): count for pid, count in units.items()})
        return sums[1, 11] >= 20 and sums[2, 10] >= 10

    assert threads() == set()
    sampler.watch(watched)
    sampler.watch(watched)
    wait_until(sampled_twice, "two samples of each")
    assert sums[1, 10] == 3 * sums[1, 11]
    assert threads() == {f"occupancy-{CARD}", f"occupancy-{OTHER}"}
    sampler.watch({OTHER: watched[OTHER]})
    wait_until(lambda: threads() == {f"occupancy-{OTHER}"}, "the thread of the first ends")
    sampler.watch(watched)
    wait_until(lambda: len(threads()) == 2, "and is there again")
    sampler.close()
    wait_until(lambda: not threads(), "all threads end")
    assert not errors


def test_a_gpu_that_hangs_delays_no_other(tmp_path: Path) -> None:
    release, started = threading.Event(), Counter[str]()

    def start(card: CardOccupancy) -> None:
        started[card.pci_address] += 1

        def run() -> None:
            if card.pci_address == CARD:
                release.wait()
            card.run()

        threading.Thread(target=run, daemon=True).start()

    sampler, errors = OccupancySampler(start), Counter[tuple[str, str]]()
    watched = {
        CARD: {(1, 10): occupancy(tmp_path / "a", 30)},
        OTHER: {(2, 10): occupancy(tmp_path / "b", 5)},
    }
    sampler.watch(watched)
    wait_until(lambda: sampler.take(errors).get(2), "the other GPU is sampled")
    sampler.watch(watched)
    assert started == {CARD: 1, OTHER: 1}, "no second thread for the GPU that hangs"
    release.set()
    sampler.close()


def test_a_card_whose_sums_are_not_taken_is_not_sampled_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occupancy_module, "_MOST_SAMPLES", 3)
    monkeypatch.setattr(occupancy_module, "_PERIOD_SECONDS", 0.0)
    card, watched = CardOccupancy(CARD), {(1, 10): occupancy(tmp_path / "a", 1)}
    assert card.watch(watched)
    card.run()
    assert dict(card.take()[0]) == {(1, 10): 3}
    assert card.watch(watched), "it starts again with the next sample of the reader"


def test_files_that_are_gone_are_no_error_and_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "cu_occupancy").mkdir()
    card = CardOccupancy(CARD)
    card.watch({(1, 10): (str(tmp_path),), (1, 11): ("/nowhere",), (1, 12): occupancy(tmp_path / "c", 7)})
    card.sample()
    sums, errors = card.take()
    assert dict(sums) == {(1, 12): 7}
    assert errors == {("cu_occupancy", "eisdir"): 1}
    assert card.take() == ({}, {})


def test_contexts_of_one_process_are_added_up(tmp_path: Path) -> None:
    card = CardOccupancy(CARD)
    card.watch({(1, 10): (*occupancy(tmp_path / "a", 3), *occupancy(tmp_path / "b", 4))})
    card.sample()
    card.sample()
    no_errors: Errors = Counter()
    assert card.take() == ({(1, 10): 14}, no_errors)
