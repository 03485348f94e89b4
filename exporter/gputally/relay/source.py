"""Another exporter's text: over HTTP, or from the file that it writes. What is no valid text is dropped."""

import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from glob import glob
from io import BytesIO

from gputally.model import Unavailable
from gputally.relay.fetch import Answer, TargetError, fetch, parse_url
from gputally.relay.text import Told, find_told, is_valid

log = logging.getLogger(__name__)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
MAX_BYTES = 16 * 2**20
_EOF = b"# EOF"


@dataclass(frozen=True, slots=True)
class Relayed:
    """An exporter's text at one moment."""

    text: bytes
    content_type: str
    samples: int
    told: Told = frozenset()
    """What it shares out among pods itself."""
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(what, error) -> count since the relay was made; only ever grows."""
    partial: tuple[str, str] | None = None
    """Reason and fix, when a part is missing: then the source is not up."""

    @property
    def openmetrics(self) -> bool:
        return self.content_type.startswith(OPENMETRICS)


class Relay:
    """The source `relay`. `target` is a URL, or a file's path; a path may have * and ? in it."""

    name = "relay"

    def __init__(
        self, target: str, *, timeout_seconds: float, max_age_seconds: float, max_bytes: int = MAX_BYTES
    ) -> None:
        """Raises TargetError. A file that is older than `max_age_seconds` is not believed."""
        if not target:
            raise TargetError("nothing to relay: give a URL or a path")
        self._url = parse_url(target) if "://" in target else None
        self._pattern = target
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds
        self._max_bytes = max_bytes
        self._errors: Counter[tuple[str, str]] = Counter()
        self._lines_were_broken = False

    def read(self) -> Relayed:
        """Ask once. Raises Unavailable."""
        if self._url is not None:
            answer = fetch(self._url, timeout_seconds=self._timeout_seconds, max_bytes=self._max_bytes)
        else:
            answer = self._read_files()
        content_type = _content_type(answer)
        partial = None
        if answer.cut:
            self._errors["text", "too_large"] += 1
            partial = (
                f"{self._pattern} has more than {self._max_bytes // 2**20} MiB: the rest is left out",
                "see that it is the exporter it should be",
            )
        text, samples = self._valid_part(answer, content_type.startswith(OPENMETRICS))
        told = find_told(BytesIO(text))
        return Relayed(text, content_type, samples, told, dict(self._errors), partial)

    def close(self) -> None:
        """Nothing is held open between two looks."""

    def _valid_part(self, answer: Answer, openmetrics: bool) -> tuple[bytes, int]:
        """The text without the lines that are none, and how many samples are in it."""
        kept = bytearray()
        samples = broken = first_broken = 0
        for number, line in enumerate(BytesIO(_whole_lines(answer)), 1):
            if openmetrics and line.rstrip() == _EOF:
                continue
            if not is_valid(line, openmetrics=openmetrics):
                broken += 1
                first_broken = first_broken or number
                continue
            samples += line.lstrip()[:1] not in (b"", b"#")
            kept += line
        if openmetrics:
            kept += _EOF + b"\n"
        self._tell_broken(broken, first_broken, samples)
        return bytes(kept), samples

    def _tell_broken(self, broken: int, first: int, samples: int) -> None:
        where = f"line {first} of {self._pattern}"
        if broken and not samples:
            raise Unavailable(
                f"{where} is no text of Prometheus, nor is any other", "see that it is an exporter"
            )
        if broken:
            self._errors["line", "invalid"] += broken
            if not self._lines_were_broken:
                log.warning("%s is no valid text: left out, %d lines in all", where, broken)
        self._lines_were_broken = bool(broken)

    def _read_files(self) -> Answer:
        """All files together, in the order of their names."""
        paths = sorted(glob(self._pattern)) or [self._pattern]  # noqa: PTH207  # an absolute pattern
        body = bytearray()
        for path in paths:
            if body and not body.endswith(b"\n"):
                body += b"\n"
            body += self._read_file(path, self._max_bytes + 1 - len(body))
        cut = len(body) > self._max_bytes
        return Answer(bytes(body[: self._max_bytes]), "", cut)

    def _read_file(self, path: str, room: int) -> bytes:
        try:
            # A pipe in its place must not make us wait for whoever writes to it.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise Unavailable(f"{path} is no file", "relay a file, or a URL")
                age = time.time() - status.st_mtime
                if age > self._max_age_seconds:
                    raise Unavailable(
                        f"{path} was written {age:.0f} s ago", "see that the exporter that writes it runs"
                    )
                return file.read(max(0, room))
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be read: {error.strerror}",
                "see that the exporter writes it, and mount it here",
            ) from error


def _whole_lines(answer: Answer) -> bytes:
    if answer.cut:
        return answer.body[: answer.body.rfind(b"\n") + 1]
    return answer.body if answer.body.endswith(b"\n") or not answer.body else answer.body + b"\n"


def _content_type(answer: Answer) -> str:
    told = answer.content_type
    if told.startswith((OPENMETRICS, "text/plain")):
        return told
    if not told and answer.body.rstrip().endswith(b"\n" + _EOF):
        return f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
    return TEXT
