"""Reads another exporter of the same GPUs and adds pod labels to its series. Imported only for --relay.

The source `relay` reads over HTTP (`fetch`) or from files, keeps what is valid (`text`), and adds labels
(`relabel`).
"""

import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob

from gputally.model import Snapshot, Unavailable
from gputally.relay.fetch import TargetError, fetch, parse_url
from gputally.relay.relabel import find_only_pods, render
from gputally.relay.text import MAX_BYTES, Family, Text
from gputally.sampling.guard import Attempt, Guarded, Record

log = logging.getLogger(__name__)

_OPENMETRICS = "application/openmetrics-text"
_EOF = b"# EOF"
_TAIL_BYTES = 64
_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Relayed:
    """What one read found."""

    families: Sequence[Family]
    samples: int
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(subject, error) -> count since the relay was created."""
    partial: tuple[str, str] | None = None
    """Reason and fix when a part is missing: then the source is not up."""


class Relay:
    """Reads a URL, or the files that match a path with * and ?."""

    name = "relay"

    def __init__(
        self, target: str, *, timeout_seconds: float, max_age_seconds: float, max_bytes: int = MAX_BYTES
    ) -> None:
        """Raises TargetError. A file older than `max_age_seconds` is ignored."""
        if not target:
            raise TargetError("no target: set a URL or a path")
        self._url = parse_url(target) if "://" in target else None
        self._pattern = target
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds
        self._max_bytes = max_bytes
        self._errors: Counter[tuple[str, str]] = Counter()
        self._lines_were_invalid = False

    def read(self) -> Relayed:
        """Read once. Raises Unavailable."""
        text = Text(self._max_bytes)
        if self._url is not None:
            with fetch(self._url, timeout_seconds=self._timeout_seconds, max_bytes=self._max_bytes) as got:
                text.add(got.pieces, openmetrics=got.content_type.startswith(_OPENMETRICS))
        else:
            for path in sorted(glob(self._pattern)) or [self._pattern]:  # noqa: PTH207  # an absolute pattern
                self._add_file(path, text)
        self._report(text)
        partial = None
        if text.cut:
            partial = (
                f"{self._pattern} has more than {text.cut}: the rest is dropped",
                "check that it is the intended exporter",
            )
        return Relayed(text.families(), text.samples, dict(self._errors), partial)

    def close(self) -> None:
        """Nothing stays open between two reads."""

    def _report(self, text: Text) -> None:
        where = f"line {text.first_invalid} of {self._pattern}"
        if text.invalid and not text.samples:
            raise Unavailable(
                f"{where} is not Prometheus text, nor is any other line", "check that it is an exporter"
            )
        counts = {
            ("line", "invalid"): text.invalid,
            ("series", "duplicate"): text.duplicates,
            ("text", "too_large"): int(bool(text.cut)),
        }
        self._errors.update({error: count for error, count in counts.items() if count})
        if text.invalid and not self._lines_were_invalid:
            log.warning("%s is invalid: %d lines are dropped", where, text.invalid)
        self._lines_were_invalid = bool(text.invalid)

    def _add_file(self, path: str, text: Text) -> None:
        try:
            # Opening a pipe must not block.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise Unavailable(f"{path} is not a regular file", "relay a file or a URL")
                age = time.time() - status.st_mtime
                if age > self._max_age_seconds:
                    raise Unavailable(
                        f"{path} was written {age:.0f} s ago",
                        "check that the exporter that writes it is running",
                    )
                file.seek(max(0, status.st_size - _TAIL_BYTES))
                openmetrics = file.read(_TAIL_BYTES).rstrip().endswith(b"\n" + _EOF)
                file.seek(0)
                text.add(iter(lambda: file.read(_PIECE_BYTES), b""), openmetrics=openmetrics)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be read: {error.strerror}",
                "check that the exporter writes it, and mount it here",
            ) from error


class Upstream(Guarded):
    """The relay, guarded like other sources. Its last text stays while it is slow, until it is too old."""

    def __init__(self, relay: Relay, max_age_seconds: float) -> None:
        super().__init__([relay], "check that the relayed exporter is running")
        self._max_age_seconds = max_age_seconds
        self._relayed: Relayed | None = None
        self._read_at = time.monotonic()

    def relabelled(self, snapshot: Snapshot) -> list[tuple[bytes, bytes]] | None:
        """Name and text of its families, with the pods of the snapshot; None while there are none."""
        if self._relayed is None or time.monotonic() - self._read_at > self._max_age_seconds:
            return None
        return list(render(self._relayed.families, find_only_pods(snapshot)))

    def _take_in(self, one: Attempt, record: Record) -> None:
        self._relayed = one.result
        if self._relayed is None:
            record.fail(one)
            return
        self._read_at = one.ended_at
        record.read_errors = dict(self._relayed.errors)
        if self._relayed.partial:
            record.mark_down(*self._relayed.partial)
        else:
            record.succeed(one, f"{self._relayed.samples} samples")
