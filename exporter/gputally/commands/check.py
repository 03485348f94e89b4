"""`gputally check`: reports what can be read on this host, what cannot and why, and the fix."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from gputally.attribution import PodSource
from gputally.attribution.pod_sources import POD_SOURCES
from gputally.commands import NOTE, OK, PROBLEM, Finding
from gputally.devices import Reader
from gputally.devices.host import VendorOnHost, read_boot_id, read_host, vendors_to_read
from gputally.devices.vendors import VENDORS, Vendor, fields_filled, vendor_of
from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import Rejected, StateFile
from gputally.model import Activity, Reading, SourceState, Unavailable
from gputally.sampling.guard import Worker, attempt
from gputally.sampling.sources import GuardedPodSource, GuardedReaders

# Filled only with a flag, or only on the newest GPUs.
_OPTIONAL = {
    "accounted",
    "pcie_throughput_bytes_per_second",
    "xid_last_timestamp_seconds",
    *(field.name for field in fields(Activity)),
}


def check_host(
    sources: Sequence[Sequence[Reader]],
    *,
    procfs: Path,
    sysfs: Path,
    timeout_seconds: float,
    pod_sources: Iterable[PodSource] = (),
    dev: Path = Path("/dev"),
    release_driver: bool = False,
    state_file: Path | None = None,
) -> list[Finding]:
    """Checks everything; never raises, and takes no longer than the timeout per source."""
    host = read_host(sysfs, procfs)
    findings = list(_hardware(host, sysfs, {reader.name for readers in sources for reader in readers}))
    for vendor in vendors_to_read(host):
        findings += _device_files(vendor, dev)
    for readers in sources:
        findings += _readers(readers, procfs, timeout_seconds, release_driver=release_driver)
    findings += _pod_sources(pod_sources, timeout_seconds)
    if state_file is not None:
        findings.append(_state_file(state_file, read_boot_id(procfs), timeout_seconds))
    return findings


def _state_file(path: Path, boot_id: str, timeout_seconds: float) -> Finding:
    """Whether an exporter that starts now continues the ledger. It changes nothing."""
    worker = Worker("state_file", lambda: [attempt("state_file", lambda: (_resumption(path, boot_id),))])
    worker.start()
    if not worker.wait(timeout_seconds):
        fix = f"check the disk or file server of {path.parent}"
        return Finding(PROBLEM, "state_file", f"{path} cannot be read in {timeout_seconds:g} s", fix)
    (tried,) = worker.take()
    if tried.result is None:
        return Finding(PROBLEM, "state_file", tried.reason, tried.fix)
    (obstacle,) = tried.result
    if obstacle:
        text = f"{path} {obstacle}: an exporter that starts now begins a new ledger"
        return Finding(NOTE, "state_file", text)
    return Finding(OK, "state_file", f"an exporter that starts now continues the ledger in {path}")


def _resumption(path: Path, boot_id: str) -> str:
    """Why the state cannot be resumed from; empty if it can. Raises Unavailable if none can be saved."""
    directory = path.parent
    if not directory.is_dir():
        raise Unavailable(f"{directory} does not exist", f"mkdir -p {directory}")
    if not os.access(directory, os.W_OK):
        fix = f"let the exporter's user write to {directory}, or set another --state-file"
        raise Unavailable(f"{directory} is not writable", fix)
    try:
        saved = StateFile(path).peek()
    except Rejected as rejected:
        return rejected.text
    if saved is None:
        return "does not exist"
    if saved.state["boot_id"] != boot_id:
        return "is of another boot"
    return "has expired" if since_boot_us() > saved.until_us else ""


def _readers(
    readers: Iterable[Reader], procfs: Path, timeout_seconds: float, *, release_driver: bool
) -> Iterator[Finding]:
    """Readers of the same GPUs: if a better one works, a failure of the others is only a note."""
    readable = False
    for reader in readers:
        source = GuardedReaders([reader])
        source.start()
        source.finish(timeout_seconds, timeout_seconds)
        (state,) = source.states()
        readings = source.readings(0)
        if not state.up:
            yield Finding(NOTE if readable else PROBLEM, reader.name, state.reason, state.fix)
        elif not readings:
            yield Finding(PROBLEM, reader.name, "works, but finds no GPU", _no_gpus_fix(reader.name))
        else:
            seconds = state.duration_seconds or 0.0
            yield Finding(OK, reader.name, f"reads {len(readings)} GPUs in {seconds * 1000:.0f} ms")
            yield from _gpus(reader.name, readings, release_driver=release_driver)
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
            yield Finding(OK, source.name, counts)
            for kind, number in report.left_out.items():
                if number:
                    yield Finding(NOTE, source.name, f"{number} {kind} are beyond the limit and left out")
        else:
            lost = f"{state.reason}; not available: {provides.get(source.name, 'its pods')}"
            yield Finding(NOTE, source.name, lost, state.fix)
        guarded.close(0)
    if not seen:
        yield Finding(
            NOTE, "kubernetes", "no pod source on this host: owners are services, containers and sessions"
        )


def _no_gpus_fix(reader: str) -> str:
    return next((v.no_gpus_fix for v in VENDORS for row in v.readers if row.name == reader), "")


def _hardware(host: Sequence[VendorOnHost], sysfs: Path, wanted: set[str]) -> Iterator[Finding]:
    """A driver that is not loaded is a problem where a reader of its GPUs is wanted."""
    titles = " or ".join(one.vendor.title for one in host)
    for one in host:
        if one.gpus:
            yield Finding(OK, "pci", f"{len(one.gpus)} {one.vendor.title} GPUs: {', '.join(one.gpus)}")
    if not any(one.gpus for one in host):
        yield Finding(NOTE, "pci", f"no GPU of {titles} in {sysfs}/bus/pci/devices")
    for one in host:
        if one.module:
            yield Finding(OK, "driver", f"kernel module {one.module} is loaded")
        elif one.gpus:
            level = PROBLEM if wanted & {row.name for row in one.vendor.readers} else NOTE
            module = one.vendor.kernel_module
            yield Finding(level, "driver", f"kernel module {module} is not loaded", f"modprobe {module}")
    if not any(one.present for one in host):
        yield Finding(NOTE, "driver", f"no kernel module of {titles} is loaded")


def _device_files(vendor: Vendor, dev: Path) -> Iterator[Finding]:
    files = sorted(file for pattern in vendor.device_files for file in dev.glob(pattern))
    if vendor.device_files and not files:
        yield Finding(NOTE, "devices", f"no device files {', '.join(vendor.device_files)} in {dev}")
    for file in files:
        if not os.access(file, os.R_OK | os.W_OK):
            yield Finding(
                PROBLEM, "devices", f"no permission for {file}", f"run as root, or: chmod a+rw {file}"
            )


def _fields_of(vendor: str) -> set[str]:
    """The fields of `Reading` that some reader can fill on GPUs of a vendor."""
    return {name for name in fields_filled(vendor_of(vendor)) if "." not in name} - _OPTIONAL


def _gpus(reader: str, readings: Iterable[Reading], *, release_driver: bool) -> Iterator[Finding]:
    for reading in readings:
        subject = f"{reader} gpu {reading.gpu.index}"
        if not reading.up:
            what = "does not respond" if reading.late else "is lost"
            fix = vendor_of(reading.gpu.vendor).reset_fix
            yield Finding(PROBLEM, subject, f"{reading.gpu.uuid} {what}", fix)
            continue
        missing = sorted(name for name in _fields_of(reading.gpu.vendor) if getattr(reading, name) is None)
        support = "supports all fields" if not missing else f"does not support: {', '.join(missing)}"
        yield Finding(OK, subject, f"{reading.gpu.model} {support}")
        if reading.persistence_mode is False:
            yield Finding(
                NOTE,
                subject,
                "persistence mode is off: "
                + ("--release-driver has no effect" if release_driver else "every sample wakes the driver"),
                vendor_of(reading.gpu.vendor).persistence_command,
            )
        if reading.accounting_mode is False:
            yield Finding(
                NOTE,
                subject,
                "accounting mode is off: short processes are not seen",
                "gputally enable-accounting",
            )


def _denied(state: SourceState) -> Iterator[Finding]:
    denied = {field: texts for vendor in VENDORS for field, texts in vendor.denied.items()}
    for field, (lost, fix) in denied.items():
        errors = state.errors or {}
        if errors.get((field, "permission")) or errors.get((field, "no_permission")):
            yield Finding(NOTE, state.name, lost, fix)


def _processes(readings: Iterable[Reading], procfs: Path) -> Iterator[Finding]:
    pids = {process.pid for reading in readings for process in reading.processes or ()}
    hidden = sorted(pid for pid in pids if not (procfs / str(pid)).exists())
    if hidden:
        yield Finding(
            PROBLEM,
            "processes",
            f"{len(hidden)} of {len(pids)} GPU processes are not in {procfs}: {hidden[:5]}",
            "share the host's pid namespace (hostPID: true, docker run --pid=host), or set --procfs",
        )
    elif pids:
        yield Finding(OK, "processes", f"all {len(pids)} GPU processes are in {procfs}")


def usable(findings: Iterable[Finding]) -> bool:
    """Whether GPUs can be read and there is no problem."""
    levels = [(finding.level, finding.subject) for finding in findings]
    reads = any(level == OK and " gpu " in subject for level, subject in levels)
    return reads and all(level != PROBLEM for level, _ in levels)


def report_json(findings: list[Finding]) -> list[str]:
    rows = [{"level": f.level, "subject": f.subject, "text": f.text, "fix": f.fix} for f in findings]
    return json.dumps({"ok": usable(findings), "findings": rows}, indent=2).split("\n")
