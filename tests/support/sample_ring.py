"""The samples of a GPU as NVIDIA's driver keeps and returns them.

Sources: ctrl2080perf.h of open-gpu-kernel-modules 595 (a ring of 72, each sample of the one process that was
active); Syllo/nvtop#110 (means with a common denominator, 167 ms between samples).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gputally.devices.nvml.process_samples import Entry

PERIOD_US = 167_130
KEPT = 72


class Taken(NamedTuple):
    """One sample: the active process and its percentages; pid 0 while no process was active."""

    pid: int = 0
    sm: int = 0
    memory: int = 0


IDLE = Taken()


class Ring:
    """What the driver knows of a history that began at `started_us`, one sample after the other."""

    def __init__(self, history: Sequence[Taken], started_us: int) -> None:
        self._samples = [(started_us + (place + 1) * PERIOD_US, one) for place, one in enumerate(history)]

    def lines(self, until_us: int) -> str:
        """The samples up to this time, as lines of a scenario of the driver stand-in."""
        return "".join(
            f"sample {one.pid} {stamp} {one.sm} {one.memory} 0 0\n" if one.pid else f"sample - {stamp}\n"
            for stamp, one in self._samples
            if stamp <= until_us
        )

    def between(self, since_us: int, until_us: int) -> list[tuple[int, Taken]]:
        """The samples that the driver still has at `until_us`, newer than `since_us`."""
        kept = [(stamp, one) for stamp, one in self._samples if stamp <= until_us][-KEPT:]
        return [(stamp, one) for stamp, one in kept if stamp > since_us]

    def every_sample(self, since_us: int, until_us: int) -> list[Entry]:
        return [
            Entry(one.pid, stamp, one.sm, one.memory, 0, 0)
            for stamp, one in self.between(since_us, until_us)
            if one.pid
        ]

    def means(self, since_us: int, until_us: int) -> list[Entry]:
        samples = self.between(since_us, until_us)
        sm: Counter[int] = Counter()
        memory: Counter[int] = Counter()
        for _, one in samples:
            sm[one.pid] += one.sm
            memory[one.pid] += one.memory
        last = {one.pid: stamp for stamp, one in samples if one.pid}
        count = len(samples)
        return [
            Entry(pid, stamp, round(sm[pid] / count), round(memory[pid] / count), 0, 0)
            for pid, stamp in last.items()
            if sm[pid] or memory[pid]
        ]
