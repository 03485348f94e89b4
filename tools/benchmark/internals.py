"""The costs of rendering and of the ledger, measured in this process."""

import gc
import time
from dataclasses import replace
from random import Random
from statistics import median

from gputally.app import main_families
from gputally.config import Config
from gputally.ledger import Ledger
from gputally.metrics.compat import PROFILES
from gputally.metrics.exposition import LabelBlocks, render_text
from gputally.model import (
    BASES,
    Charge,
    Gpu,
    Owner,
    PodInfo,
    Process,
    ProcessCharge,
    ProcessSample,
    Reading,
    Resident,
    Snapshot,
    Use,
)
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine

GPUS = 8
RENDERED_PROCESSES = 64
INTERVAL_SECONDS = 5.0
LEDGER_PROCESSES = 200
_PROCESSES_OF_A_POD = 3
_WATTS = 300
_SECOND_US = 1_000_000
_UNEVEN = 7
"""Unequal activities: equal ones would leave no remainder to apportion."""


def measure_rendering(times: int = 60) -> float:
    """CPU seconds to render one snapshot: the median."""
    families_of = main_families(Config(compat=tuple(PROFILES), process_metrics=True))
    snapshots = [_crowded(600.0 + INTERVAL_SECONDS * number) for number in range(times)]
    blocks, spent = LabelBlocks(), []
    gc.freeze()  # as the exporter does
    for snapshot in snapshots:
        blocks.next_snapshot()
        started = time.process_time()
        render_text(families_of(snapshot), blocks)
        spent.append(time.process_time() - started)
    gc.unfreeze()
    return median(spent)


def _crowded(at_seconds: float = 600.0) -> Snapshot:
    """Pods with one process each, the same number on every GPU; no two pods and no two moments have the same
    values.
    """
    engine = Engine(default_scenario(GPUS, "h100", 0))
    readings = engine.readings(at_seconds, since=at_seconds - INTERVAL_SECONDS)
    residents = [(reading, number) for reading in readings for number in range(RENDERED_PROCESSES // GPUS)]
    random = Random(at_seconds)
    return Snapshot(
        taken_at_seconds=at_seconds,
        age_seconds=0.0,
        readings=tuple(replace(reading, processes=()) for reading in readings),
        sources=(),
        uses=tuple(
            Use(
                gpu_index=reading.gpu.index,
                uuid=reading.gpu.uuid,
                owner=_owner(reading, number),
                processes=1,
                memory_used_bytes=random.randrange(2**30),
                sm_ratio=random.randrange(1001) / 1000,
                memory_ratio=random.randrange(101) / 100,
                encoder_ratio=0.0,
                decoder_ratio=0.0,
            )
            for reading, number in residents
        ),
        charges=tuple(
            Charge(
                gpu_index=reading.gpu.index,
                uuid=reading.gpu.uuid,
                owner=_owner(reading, number),
                active=True,
                energy_millijoules={(basis,): random.randrange(2**32) for basis in BASES},
                busy_microseconds=random.randrange(2**32),
            )
            for reading, number in residents
        ),
        processes=tuple(
            ProcessCharge(
                gpu_index=reading.gpu.index,
                uuid=reading.gpu.uuid,
                pid=1000 + RENDERED_PROCESSES * reading.gpu.index + number,
                name="python3",
                owner=_owner(reading, number),
                active=True,
                started_at_seconds=RENDERED_PROCESSES * reading.gpu.index + number + 0.25,
                memory_used_bytes=random.randrange(2**30),
                sm_ratio=random.randrange(1001) / 1000,
                energy_millijoules=random.randrange(2**32),
            )
            for reading, number in residents
        ),
        pods=tuple(PodInfo("team", _owner(reading, number).pod) for reading, number in residents),
    )


def _owner(reading: Reading, number: int) -> Owner:
    return Owner("pod", namespace="team", pod=f"job-{reading.gpu.index}-{number}", container="main")


def measure_window(windows: int = 300) -> float:
    """CPU seconds to settle one window: the median."""
    ledger = Ledger(retention_seconds=300, max_window_seconds=60)
    spent = []
    gc.collect()
    gc.freeze()  # as the exporter does
    for second in range(windows):
        readings, residents = _sample(second)
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


def _sample(second: int) -> tuple[list[Reading], list[Resident]]:
    readings, residents = [], []
    for index in range(GPUS):
        gpu = Gpu(f"GPU-{index}", index, "nvidia", "H100")
        processes = tuple(
            Process(1000 + index * LEDGER_PROCESSES + number, "compute", "python3", 2**30)
            for number in range(LEDGER_PROCESSES // GPUS)
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
