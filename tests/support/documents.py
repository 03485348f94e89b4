"""Simulated nodes as their exporters describe them."""

from dataclasses import replace
from functools import lru_cache

from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import GpuFault, GpuFaultKind
from gputally.simulator.schedule import Span
from tools.replay import documents
from tools.replay.documents import STORY_SECONDS, Document


@lru_cache
def responses(gpus: int, model: str = "h100", hostname: str = "gpu-node-1") -> dict[str, Document]:
    """Path -> document."""
    return documents.responses(default_scenario(gpus, model, seed=1), hostname)


@lru_cache
def with_lost_gpu(gpus: int = 2) -> dict[str, Document]:
    """The last of the GPUs is lost."""
    scenario = default_scenario(gpus, "h100", seed=1)
    fault = GpuFault(kind=GpuFaultKind.LOST, gpus=(gpus - 1,), span=Span(STORY_SECONDS + 300))
    return documents.responses(replace(scenario, faults=(fault,)), "gpu-node-1")
