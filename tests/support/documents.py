"""What the exporter of a simulated node responds at /api/v1/snapshot and /api/v1/history, at a fixed time."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from gputally.ledger import Ledger
from gputally.pages.document import About, build_document
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import GpuFault, GpuFaultKind, Scenario
from gputally.simulator.schedule import Span
from tools.replay.fleet import Clock, GpuNode, collector_of, telling_time

NOW = 1_800_000_000.0
STEP_SECONDS = 20
_STEPS = 30
_STORY_SECONDS = 3600
"""Workloads have loaded their data by then."""
Document = dict[str, Any]


@lru_cache
def responses(gpus: int, model: str = "h100", hostname: str = "gpu-node-1") -> dict[str, Document]:
    """Path -> document, after ten minutes of sampling."""
    return _play(default_scenario(gpus, model, seed=1), hostname)


@lru_cache
def with_lost_gpu(gpus: int = 2) -> dict[str, Document]:
    scenario = default_scenario(gpus, "h100", seed=1)
    fault = GpuFault(kind=GpuFaultKind.LOST, gpus=(gpus - 1,), span=Span(_STORY_SECONDS + 300))
    return _play(replace(scenario, faults=(fault,)), "gpu-node-1")


def _play(scenario: Scenario, hostname: str) -> dict[str, Document]:
    clock = Clock(NOW - _STEPS * STEP_SECONDS)
    with telling_time(clock):
        ledger = Ledger(retention_seconds=300, max_window_seconds=60, process_accounts=False, boot_id="")
        node = GpuNode(name=hostname, scenario=scenario)
        collector = collector_of(node, ledger, clock, clock.now - _STORY_SECONDS)
        snapshots = [collector.sample()]
        for _ in range(_STEPS):
            clock.now += STEP_SECONDS
            snapshots.append(collector.sample())
        collector.close(1)
    about = About(version="0.2.0", hostname=hostname, interval_seconds=STEP_SECONDS)
    newest = build_document(snapshots[-1], snapshots[-2], about)
    history = {
        "version": 1,
        "step_seconds": STEP_SECONDS,
        "until_seconds": NOW,
        "gpus": [
            {
                "index": reading.gpu.index,
                "uuid": reading.gpu.uuid,
                "utilization_ratio": [one.readings[at].gpu_utilization_ratio for one in snapshots],
                "power_watts": [one.readings[at].power_watts for one in snapshots],
            }
            for at, reading in enumerate(snapshots[-1].readings)
        ],
    }
    return {"/api/v1/snapshot": newest, "/api/v1/history": history}
