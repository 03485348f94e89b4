"""What the ledger costs: one window of a second, with many owners on every GPU."""

import time
from statistics import median

from gputally.ledger import Ledger
from gputally.model import Gpu, Owner, Process, ProcessSample, Reading, Resident

GPUS = 8
PROCESSES = 200
_PROCESSES_OF_A_POD = 3
_WATTS = 300
_SECOND_US = 1_000_000


def measure_window(windows: int = 300) -> float:
    """Seconds of CPU to settle one window: the middle of so many."""
    ledger = Ledger(retention_seconds=300, max_window_seconds=60)
    spent = []
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
            sample = ProcessSample(process.pid, second * _SECOND_US, 0.04, 0.0, 0.0, 0.0, _SECOND_US)
            residents.append(Resident(index, gpu.uuid, process, owner, (sample,), 77.0))
    return readings, residents
