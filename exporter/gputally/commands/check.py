"""`gputally check`: what can be read on this host, what cannot, why, and the command that fixes it."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gputally.attribution import PodSource
from gputally.attribution.pod_sources import POD_SOURCES
from gputally.devices import Reader
from gputally.devices.host import VendorOnHost, read_host, vendors_to_read
from gputally.devices.vendors import VENDORS, Vendor, fields_filled, vendor_of
from gputally.model import Activity, Reading, SourceState
from gputally.sampling.sources import GuardedPodSource, GuardedReaders

# What a GPU need not have: filled only when asked for, or only on the newest cards.
_OPTIONAL = {
    "accounted",
    "pcie_throughput_bytes_per_second",
    "xid_last_timestamp_seconds",
    *(field.name for field in fields(Activity)),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `level` is ok, note (nothing to do) or problem (something is missing)."""

    level: str
    subject: str
    text: str
    fix: str = ""


def check_host(
    sources: Sequence[Sequence[Reader]],
    *,
    procfs: Path,
    sysfs: Path,
    timeout_seconds: float,
    pod_sources: Iterable[PodSource] = (),
    dev: Path = Path("/dev"),
) -> list[Finding]:
    """Look at everything; never raises, never takes longer than the timeout per reader."""
    host = read_host(sysfs, procfs)
    findings = list(_hardware(host, sysfs, {reader.name for readers in sources for reader in readers}))
    for vendor in vendors_to_read(host):
        findings += _device_files(vendor, dev)
    for readers in sources:
        findings += _readers(readers, procfs, timeout_seconds)
    findings += _pod_sources(pod_sources, timeout_seconds)
    return findings


def _readers(readers: Iterable[Reader], procfs: Path, timeout_seconds: float) -> Iterator[Finding]:
    """Readers of the same GPUs: when a better one works, the others need not."""
    readable = False
    for reader in readers:
        source = GuardedReaders([reader])
        source.start()
        source.finish(timeout_seconds, timeout_seconds)
        (state,) = source.states()
        readings = source.readings(0)
        if not state.up:
            yield Finding("note" if readable else "problem", reader.name, state.reason, state.fix)
        elif not readings:
            yield Finding("problem", reader.name, "works, but shows no GPU", _no_gpus_fix(reader.name))
        else:
            seconds = state.duration_seconds or 0.0
            yield Finding("ok", reader.name, f"reads {len(readings)} GPUs in {seconds * 1000:.0f} ms")
            yield from _gpus(reader.name, readings)
            yield from _denied(state)
            if not readable:
                yield from _processes(readings, procfs)
            readable = True
        source.close(0)


def _pod_sources(sources: Iterable[PodSource], timeout_seconds: float) -> Iterator[Finding]:
    provides = {row.name: row.provides for row in POD_SOURCES}
    seen = False
    for source in sources:
        seen = True
        guarded = GuardedPodSource(source)
        guarded.start()
        guarded.finish(timeout_seconds, timeout_seconds)
        state, report = guarded.state(), guarded.report
        if state.up:
            counts = f"{len(report.pods)} pods, {len(report.allocations)} GPUs allocated to containers"
            yield Finding("ok", source.name, counts)
        else:
            lost = f"{state.reason}; not available: {provides.get(source.name, 'its pods')}"
            yield Finding("note", source.name, lost, state.fix)
        guarded.close(0)
    if not seen:
        yield Finding(
            "note", "kubernetes", "no pod source on this host: owners are services, containers and sessions"
        )


def _no_gpus_fix(reader: str) -> str:
    return next((v.no_gpus_fix for v in VENDORS for row in v.readers if row.name == reader), "")


def _hardware(host: Sequence[VendorOnHost], sysfs: Path, wanted: set[str]) -> Iterator[Finding]:
    """A driver that is not loaded is a problem where a reader of its GPUs is wanted."""
    titles = " or ".join(one.vendor.title for one in host)
    for one in host:
        if one.gpus:
            yield Finding("ok", "pci", f"{len(one.gpus)} {one.vendor.title} GPUs: {', '.join(one.gpus)}")
    if not any(one.gpus for one in host):
        yield Finding("note", "pci", f"no GPU of {titles} in {sysfs}/bus/pci/devices")
    for one in host:
        if one.module:
            yield Finding("ok", "driver", f"kernel module {one.module} is loaded")
        elif one.gpus:
            level = "problem" if wanted & {row.name for row in one.vendor.readers} else "note"
            module = one.vendor.kernel_module
            yield Finding(level, "driver", f"kernel module {module} is not loaded", f"modprobe {module}")
    if not any(one.present for one in host):
        yield Finding("note", "driver", f"no kernel module of {titles} is loaded")


def _device_files(vendor: Vendor, dev: Path) -> Iterator[Finding]:
    files = sorted(file for pattern in vendor.device_files for file in dev.glob(pattern))
    if vendor.device_files and not files:
        yield Finding("note", "devices", f"no device files {', '.join(vendor.device_files)} in {dev}")
    for file in files:
        if not os.access(file, os.R_OK | os.W_OK):
            yield Finding(
                "problem", "devices", f"no permission for {file}", f"run as root, or: chmod a+rw {file}"
            )


def _fields_of(vendor: str) -> set[str]:
    """The fields of `Reading` that some reader can fill on GPUs of a vendor."""
    return {name for name in fields_filled(vendor_of(vendor)) if "." not in name} - _OPTIONAL


def _gpus(reader: str, readings: Iterable[Reading]) -> Iterator[Finding]:
    for reading in readings:
        subject = f"{reader} gpu {reading.gpu.index}"
        if not reading.up:
            yield Finding(
                "problem",
                subject,
                f"{reading.gpu.uuid} is lost",
                vendor_of(reading.gpu.vendor).reset_fix,
            )
            continue
        missing = sorted(name for name in _fields_of(reading.gpu.vendor) if getattr(reading, name) is None)
        told = "tells everything" if not missing else f"does not tell: {', '.join(missing)}"
        yield Finding("ok", subject, f"{reading.gpu.model} {told}")
        if reading.persistence_mode is False:
            yield Finding(
                "note",
                subject,
                "persistence mode is off: every sample wakes the driver",
                vendor_of(reading.gpu.vendor).persistence_command,
            )
        if reading.accounting_mode is False:
            yield Finding(
                "note",
                subject,
                "accounting mode is off: short processes go unseen",
                "gputally enable-accounting",
            )


def _denied(state: SourceState) -> Iterator[Finding]:
    denied = {field: texts for vendor in VENDORS for field, texts in vendor.denied.items()}
    for field, (lost, fix) in denied.items():
        if (state.errors or {}).get((field, "permission")):
            yield Finding("note", state.name, lost, fix)


def _processes(readings: Iterable[Reading], procfs: Path) -> Iterator[Finding]:
    pids = {process.pid for reading in readings for process in reading.processes or ()}
    hidden = sorted(pid for pid in pids if not (procfs / str(pid)).exists())
    if hidden:
        yield Finding(
            "problem",
            "processes",
            f"{len(hidden)} of {len(pids)} GPU processes are not in {procfs}: {hidden[:5]}",
            "share the host's pid namespace (hostPID: true, docker run --pid=host), or give --procfs",
        )
    elif pids:
        yield Finding("ok", "processes", f"all {len(pids)} GPU processes are in {procfs}")


def usable(findings: Iterable[Finding]) -> bool:
    """Whether GPUs can be read and nothing stands in the way of reading them all."""
    levels = [(finding.level, finding.subject) for finding in findings]
    reads = any(level == "ok" and " gpu " in subject for level, subject in levels)
    return reads and all(level != "problem" for level, _ in levels)


def report_text(findings: Iterable[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<8} {finding.subject:<16} {finding.text}")
        if finding.fix:
            lines.append(f"{'':<25} fix: {finding.fix}")
    return "\n".join(lines)


def report_json(findings: list[Finding]) -> str:
    return json.dumps({"ok": usable(findings), "findings": [asdict(f) for f in findings]}, indent=2)
