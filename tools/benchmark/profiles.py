"""What other tools' names cost: all profiles of --compat at once, on a node full of pods."""

import gc
import time
from dataclasses import replace
from statistics import median

from gputally.config import Config
from gputally.devices.simulated.default_scenario import default_scenario
from gputally.devices.simulated.engine import Engine
from gputally.metrics.compat import PROFILES
from gputally.metrics.exposition import LabelBlocks, render_text
from gputally.model import BASES, Charge, Owner, PodOnGpu, ProcessCharge, Reading, Snapshot, Use
from gputally.scrapes import main_families

GPUS = 8
PROCESSES = 64


def measure_rendering(times: int = 60) -> float:
    """Seconds of CPU to make the text of one snapshot: the middle of so many."""
    families_of = main_families(Config(compat=tuple(PROFILES), process_metrics=True))
    snapshot, blocks, spent = _crowded(), LabelBlocks(), []
    gc.freeze()  # as the exporter does
    for _ in range(times):
        blocks.next_snapshot()
        started = time.process_time()
        render_text(families_of(snapshot), blocks)
        spent.append(time.process_time() - started)
    gc.unfreeze()
    return median(spent)


def _crowded() -> Snapshot:
    """A pod with one process each, as many on every GPU."""
    readings = Engine(default_scenario(GPUS, "h100", 0)).readings(600.0, since=595.0)
    residents = [(reading, number) for reading in readings for number in range(PROCESSES // GPUS)]
    return Snapshot(
        taken_at_seconds=0.0,
        age_seconds=0.0,
        readings=tuple(replace(reading, processes=()) for reading in readings),
        sources=(),
        uses=tuple(
            Use(reading.gpu.index, reading.gpu.uuid, _owner(reading, number), 1, 2**30, 0.1, 0.1, 0.0, 0.0)
            for reading, number in residents
        ),
        charges=tuple(
            Charge(
                gpu_index=reading.gpu.index,
                uuid=reading.gpu.uuid,
                owner=_owner(reading, number),
                active=True,
                energy_millijoules={(basis,): 1000 for basis in BASES},
                busy_microseconds=1,
            )
            for reading, number in residents
        ),
        processes=tuple(
            ProcessCharge(
                gpu_index=reading.gpu.index,
                uuid=reading.gpu.uuid,
                pid=1000 + PROCESSES * reading.gpu.index + number,
                name="python3",
                owner=_owner(reading, number),
                active=True,
                started_at_seconds=1.0,
                memory_used_bytes=2**30,
                sm_ratio=0.1,
                energy_millijoules=1000,
            )
            for reading, number in residents
        ),
        pods=tuple(PodOnGpu("team", _owner(reading, number).pod) for reading, number in residents),
    )


def _owner(reading: Reading, number: int) -> Owner:
    return Owner("pod", namespace="team", pod=f"job-{reading.gpu.index}-{number}", container="main")
