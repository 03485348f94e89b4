"""The machine of a run."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachineFacts:
    cores: int
    cpu: str
    memory_bytes: int
    kernel: str
    python: str
    load: float


def this_machine() -> MachineFacts:
    return MachineFacts(
        cores=os.cpu_count() or 1,
        cpu=parse_cpu_model(Path("/proc/cpuinfo").read_text()),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release(),
        python=platform.python_version(),
        load=os.getloadavg()[0],
    )


def parse_cpu_model(cpuinfo: str) -> str:
    """The model's name in /proc/cpuinfo, which only x86 has."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()
