"""The processes that nvidia-smi lists: pure functions of the text of `--query-compute-apps`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gputally.devices.nvidia_smi_text import Unreadable, parse_header, parse_value, whole_lines, with_unit
from gputally.model import Process

APP_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")


@dataclass(frozen=True, slots=True)
class ComputeApps:
    """Processes by GPU uuid; `None` for a GPU whose processes cannot be had."""

    processes: Mapping[str, tuple[Process, ...] | None]
    errors: Mapping[str, int]


def parse_compute_apps(text: str) -> ComputeApps | None:
    """Output of `--query-compute-apps=` + APP_COLUMNS; None when it is no such table."""
    lines, cut_off = whole_lines(text)
    headers = [parse_header(line) for line in lines]
    start = next((i for i, (columns, _) in enumerate(headers) if columns == APP_COLUMNS), None)
    if start is None:
        return None
    memory_unit = headers[start][1][-1]
    found: dict[str, dict[int, Process] | None] = {}
    errors = Counter({"malformed": cut_off} if cut_off else {})
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        cells = _split_app(line)
        pid = parse_value("index", cells[1]) if cells else Unreadable("malformed")
        if cells is None or isinstance(pid, Unreadable) or (isinstance(pid, int) and pid <= 0):
            errors[pid.error if isinstance(pid, Unreadable) else "malformed"] += 1
            continue
        uuid, _, name, memory = cells
        if not isinstance(pid, int):
            found.setdefault(uuid, None)
            continue
        used = parse_value("used_gpu_memory", with_unit(memory, memory_unit))
        if isinstance(used, Unreadable):
            errors[used.error] += 1
        of_gpu = found.get(uuid) or {}
        of_gpu[pid] = _join(of_gpu.get(pid), pid, name, used if isinstance(used, int) else None)
        found[uuid] = of_gpu
    return ComputeApps(
        {uuid: None if of_gpu is None else tuple(of_gpu.values()) for uuid, of_gpu in found.items()}, errors
    )


def _split_app(line: str) -> tuple[str, str, str, str] | None:
    """A process may have commas in its name; what stands around the name has none."""
    head = line.split(",", 2)
    tail = head[-1].rsplit(",", 1)
    if len(head) != 3 or len(tail) != 2:
        return None
    return head[0].strip(), head[1].strip(), tail[0].strip(), tail[1].strip()


def _join(earlier: Process | None, pid: int, name: str, used: int | None) -> Process:
    """A process with several contexts on one GPU has a row for each; it is still one process."""
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        name = name[1:-1].replace('""', '"')
    text = parse_value("process_name", name)
    if earlier is not None and earlier.memory_used_bytes is not None:
        used = earlier.memory_used_bytes + (used or 0)
    return Process(pid, "compute", text if isinstance(text, str) else None, used)
