"""From the busy time of a GPU and the use by each process to the samples of the processes.

- The time of a client of the DRM driver on each engine is in `fdinfo`: counters in nanoseconds, which miss
  nothing between two samples. They are preferred where they exist: graphics, video, Vulkan and OpenGL.
- Work in KFD's queues (HIP) is in no counter of a process. All of it together is the GPU's busy time without
  the clients' time on the gfx and compute engines. A single process with queues ran for that time; among
  several it is divided by their `cu_occupancy`, else by their memory, else equally: an estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gputally.model import ProcessSample

GROUPS = ("sm", "encoder", "decoder")
"""Groups of engines, each with a ratio in a `ProcessSample`."""


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """The use of a GPU or partition by its processes since the last sample."""

    timestamp_us: int
    covers_us: int
    engines: Mapping[int, Mapping[str, float]]
    """By pid and group of engines, the share of time of its clients; of no group more than 1 in all."""
    queue_shares: Mapping[int, float]
    """By pid of a process with queues, its part of the work in all queues."""

    def samples(self, busy_ratio: float | None) -> tuple[ProcessSample, ...] | None:
        """The samples, if the GPU or partition was busy for this share of the time; None if it is unknown."""
        if self.queue_shares and busy_ratio is None:
            return None
        in_queues = max(0.0, (busy_ratio or 0.0) - sum(ran["sm"] for ran in self.engines.values()))
        return tuple(
            ProcessSample(
                pid=pid,
                timestamp_us=self.timestamp_us,
                sm_ratio=min(1.0, ran["sm"] + in_queues * self.queue_shares.get(pid, 0.0)),
                memory_ratio=None,
                encoder_ratio=ran["encoder"],
                decoder_ratio=ran["decoder"],
                covers_us=self.covers_us,
            )
            for pid, ran in sorted(self.engines.items())
        )


def divide(*keys: Mapping[int, int]) -> dict[int, float]:
    """Each one's part by the first key that is not 0 for all."""
    for weights in keys:
        total = sum(weights.values())
        if total:
            return {pid: weight / total for pid, weight in weights.items()}
    return {}
