import json
import sys
from array import array
from itertools import chain
from typing import Any

import pytest

from gputally.model import Gpu, Reading
from gputally.pages.history import FIELDS, History, _GpuRing

BEGAN = 1_000_000.0  # seconds since boot
TAKEN = 1_800_000_000.0


def reading(index: int = 0, busy: float | None = 0.5, **more: float | None) -> Reading:
    gpu = Gpu(f"GPU-{index}", index, "nvidia", "H100")
    return Reading(gpu=gpu, gpu_utilization_ratio=busy, **more)  # type: ignore[arg-type]


def add(history: History, seconds: float, *readings: Reading) -> None:
    history.add(readings, TAKEN + seconds, BEGAN + seconds)


def document(history: History) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(history.json())
    return found


def series(history: History, name: str = "utilization_ratio", index: int = 0) -> list[float | None]:
    (gpu,) = [one for one in document(history)["gpus"] if one["index"] == index]
    found: list[float | None] = gpu[name]
    return found


def test_a_step_is_the_mean_of_the_snapshots_in_it() -> None:
    history = History(5)
    add(history, 0, reading(busy=0.2))
    add(history, 5, reading(busy=0.4))
    add(history, 10, reading(busy=1.0))
    assert series(history) == [0.3, 1.0]
    assert document(history)["step_seconds"] == 10


def test_the_end_of_the_last_step_is_in_the_time_of_day() -> None:
    history = History(5)
    add(history, 3, reading())
    assert document(history)["until_seconds"] == TAKEN + 10
    add(history, 12, reading())
    assert document(history)["until_seconds"] == TAKEN + 20


def test_nothing_was_measured_is_none_and_zero_is_zero() -> None:
    history = History(5)
    add(history, 0, reading(busy=None, power_watts=0.0))
    assert series(history) == [None]
    assert series(history, "power_watts") == [0.0]
    assert series(history, "memory_used_ratio") == [None]


def test_steps_without_a_snapshot_are_none() -> None:
    history = History(5)
    add(history, 0, reading())
    add(history, 40, reading())
    assert series(history) == [0.5, None, None, None, 0.5]


def test_a_lost_gpu_has_no_values_and_a_new_one_none_before() -> None:
    history = History(5)
    add(history, 0, reading(0))
    add(history, 10, reading(0).lost(), reading(1))
    assert series(history, index=0) == [0.5, None]
    assert series(history, index=1) == [None, 0.5]


def test_it_is_an_hour_long_and_forgets_what_is_older() -> None:
    history = History(5)
    for step in range(400):
        add(history, 10 * step, reading(busy=step / 1000))
    found = series(history)
    assert len(found) == 360
    assert (found[0], found[-1]) == (0.04, 0.399)


def test_after_a_pause_of_hours_the_old_values_are_gone() -> None:
    history = History(5)
    for step in range(360):
        add(history, 10 * step, reading(busy=1.0))
    add(history, 40_000, reading(busy=0.5))
    assert series(history) == [None] * 359 + [0.5]


def test_a_gpu_that_is_gone_for_an_hour_is_forgotten() -> None:
    history = History(5)
    add(history, 0, reading(0), reading(1))
    add(history, 3600, reading(0))
    assert [gpu["index"] for gpu in document(history)["gpus"]] == [0]


def test_a_long_interval_has_a_snapshot_in_each_step() -> None:
    history = History(60)
    for minute in range(3):
        add(history, 60 * minute, reading())
    assert document(history)["step_seconds"] == 60
    assert series(history) == [0.5] * 3


@pytest.mark.parametrize("gpus", [1, 16, 300])
def test_all_lists_have_one_length_and_the_number_of_gpus_is_bounded(gpus: int) -> None:
    history = History(5)
    for step in range(3):
        add(history, 10 * step, *(reading(index) for index in range(gpus)))
    found = document(history)["gpus"]
    assert len(found) == min(gpus, 256)
    assert {len(gpu[name]) for gpu in found for name in FIELDS} == {3}


def test_sixteen_gpus_need_less_than_a_mebibyte() -> None:
    def held(ring: _GpuRing) -> int:
        values: tuple[array[float], ...] = ring._values
        return sum(map(sys.getsizeof, chain(values, (ring._sums, ring._counts, ring))))

    history = History(5)
    add(history, 0, *(reading(index) for index in range(16)))
    assert sum(held(ring) for ring in history._gpus.values()) < 128 * 1024
