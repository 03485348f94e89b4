"""`gputally check`: what can be read on this host, what cannot, why, and the command that fixes it."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gputally.attribution import KnowledgeSource
from gputally.devices import Reader
from gputally.devices.host import Host, read_host
from gputally.metrics.catalog import AMD, GPU_METRICS, NVIDIA
from gputally.model import Activity, Reading, SourceState
from gputally.sampling.collect import Informant, Source

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
    informants: Iterable[KnowledgeSource] = (),
    dev: Path = Path("/dev"),
) -> list[Finding]:
    """Look at everything; never raises, never takes longer than the timeout per reader."""
    host = read_host(sysfs, procfs)
    findings = list(_hardware(host, sysfs, {reader.name for readers in sources for reader in readers}))
    if host.has_nvidia or not host.has_amd:
        findings += _device_nodes(dev)
    for readers in sources:
        findings += _readers(readers, procfs, timeout_seconds)
    findings += _informants(informants, timeout_seconds)
    return findings


def _readers(readers: Iterable[Reader], procfs: Path, timeout_seconds: float) -> Iterator[Finding]:
    """Readers of the same GPUs: when a better one works, the others need not."""
    readable = False
    for reader in readers:
        source = Source([reader])
        source.start()
        source.finish(timeout_seconds, timeout_seconds)
        (state,) = source.states()
        readings = source.readings(0)
        if not state.up:
            yield Finding("note" if readable else "problem", reader.name, state.reason, state.fix)
        elif not readings:
            yield Finding("problem", reader.name, "works, but shows no GPU", _VISIBLE)
        else:
            seconds = state.duration_seconds or 0.0
            yield Finding("ok", reader.name, f"reads {len(readings)} GPUs in {seconds * 1000:.0f} ms")
            yield from _gpus(reader.name, readings)
            yield from _denied(state)
            if not readable:
                yield from _processes(readings, procfs)
            readable = True
        source.close(0)


# What is lost without each source of names; docs/privileges.md says how to give it.
_BUYS = {
    "kubernetes": "the labels, workloads and requests of pods",
    "kubelet_pods": "the labels, workloads and requests of pods",
    "pod_logs": "the names of pods",
    "pod_resources": "which pod was given which GPU",
    "own_pod": "the name of the pod that the exporter itself is in",
}


def _informants(sources: Iterable[KnowledgeSource], timeout_seconds: float) -> Iterator[Finding]:
    seen = False
    for source in sources:
        seen = True
        informant = Informant(source)
        informant.start()
        informant.finish(timeout_seconds, timeout_seconds)
        state, knowledge = informant.state(), informant.knowledge
        if state.up:
            told = f"{len(knowledge.pods)} pods, {len(knowledge.holdings)} GPUs given to containers"
            yield Finding("ok", source.name, told)
        else:
            lost = f"{state.reason}: {_BUYS[source.name]} cannot be told"
            yield Finding("note", source.name, lost, state.fix)
        informant.close(0)
    if not seen:
        yield Finding(
            "note", "kubernetes", "nothing of Kubernetes on this host: processes are named as the host's"
        )


_VISIBLE = "in a container: run it with the NVIDIA runtime and NVIDIA_VISIBLE_DEVICES=all"


def _hardware(host: Host, sysfs: Path, wanted: set[str]) -> Iterator[Finding]:
    """A driver that is not loaded is a problem for who wants a reader of its GPUs."""
    if host.nvidia:
        yield Finding("ok", "pci", f"{len(host.nvidia)} NVIDIA GPUs: {', '.join(host.nvidia)}")
    if host.amd:
        yield Finding("ok", "pci", f"{len(host.amd)} AMD GPUs: {', '.join(host.amd)}")
    if not host.nvidia and not host.amd:
        yield Finding("note", "pci", f"no GPU of NVIDIA or AMD in {sysfs}/bus/pci/devices")
    if host.nvidia_module:
        yield Finding("ok", "driver", f"kernel module {host.nvidia_module} is loaded")
    elif host.nvidia:
        level = "problem" if wanted & set(NVIDIA) else "note"
        yield Finding(level, "driver", "the NVIDIA kernel module is not loaded", "modprobe nvidia")
    if host.amd_module:
        yield Finding("ok", "driver", "kernel module amdgpu is loaded")
    elif host.amd:
        level = "problem" if wanted & set(AMD) else "note"
        yield Finding(level, "driver", "the kernel module amdgpu is not loaded", "modprobe amdgpu")
    if not host.has_nvidia and not host.has_amd:
        yield Finding("note", "driver", "no kernel module of NVIDIA or AMD is loaded")


def _device_nodes(dev: Path) -> Iterator[Finding]:
    nodes = sorted(
        node for node in dev.glob("nvidia*") if node.name[6:].isdigit() or node.name == "nvidiactl"
    )
    if not nodes:
        yield Finding("note", "devices", f"no {dev}/nvidia* device files")
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            yield Finding(
                "problem", "devices", f"no permission for {node}", f"run as root, or: chmod a+rw {node}"
            )


_RESETS = {
    "nvidia": "nvidia-smi --gpu-reset, else reboot the node",
    "amd": "rocm-smi --gpureset, else reboot the node",
}


def _fields_of(vendor: str) -> set[str]:
    """What some reader can tell of the GPUs of a vendor."""
    readers = set(AMD if vendor == "amd" else NVIDIA) - {"simulated"}
    of_others = {metric.field for metric in GPU_METRICS if not readers & set(metric.readers)}
    return {field.name for field in fields(Reading)} - of_others - _OPTIONAL


def _gpus(reader: str, readings: Iterable[Reading]) -> Iterator[Finding]:
    for reading in readings:
        subject = f"{reader} gpu {reading.gpu.index}"
        if not reading.up:
            yield Finding(
                "problem",
                subject,
                f"{reading.gpu.uuid} is lost",
                _RESETS.get(reading.gpu.vendor, ""),
            )
            continue
        missing = sorted(name for name in _fields_of(reading.gpu.vendor) if getattr(reading, name) is None)
        told = "tells everything" if not missing else f"does not tell: {', '.join(missing)}"
        yield Finding("ok", subject, f"{reading.gpu.model} {told}")
        if reading.persistence_mode is False:
            yield Finding(
                "note", subject, "persistence mode is off: every look wakes the driver", "nvidia-smi -pm 1"
            )
        if reading.accounting_mode is False:
            yield Finding(
                "note",
                subject,
                "accounting mode is off: short processes go unseen",
                "gputally enable-accounting",
            )


# What a reader was not allowed to look at -> what is lost by that, and how to allow it.
_DENIED = {
    "fdinfo": (
        "the open files of other users may not be read: who uses the GPUs for graphics and video, and how "
        "long, is not told",
        "run as root, or give CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
    ),
    "kfd": (
        "the kernel hides GPUs of KFD: who computes on them, and their partitions, are not told",
        "allow the render devices: docker run --device-cgroup-rule 'c 226:* rw'; in a service "
        "DeviceAllow=char-drm rw; in a pod privileged: true",
    ),
}


def _denied(state: SourceState) -> Iterator[Finding]:
    for what, (lost, fix) in _DENIED.items():
        if (state.errors or {}).get((what, "permission")):
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
