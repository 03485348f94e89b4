"""From the model's base units back to NVML's: a `Reading` as the keys of a scenario file."""

import re
from collections.abc import Iterable, Mapping
from math import floor
from pathlib import Path
from typing import NamedTuple

from gputally.model import (
    COMPUTE_MODES,
    FABRIC_PROBLEMS,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    AccountedProcess,
    Labelled,
    MigReading,
    Process,
    ProcessSample,
    Reading,
)
from tools.standin.identity import nvlink_version, raw_identity, raw_mig_identity

Raw = dict[str, str]

CLOCK_DOMAINS = ("graphics", "sm", "memory", "video")
ECC_LIFETIMES = ("volatile", "aggregate")
ECC_LOCATIONS = (
    *("l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory"),
    *("texture_shm", "cbu", "sram"),
)
NVLINK_ERRORS = (
    *("replay", "recovery", "crc_flit", "crc_data", "ecc_data"),
    # of NVLink 5
    *("malformed_packet", "buffer_overrun", "receive", "receive_remote", "receive_general"),
    *("link_integrity", "transmit_discard", "link_recovery_successful", "link_recovery_failed"),
    *("link_recovery", "effective", "symbol"),
)
MIG_DEVICES_MAX = 7
_NOT_AVAILABLE = 2**64 - 1


class SlotRow(NamedTuple):
    """A row of SINGLE_SLOTS in library/slots.h that is a field of the model."""

    key: str
    field: str
    label: str
    multiply: int
    divide: int

    def raw(self, value: float) -> float:
        """The value in NVML's unit; GPM alone has decimals."""
        number = value * self.multiply if self.divide == 1 else value / self.divide
        return number if self.key.startswith("gpm.") else _nearest(number)


def read_slots(header: str) -> tuple[SlotRow, ...]:
    """The rows of the text of slots.h that are fields of the model."""
    rows = re.findall(r'X\(\w+, "([\w.]+)", ([a-z]\w+)(?:\[(\w+)\])?, ([0-9]+)(?:/([0-9]+))?\)', header)
    return tuple(SlotRow(key, field, label, int(by), int(per or 1)) for key, field, label, by, per in rows)


SLOTS = read_slots((Path(__file__).parent / "library/slots.h").read_text())
_SLOTS_OF_FIELD = {
    field: [slot for slot in SLOTS if slot.field == field] for field in dict.fromkeys(s.field for s in SLOTS)
}


def raw_gpu(reading: Reading) -> Raw:
    """All keys of a GPU but its process lists, its samples and its MIG devices."""
    pairs: dict[str, str | float | None] = {**raw_identity(reading.gpu)}
    if reading.up:
        pairs |= {
            **_slots(reading),
            **_margin(reading),
            **_clocks(reading),
            **_throttling(reading),
            **_ecc(reading),
            **_nvlink(reading),
            **_fabric(reading),
            **_modes(reading),
            **{f"xid {xid}": _nearest(count) for (xid,), count in (reading.xid_errors or {}).items()},
            "samples": None if reading.process_samples is None else 0,
        }
    return _texts(pairs)


def raw_mig(mig: MigReading) -> Raw:
    """All keys of a MIG device but its process list."""
    return _texts({**raw_mig_identity(mig.instance), **_slots(mig)})


def raw_process(process: Process) -> str:
    """The `process` line."""
    facts = (
        process.pid,
        process.kind,
        *(
            "-" if fact is None else fact
            for fact in (process.memory_used_bytes, process.gpu_instance_id, process.compute_instance_id)
        ),
    )
    return " ".join(["process", *map(str, facts), *([process.name] if process.name else [])])


def raw_sample(sample: ProcessSample, clock_zero: float | None) -> str:
    """The `sample` line; its time is relative to time 0 when that is known."""
    ratios = (sample.sm_ratio, sample.memory_ratio, sample.encoder_ratio, sample.decoder_ratio)
    time = _moment(sample.timestamp_us, clock_zero)
    return " ".join(["sample", str(sample.pid), time, *(str(_percent(ratio or 0.0)) for ratio in ratios)])


def raw_account(ended: AccountedProcess, clock_zero: float | None) -> str:
    """The `account` line of a process that has ended; its start is relative to time 0 when that is known."""
    memory = _NOT_AVAILABLE if ended.memory_peak_bytes is None else ended.memory_peak_bytes
    milliseconds = ended.ran_us // 1000
    started = _moment(ended.started_us, clock_zero)
    return f"account {ended.pid} {_percent(ended.sm_ratio)} 0 {memory} {milliseconds} {started} 0"


def _moment(microseconds: int, clock_zero: float | None) -> str:
    if clock_zero is None:
        return str(microseconds)
    return f"{microseconds - round(clock_zero * 1_000_000):+d}"


def _texts(pairs: Mapping[str, str | float | None]) -> Raw:
    for key, value in pairs.items():
        if isinstance(value, str) and (not value.strip() or "\n" in value or value == "-"):
            raise ValueError(f"a scenario cannot hold {key} {value!r}")
    return {key: str(value) for key, value in pairs.items() if value is not None}


def _nearest(value: float) -> int:
    """Halves go up: Python's own rounding would send 0.5 W to 0 mW as often as to 1."""
    return int(value) if isinstance(value, int) else floor(value + 0.5)


def _percent(ratio: float) -> int:
    return _nearest(ratio * 100)


def _slots(reading: Reading | MigReading) -> dict[str, float]:
    """All values that have a row in slots.h."""
    values: dict[str, float] = {}
    for field, slots in _SLOTS_OF_FIELD.items():
        value = getattr(reading, field, None)
        if value is None:
            continue
        if slots[0].label:
            by_label = _chosen(value, [slot.label for slot in slots], field)
            values |= {slot.key: slot.raw(by_label[slot.label]) for slot in slots if slot.label in by_label}
        else:
            values |= {slot.key: slot.raw(value) for slot in slots}
    return values


def _chosen(labelled: Labelled | None, known: Iterable[str], what: str) -> dict[str, float]:
    """The values of a field with one label; a label that NVML cannot express is a mistake."""
    values = {label: value for (label,), value in (labelled or {}).items()}
    if unknown := values.keys() - set(known):
        raise ValueError(f"{what} {sorted(unknown)} has no place in NVML; known: {', '.join(known)}")
    return values


def _current(states: Labelled | None, known: tuple[str, ...], what: str) -> int | None:
    active = [known.index(state) for state, value in _chosen(states, known, what).items() if value]
    return active[0] if active else None


def _clocks(reading: Reading) -> dict[str, int]:
    values = {
        f"{kind}.{domain}": _nearest(hertz / 1_000_000)
        for kind, clocks in (
            ("clock", reading.clock_hertz),
            ("clock_max", reading.clock_max_hertz),
            ("clock_app", reading.clock_application_hertz),
        )
        for domain, hertz in _chosen(clocks, CLOCK_DOMAINS, "clock domain").items()
    }
    fans = {f"fan.{int(fan)}": _percent(ratio) for (fan,), ratio in (reading.fan_speed_ratio or {}).items()}
    return values | fans


def _margin(reading: Reading) -> dict[str, int]:
    """T.Limit, which is 0 or the card's own offset where it slows down."""
    if reading.temperature_margin_celsius is None:
        return {}
    offset = reading.temperature_slowdown_offset_celsius or 0
    return {"temp.margin": _nearest(reading.temperature_margin_celsius + offset)}


def _throttling(reading: Reading) -> dict[str, int]:
    if reading.throttle_active is None:
        return {}
    active = _chosen(reading.throttle_active, THROTTLE_REASONS, "throttle reason")
    bits = {reason: 1 << THROTTLE_REASONS.index(reason) for reason in active}
    return {
        "throttle.supported": sum(bits.values()),
        "throttle.active": sum(bits[reason] for reason, on in active.items() if on),
    }


def _ecc(reading: Reading) -> dict[str, int]:
    counts: dict[tuple[str, ...], float] = {
        **{(*labels, "total"): count for labels, count in (reading.ecc_errors or {}).items()},
        **(reading.ecc_location_errors or {}),
    }
    for kind, lifetime, location in counts:
        if (
            kind not in ("corrected", "uncorrected")
            or lifetime not in ECC_LIFETIMES
            or location not in ("total", *ECC_LOCATIONS)
        ):
            raise ValueError(f"NVML has no ECC counter {kind} {lifetime} {location}")
    return {".".join(("ecc", *labels)): _nearest(count) for labels, count in counts.items()}


def _nvlink(reading: Reading) -> dict[str, int | None]:
    values: dict[str, int | None] = {}
    links = sorted(int(link) for (link,) in (reading.nvlink_up or {}))
    for link in links:
        values[f"nvlink.{link}.state"] = int(bool((reading.nvlink_up or {})[(str(link),)]))
        values[f"nvlink.{link}.version"] = nvlink_version(reading.gpu)
    for (link_text, kind), count in (reading.nvlink_errors or {}).items():
        if kind not in NVLINK_ERRORS:
            raise ValueError(f"NVML has no NVLink error counter {kind}")
        values[f"nvlink.{int(link_text)}.{kind}"] = _nearest(count)
    for direction, total in _chosen(reading.nvlink_bytes, ("tx", "rx"), "NVLink direction").items():
        # The model has one sum, the driver counts by link: every link gets an equal share.
        share, rest = divmod(_nearest(total), len(links) or 1)
        for position, link in enumerate(links or [0]):
            values[f"nvlink.{link}.{direction}"] = share + (position < rest)
    return values


def _fabric(reading: Reading) -> dict[str, str | int]:
    values: dict[str, str | int] = {}
    for (cluster,), clique in (reading.fabric_clique or {}).items():
        values |= {"fabric.cluster": cluster, "fabric.clique": _nearest(clique)}
    if reading.fabric_problem is not None:
        # Two bits a problem: 1 yes, 2 no; the last one (configuration): 1 correct, 4 no partition.
        here = _chosen(reading.fabric_problem, FABRIC_PROBLEMS, "fabric problem")
        codes = {problem: (4, 1) if problem == FABRIC_PROBLEMS[-1] else (1, 2) for problem in here}
        values["fabric.health"] = sum(
            codes[problem][0 if wrong else 1] << 2 * FABRIC_PROBLEMS.index(problem)
            for problem, wrong in here.items()
        )
    return values


def _modes(reading: Reading) -> dict[str, int | None]:
    return {
        "recovery_action": _current(reading.recovery_action, RECOVERY_ACTIONS, "recovery action"),
        "mig_max": None if reading.mig_mode is None else MIG_DEVICES_MAX,
        "compute_mode": _current(reading.compute_mode, COMPUTE_MODES, "compute mode"),
    }
