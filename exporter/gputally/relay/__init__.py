"""Reads another exporter of the same GPUs and adds pod labels to its series. Imported only for --relay.

The source `relay` reads over HTTP (`fetch`) or from files and drops invalid lines; `relabel` adds labels.
"""

import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from glob import glob
from io import BytesIO

from gputally.model import Snapshot, Unavailable
from gputally.relay.fetch import Fetched, TargetError, fetch, parse_url
from gputally.relay.relabel import Attributed, find_attributed, find_only_pods, is_valid, relabel
from gputally.sampling.guard import Attempt, Guarded, Record

log = logging.getLogger(__name__)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
MAX_BYTES = 16 * 2**20
_EOF = b"# EOF"


@dataclass(frozen=True, slots=True)
class Relayed:
    """The text of one read."""

    text: bytes
    content_type: str
    samples: int
    attributed: Attributed = frozenset()
    """Metrics that the exporter labels with pods itself."""
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(subject, error) -> count since the relay was created."""
    partial: tuple[str, str] | None = None
    """Reason and fix when a part is missing: then the source is not up."""

    @property
    def openmetrics(self) -> bool:
        return self.content_type.startswith(OPENMETRICS)


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
        if self._url is not None:
            fetched = fetch(self._url, timeout_seconds=self._timeout_seconds, max_bytes=self._max_bytes)
        else:
            fetched = self._read_files()
        content_type = _content_type(fetched)
        partial = None
        if fetched.truncated:
            self._errors["text", "too_large"] += 1
            partial = (
                f"{self._pattern} is larger than {self._max_bytes // 2**20} MiB: the rest is dropped",
                "check that it is the intended exporter",
            )
        text, samples = self._valid_part(fetched, content_type.startswith(OPENMETRICS))
        attributed = find_attributed(BytesIO(text))
        return Relayed(text, content_type, samples, attributed, dict(self._errors), partial)

    def close(self) -> None:
        """Nothing stays open between two reads."""

    def _valid_part(self, fetched: Fetched, openmetrics: bool) -> tuple[bytes, int]:
        """The text without its invalid lines, and its number of samples."""
        kept = bytearray()
        samples = invalid = first_invalid = 0
        for number, line in enumerate(BytesIO(_whole_lines(fetched)), 1):
            if openmetrics and line.rstrip() == _EOF:
                continue
            if not is_valid(line, openmetrics=openmetrics):
                invalid += 1
                first_invalid = first_invalid or number
                continue
            samples += line.lstrip()[:1] not in (b"", b"#")
            kept += line
        if openmetrics:
            kept += _EOF + b"\n"
        self._report_invalid(invalid, first_invalid, samples)
        return bytes(kept), samples

    def _report_invalid(self, invalid: int, first: int, samples: int) -> None:
        where = f"line {first} of {self._pattern}"
        if invalid and not samples:
            raise Unavailable(
                f"{where} is not Prometheus text, nor is any other line", "check that it is an exporter"
            )
        if invalid:
            self._errors["line", "invalid"] += invalid
            if not self._lines_were_invalid:
                log.warning("%s is invalid: %d lines are dropped", where, invalid)
        self._lines_were_invalid = bool(invalid)

    def _read_files(self) -> Fetched:
        """All files, in the order of their names."""
        paths = sorted(glob(self._pattern)) or [self._pattern]  # noqa: PTH207  # an absolute pattern
        body = bytearray()
        for path in paths:
            if body and not body.endswith(b"\n"):
                body += b"\n"
            body += self._read_file(path, self._max_bytes + 1 - len(body))
        truncated = len(body) > self._max_bytes
        return Fetched(bytes(body[: self._max_bytes]), "", truncated)

    def _read_file(self, path: str, room: int) -> bytes:
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
                return file.read(max(0, room))
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

    def relabelled(self, snapshot: Snapshot) -> Relayed | None:
        """Its text with the pods of the snapshot; None while there is no current one."""
        if self._relayed is None or time.monotonic() - self._read_at > self._max_age_seconds:
            return None
        lines = relabel(BytesIO(self._relayed.text), find_only_pods(snapshot), self._relayed.attributed)
        return replace(self._relayed, text=b"".join(lines))

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


def _whole_lines(fetched: Fetched) -> bytes:
    if fetched.truncated:
        return fetched.body[: fetched.body.rfind(b"\n") + 1]
    return fetched.body if fetched.body.endswith(b"\n") or not fetched.body else fetched.body + b"\n"


def _content_type(fetched: Fetched) -> str:
    declared = fetched.content_type
    if declared.startswith((OPENMETRICS, "text/plain")):
        return declared
    if not declared and fetched.body.rstrip().endswith(b"\n" + _EOF):
        return f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
    return TEXT
