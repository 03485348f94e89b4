"""NVLink: which counters a GPU has depends on the generation of its links, and so on its compute capability.

Bytes are sums over all links, made by the driver and read with every sample. States and errors are read link
by link, once a minute: up to 200 values per GPU that hardly change.
"""

from functools import cache
from time import monotonic
from typing import NamedTuple

from gputally.devices import Values
from gputally.devices.nvml.fields import ALL_LINKS, FieldBatch, Slot
from gputally.devices.nvml.library import Query

FILLS = frozenset({"nvlink_up", "nvlink_errors", "nvlink_bytes"})
PER_LINK_SECONDS = 60.0

_MOST_LINKS = 72
_LINK_COUNT, _STATE = 91, 165
_STATE_FUNCTION = "nvmlDeviceGetNvLinkState"
_ERROR_FUNCTION = "nvmlDeviceGetNvLinkErrorCounter"
_KIBIBYTES = {"tx": 138, "rx": 139}
_BYTES = {"tx": 202, "rx": 204}


class _Generation(NamedTuple):
    """The error counters of one generation of NVLink by type."""

    by_link: dict[str, tuple[int, int]]
    """The link is part of the field id: the ids of link 0 and of link 6. There are at most twelve links."""
    by_scope: dict[str, int]
    """The link is the scope of the field id."""
    by_function: dict[str, int]
    """nvmlNvLinkErrorCounter_t: counters without a field id."""


_UP_TO_AMPERE = _Generation(
    {
        "crc_flit": (32, 96),
        "crc_data": (39, 102),
        "replay": (46, 108),
        "recovery": (53, 114),
        "ecc_data": (148, 154),
    },
    {},
    {},
)
# The ids above succeed on Hopper, with 0 for ever.
_HOPPER = _Generation({}, {"replay": 161, "recovery": 162, "crc_flit": 163}, {"crc_data": 3, "ecc_data": 4})
_BLACKWELL = _Generation(
    {},
    {
        "malformed_packet": 206,
        "buffer_overrun": 207,
        "receive": 208,
        "link_integrity": 211,
        "transmit_discard": 212,
        "link_recovery_failed": 214,
        "link_recovery": 215,
    },
    {},
)


def _generation_of(major: int) -> _Generation:
    """By the major number of the compute capability."""
    return _BLACKWELL if major >= 10 else _HOPPER if major == 9 else _UP_TO_AMPERE


class NvLinks:
    """The NVLinks of one device."""

    def __init__(self, query: Query, compute_capability: str | None) -> None:
        self._query = query
        major = int((compute_capability or "0").partition(".")[0])
        self._fifth = major >= 10
        self._generation = _generation_of(major)
        self._links = range(_count(query))
        self._batch = FieldBatch(query, _slots_of_links(major, len(self._links)))
        self._values: Values = {}
        self.changed = False
        """True when the last read found a link up that was down before, or the reverse."""
        self.forget()

    def sum_slots(self) -> list[Slot]:
        """The slots of the sums over all links; single links where the driver does not add them up."""
        if not self._links:
            return []
        sums = [
            Slot("nvlink_bytes", id, (direction,), ALL_LINKS, times=1024)
            for direction, id in _KIBIBYTES.items()
        ]
        if not self._fifth:
            return sums
        scopes = (ALL_LINKS, *self._links)
        return [
            *(Slot("nvlink_bytes", id, (way,), scope) for way, id in _BYTES.items() for scope in scopes),
            *sums,
        ]

    def forget(self) -> None:
        """Reads all links anew at the next read."""
        self._due = 0.0
        self._batch.forget()

    def read(self) -> Values:
        """States and errors by link, at most a minute old."""
        self.changed = False
        if self._links and (now := monotonic()) >= self._due:
            errors = self._query.library.errors.total()
            values = self._read_links()
            if "nvlink_up" in self._values and values.get("nvlink_up") != self._values["nvlink_up"]:
                self.changed = True  # a link has counters only while it is up
                self._query.forget()
                self._batch.forget()
                values = self._read_links()
            self._values = values
            failed = self._query.library.errors.total() != errors
            self._due = now if failed else now + PER_LINK_SECONDS
        return self._values

    def _read_links(self) -> Values:
        values = self._batch.read()
        states = dict(values.get("nvlink_up", {}))
        errors = dict(values.get("nvlink_errors", {}))
        for link in self._links:
            name = str(link)
            if (name,) not in states:
                state = self._query.number("nvlink_up", _STATE_FUNCTION, link)
                if state is not None:
                    states[name,] = state
            for kind, counter in self._generation.by_function.items():
                count = self._query.number("nvlink_errors", _ERROR_FUNCTION, link, counter)
                if count is not None:
                    errors[name, kind] = count
        up = {link: float(state != 0) for link, state in states.items()}  # 2: up, in low power
        return {field: found for field, found in (("nvlink_up", up), ("nvlink_errors", errors)) if found}


@cache
def _slots_of_links(major: int, links: int) -> tuple[Slot, ...]:
    """Of any GPU: the GPUs of a host share them."""
    return tuple(slot for link in range(links) for slot in _slots(_generation_of(major), link))


def _slots(generation: _Generation, link: int) -> list[Slot]:
    by_link, by_scope, _ = generation
    ids = {kind: low + link if link < 6 else high + link - 6 for kind, (low, high) in by_link.items()}
    errors = {**(ids if link < 12 else {}), **by_scope}
    return [
        Slot("nvlink_up", _STATE, (str(link),), link),
        *(Slot("nvlink_errors", id, (str(link), kind), link) for kind, id in errors.items()),
    ]


def _count(query: Query) -> int:
    count = FieldBatch(query, (Slot("nvlinks", _LINK_COUNT),)).read().get("nvlinks")
    if count is not None:
        return min(int(count), _MOST_LINKS)
    links = 0
    while links < _MOST_LINKS and query.number("nvlinks", _STATE_FUNCTION, links) is not None:
        links += 1
    return links
