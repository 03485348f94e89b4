"""Values in the output of nvidia-smi: pure functions of text, for the spelling of every driver.

See the sections on `--query-gpu` and on return values in `man nvidia-smi`. They never
raise: a cell is a value, `None` (not supported by this GPU or driver, or no permission), or `Unreadable`,
which the reader counts.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from gputally.model import Process


class CellKind(Enum):
    """The kind of a column's values."""

    TEXT = auto()
    FLAG = auto()
    COUNT = auto()
    RATIO = auto()
    BYTES = auto()
    WATTS = auto()
    CELSIUS = auto()
    HERTZ = auto()
    SECONDS = auto()
    PERFORMANCE_STATE = auto()
    BITMASK = auto()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The tool printed an error, or no value of this column's kind."""

    error: str


CellValue = int | float | bool | str | None | Unreadable
TableRow = Mapping[str, str]

_KINDS = {
    **dict.fromkeys(("index", "count", "accounting.buffer_size"), CellKind.COUNT),
    **dict.fromkeys(("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count"), CellKind.COUNT),
    **dict.fromkeys(
        (
            "accounting.mode",
            "c2c.mode",
            "display_active",
            "display_attached",
            "display_mode",
            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
            "ecc.mode.current",
            "ecc.mode.pending",
            "gsp.mode.current",
            "gsp.mode.default",
            "mig.mode.current",
            "mig.mode.pending",
            "persistence_mode",
            "power.management",
            "reset_status.drain_and_reset_recommended",
            "reset_status.reset_required",
            "retired_pages.pending",
        ),
        CellKind.FLAG,
    ),
    "clocks_event_reasons.active": CellKind.BITMASK,
    "clocks_event_reasons.supported": CellKind.BITMASK,
    "enforced.power.limit": CellKind.WATTS,
    "fan.speed": CellKind.RATIO,
    "pstate": CellKind.PERFORMANCE_STATE,
    "used_gpu_memory": CellKind.BYTES,
}
_KINDS_BY_PREFIX = {
    "clocks.": CellKind.HERTZ,
    "clocks_event_reasons.": CellKind.FLAG,
    "clocks_event_reasons_counters.": CellKind.SECONDS,
    "ecc.errors.": CellKind.COUNT,
    "gpu.power.": CellKind.WATTS,
    "memory.": CellKind.BYTES,
    "module.": CellKind.WATTS,
    "pcie.link.": CellKind.COUNT,
    "power.": CellKind.WATTS,
    "protected_memory.": CellKind.BYTES,
    "temperature.": CellKind.CELSIUS,
    "utilization.": CellKind.RATIO,
}

# Unit -> (times, divided by). A number without a unit is in nvidia-smi's usual one.
_SCALES: dict[CellKind, dict[str, tuple[int, int]]] = {
    CellKind.COUNT: {"": (1, 1)},
    CellKind.RATIO: {"": (1, 100), "%": (1, 100)},
    CellKind.BYTES: {"": (2**20, 1), "B": (1, 1), "KiB": (2**10, 1), "MiB": (2**20, 1), "GiB": (2**30, 1)},
    CellKind.WATTS: {"": (1, 1), "W": (1, 1), "mW": (1, 1000)},
    CellKind.CELSIUS: {"": (1, 1), "C": (1, 1)},
    CellKind.HERTZ: {"": (10**6, 1), "MHz": (10**6, 1), "GHz": (10**9, 1)},
    CellKind.SECONDS: {"": (1, 10**6), "us": (1, 10**6), "ms": (1, 10**3), "s": (1, 1)},
}
_WHOLE = (CellKind.COUNT, CellKind.BYTES)

_FLAGS = {
    "enabled": True,
    "disabled": False,
    "active": True,
    "not active": False,
    "yes": True,
    "no": False,
    "on": True,
    "off": False,
    "supported": True,
}
_NOT_SUPPORTED = {
    "",
    "n/a",
    "not supported",
    "not available",
    "not found",
    "no data",
    "function not found",
    "requested functionality has been deprecated",
}
_ERRORS = {
    "err!": "unknown_error",
    "unknown error": "unknown_error",
    "gpu is lost": "gpu_is_lost",
    "gpu requires reset": "gpu_requires_reset",
    "insufficient permissions": "insufficient_permissions",
    "invalid argument": "invalid_argument",
    "insufficient memory": "insufficient_memory",
    "insufficient external power": "insufficient_external_power",
    "in use by another client": "in_use",
    "corrupted inforom": "corrupted_inforom",
    "driver not loaded": "driver_not_loaded",
    "timeout": "timeout",
}

_NUMBER = re.compile(r"([+-]?[0-9]{1,20}(?:\.[0-9]{1,9})?) ?([A-Za-z%]*)")
_PERFORMANCE_STATE = re.compile(r"P([0-9]{1,2})")
_BITMASK = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_HEADER_UNIT = re.compile(r"(.*?)\s*\[([^\[\]]*)\]")
_COLUMN = re.compile(r'"([A-Za-z0-9_.]+)"')
_LISTED_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: ", re.ASCII)
# Since driver 610 the older line says that it is deprecated.
_CUDA_VERSION = re.compile(r"^CUDA (?:UMD )?version *: *(\d{1,3}\.\d{1,3})", re.ASCII | re.I | re.M)


def canonical(column: str) -> str:
    """The name that newer drivers use for a column."""
    return column.replace("clocks_throttle_reasons", "clocks_event_reasons", 1)


def kind_of(column: str) -> CellKind:
    known = _KINDS.get(column)
    if known is not None:
        return known
    for prefix, kind in _KINDS_BY_PREFIX.items():
        if column.startswith(prefix):
            return kind
    return CellKind.TEXT


def parse_value(column: str, text: str) -> CellValue:
    """One cell, in base units."""
    text = text.strip()
    kind = kind_of(canonical(column))
    bracketed = text.startswith("[") and text.endswith("]")
    phrase = (text[1:-1] if bracketed else text).strip().lower()
    if phrase in _NOT_SUPPORTED:
        return None
    if phrase in _ERRORS and (bracketed or kind is not CellKind.TEXT):
        return Unreadable(_ERRORS[phrase])
    if kind is CellKind.TEXT:
        return text
    value = _parse_kind(kind, text)
    return Unreadable("malformed") if value is None else value


def _parse_kind(kind: CellKind, text: str) -> int | float | bool | None:
    if kind is CellKind.FLAG:
        return _FLAGS.get(text.lower())
    if kind is CellKind.PERFORMANCE_STATE:
        match = _PERFORMANCE_STATE.fullmatch(text)
        return int(match[1]) if match else None
    if kind is CellKind.BITMASK:
        return int(text, 16) if _BITMASK.fullmatch(text) else None
    match = _NUMBER.fullmatch(text)
    scale = _SCALES[kind].get(match[2]) if match else None
    if match is None or scale is None:
        return None
    if kind in _WHOLE:
        return None if "." in match[1] else int(match[1]) * scale[0]
    return float(match[1]) * scale[0] / scale[1]


@dataclass(frozen=True, slots=True)
class CsvTable:
    """CSV output. `malformed` is the number of incomplete rows."""

    columns: tuple[str, ...] = ()
    rows: tuple[TableRow, ...] = ()
    malformed: int = 0
    headers: tuple[str, ...] = ()
    """Of the columns, as printed."""


def parse_query_gpu(text: str) -> CsvTable:
    """Output of `--query-gpu=... --format=csv`, with or without units; no `columns` for other text."""
    lines, cut_off = whole_lines(text)
    for number, line in enumerate(lines):
        columns, units = parse_header(line)
        if "uuid" in columns:
            rows = [_parse_row(columns, units, row) for row in lines[number + 1 :] if row.strip()]
            whole = tuple(row for row in rows if row is not None)
            headers = tuple(cell.strip() for cell in line.split(","))
            return CsvTable(columns, whole, len(rows) - len(whole) + cut_off, headers)
    return CsvTable()


def whole_lines(text: str) -> tuple[list[str], int]:
    """The complete lines, and whether the last line has no newline: its last value may be cut off."""
    *lines, rest = text.replace("\r\n", "\n").split("\n")
    return lines, int(rest.strip() != "")


def parse_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a header line, and the unit of each."""
    columns, units = [], []
    for cell in line.split(","):
        match = _HEADER_UNIT.fullmatch(cell.strip())
        columns.append(canonical(match[1] if match else cell.strip()))
        units.append(match[2] if match else "")
    return tuple(columns), tuple(units)


def _parse_row(columns: Sequence[str], units: Sequence[str], line: str) -> TableRow | None:
    cells = [cell.strip() for cell in line.split(",")]
    surplus = len(cells) - len(columns)
    if surplus > 0 and "name" in columns:
        at = columns.index("name")
        cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
    if len(cells) != len(columns):
        return None
    return {column: with_unit(cell, unit) for column, cell, unit in zip(columns, cells, units, strict=True)}


def with_unit(cell: str, unit: str) -> str:
    """With `nounits` only the header has the unit."""
    match = _NUMBER.fullmatch(cell) if unit else None
    return f"{cell} {unit}" if match and not match[2] else cell


def parse_help_columns(text: str) -> tuple[tuple[str, ...], ...]:
    """Every column of `--help-query-gpu`, by all its names; empty when the text was cut off."""
    lines, cut_off = whole_lines(text)
    if cut_off:
        return ()
    # A description may begin with a quoted word; a column begins a paragraph.
    listed = (line for before, line in pairwise(["", *lines]) if line.startswith('"') and not before.strip())
    return tuple(names for line in listed if (names := tuple(_COLUMN.findall(line))))


def parse_list(text: str) -> tuple[int, ...]:
    """Indices of the GPUs that respond, from `-L`: unlike a query it works while another GPU is lost."""
    return tuple(int(match[1]) for line in text.splitlines() if (match := _LISTED_GPU.match(line)))


def parse_cuda_version(text: str) -> str | None:
    """From `--version` (drivers since 550)."""
    match = _CUDA_VERSION.search(text)
    return match[1] if match else None


APP_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")


@dataclass(frozen=True, slots=True)
class ComputeApps:
    """Processes by GPU uuid; `None` for a GPU that does not support the list."""

    processes: Mapping[str, tuple[Process, ...] | None]
    errors: Mapping[str, int]
    printed_names: Mapping[str, Mapping[int, str]]
    """GPU uuid -> pid -> name; [Not Found] of a process in another pid namespace."""


def parse_compute_apps(text: str) -> ComputeApps | None:
    """Output of `--query-compute-apps=` + APP_COLUMNS; None when it is no such table."""
    lines, cut_off = whole_lines(text)
    headers = [parse_header(line) for line in lines]
    start = next((i for i, (columns, _) in enumerate(headers) if columns == APP_COLUMNS), None)
    if start is None:
        return None
    memory_unit = headers[start][1][-1]
    found: dict[str, dict[int, Process] | None] = {}
    printed_names: defaultdict[str, dict[int, str]] = defaultdict(dict)
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
        printed_names[uuid][pid] = name
    processes = {uuid: None if of_gpu is None else tuple(of_gpu.values()) for uuid, of_gpu in found.items()}
    return ComputeApps(processes, errors, printed_names)


def _split_app(line: str) -> tuple[str, str, str, str] | None:
    """The name may have commas; the other cells have none."""
    head = line.split(",", 2)
    tail = head[-1].rsplit(",", 1)
    if len(head) != 3 or len(tail) != 2:
        return None
    return head[0].strip(), head[1].strip(), tail[0].strip(), tail[1].strip()


def _join(earlier: Process | None, pid: int, name: str, used: int | None) -> Process:
    """Joins the rows of one process, which has one per context."""
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        name = name[1:-1].replace('""', '"')
    text = parse_value("process_name", name)
    if earlier is not None and earlier.memory_used_bytes is not None:
        used = earlier.memory_used_bytes + (used or 0)
    return Process(pid, "compute", text if isinstance(text, str) else None, used)
