"""The cost of the ledger: a window of one second, with many owners on every GPU."""

import gc
import time
from statistics import median

from gputally.ledger import Ledger
from gputally.model import Gpu, Owner, Process, ProcessSample, Reading, Resident

GPUS = 8
PROCESSES = 200
_PROCESSES_OF_A_POD = 3
_WATTS = 300
_SECOND_US = 1_000_000
_UNEVEN = 7
"""Unequal activities: equal ones would leave no remainder to apportion."""


def measure_window(windows: int = 300) -> float:
    """CPU seconds to settle one window: the median."""
    ledger = Ledger(retention_seconds=300, max_window_seconds=60)
    spent = []
    gc.collect()
    gc.freeze()  # as the exporter does
    for second in range(windows):
        readings, residents = _look(second)
        started = time.process_time()
        ledger.settle(
            at_us=second * _SECOND_US,
            now_seconds=float(second),
            readings=readings,
            residents=residents,
            holders=(),
        )
        spent.append(time.process_time() - started)
    gc.unfreeze()
    return median(spent)


def _look(second: int) -> tuple[list[Reading], list[Resident]]:
    readings, residents = [], []
    for index in range(GPUS):
        gpu = Gpu(f"GPU-{index}", index, "nvidia", "H100")
        processes = tuple(
            Process(1000 + index * PROCESSES + number, "compute", "python3", 2**30)
            for number in range(PROCESSES // GPUS)
        )
        readings.append(
            Reading(
                gpu=gpu,
                power_watts=float(_WATTS),
                energy_millijoules=second * _WATTS * 1000,
                processes=processes,
                process_samples=(),
            )
        )
        for process in processes:
            owner = Owner("pod", namespace="team", pod=f"pod-{process.pid // _PROCESSES_OF_A_POD}")
            busy = (process.pid + second) % _UNEVEN / 100
            sample = ProcessSample(process.pid, second * _SECOND_US, busy, 0.0, 0.0, 0.0, _SECOND_US)
            residents.append(Resident(index, gpu.uuid, process, owner, (sample,), 77.0))
    return readings, residents
