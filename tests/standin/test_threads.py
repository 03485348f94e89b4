"""Many threads at once, while the world changes under them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.standin.real_pynvml import nvml

WORLD = (
    "frame 0\ngpu 0\nuuid GPU-0\npower.usage {0}\nenergy {0}\nprocesses {0}\n{processes}"
    "gpu 1\nuuid GPU-1\npower.usage {0}\n"
)


def world(number: int) -> str:
    processes = "".join(f"process {pid} compute {pid} - - p{pid}\n" for pid in range(1, number + 1))
    return WORLD.format(number, processes=processes)


def test_every_answer_is_of_one_world_or_the_other(play: Callable[[str], Path]) -> None:
    play(world(30))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    deadline = time.monotonic() + 1

    def look(_: int) -> set[tuple[int, ...]]:
        seen: set[tuple[int, ...]] = set()
        while time.monotonic() < deadline:
            seen.add((nvml.nvmlDeviceGetPowerUsage(handle),))
            seen.add(tuple(p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)))
        return seen

    with ThreadPoolExecutor(4) as pool:
        looks = pool.map(look, range(4))
        while time.monotonic() < deadline:
            for number in (40, 30):
                play(world(number))
                time.sleep(0.01)
        seen = {answer for answers in looks for answer in answers}
    assert seen == {(30,), (40,), tuple(range(1, 31)), tuple(range(1, 41))}
