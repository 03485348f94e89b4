"""What the exporter of a simulated node responds at /api/v1/snapshot and /api/v1/history, at a fixed time."""

from typing import Any

from gputally import __version__
from gputally.ledger import Ledger
from gputally.pages.document import About, build_document
from gputally.simulator.scenario import Scenario
from tools.replay.fleet import Clock, GpuNode, collector_of, telling_time

NOW = 1_800_000_000.0
STEP_SECONDS = 20
STORY_SECONDS = 3600
"""The scenario began so long before the first sample: its workloads have loaded their data."""
_STEPS = 30
Document = dict[str, Any]


def responses(scenario: Scenario, hostname: str) -> dict[str, Document]:
    """Path -> document, after ten minutes of sampling up to NOW."""
    clock = Clock(NOW - _STEPS * STEP_SECONDS)
    with telling_time(clock):
        ledger = Ledger(retention_seconds=300, max_window_seconds=60, process_accounts=False, boot_id="")
        node = GpuNode(name=hostname, scenario=scenario)
        collector = collector_of(node, ledger, clock, clock.now - STORY_SECONDS)
        snapshots = [collector.sample()]
        for _ in range(_STEPS):
            clock.now += STEP_SECONDS
            snapshots.append(collector.sample())
        collector.close(1)
    about = About(version=__version__, hostname=hostname, interval_seconds=STEP_SECONDS)
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
    newest = build_document(snapshots[-1], snapshots[-2], about)
    return {"/api/v1/snapshot": newest, "/api/v1/history": history}
