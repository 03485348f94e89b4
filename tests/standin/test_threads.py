"""Many threads at once, while the scenario changes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.standin.real_pynvml import nvml
from tools.servers.waiting import wait_until

WORLD = (
    "frame 0\ngpu 0\nuuid GPU-0\npower.usage {0}\nenergy {0}\nprocesses {0}\n{processes}"
    "gpu 1\nuuid GPU-1\npower.usage {0}\n"
)

ROUNDS = 30


def world(number: int) -> str:
    processes = "".join(f"process {pid} compute {pid} - - p{pid}\n" for pid in range(1, number + 1))
    return WORLD.format(number, processes=processes)


def test_every_result_is_of_one_scenario_or_the_other(play: Callable[[str], Path]) -> None:
    play(world(30))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    stop = threading.Event()
    seen: set[tuple[int, ...]] = set()

    def look() -> None:
        while not stop.is_set():
            seen.add((nvml.nvmlDeviceGetPowerUsage(handle),))
            seen.add(tuple(p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)))

    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(look) for _ in range(4)]
        try:
            for number in (40, 30) * ROUNDS:
                play(world(number))
                wait_until(lambda n=number: nvml.nvmlDeviceGetPowerUsage(handle) == n)  # type: ignore[misc]
            wait_until(lambda: len(seen) >= 4)
        finally:
            stop.set()
        for one in looks:
            one.result()
    assert seen == {(30,), (40,), tuple(range(1, 31)), tuple(range(1, 41))}
