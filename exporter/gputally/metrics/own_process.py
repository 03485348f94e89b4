"""Version and resource use of the exporter, and the start of its machine, from /proc/self (https://docs.kernel.org/filesystems/proc.html)."""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from gputally.declarations import LABEL, STANDARD, counter, gauge

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SELF = Path("/proc/self")
_STARTED_SECONDS = time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine on which the exporter runs."""

    boot_time_seconds: float | None = gauge("Unix time at which the machine was booted.", set=STANDARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterFacts:
    """The exporter's own version and resource use."""

    version: str = field(metadata=LABEL)
    python: str = field(metadata=LABEL)
    hostname: str = field(metadata=LABEL)
    cpu_seconds: float | None = counter("CPU time of the exporter, user and system.", set=STANDARD)
    resident_memory_bytes: int | None = gauge("Resident memory of the exporter.", set=STANDARD)
    open_fds: int | None = gauge("Open file descriptors of the exporter.", set=STANDARD)
    start_time_seconds: float | None = gauge("Unix time at which the exporter started.", set=STANDARD)
    machine: MachineFacts = MachineFacts()


def read_exporter_facts(version: str, hostname: str, booted_at: float | None = None) -> ExporterFacts:
    """`booted_at` replaces the boot of this machine, for GPUs that are simulated since then."""
    return ExporterFacts(
        version=version,
        python=".".join(map(str, sys.version_info[:3])),
        hostname=hostname,
        cpu_seconds=time.process_time(),
        resident_memory_bytes=_resident_memory_bytes(),
        open_fds=_open_fds(),
        start_time_seconds=_STARTED_SECONDS,
        machine=MachineFacts(boot_time_seconds=_boot_time_seconds() if booted_at is None else booted_at),
    )


def _boot_time_seconds() -> float:
    """Computed each time: the clock may be set after the boot. In whole seconds, which do not jitter."""
    return float(round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)))


def _resident_memory_bytes() -> int | None:
    try:
        return int((_SELF / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _open_fds() -> int | None:
    try:
        return sum(1 for _ in (_SELF / "fd").iterdir())
    except OSError:
        return None
