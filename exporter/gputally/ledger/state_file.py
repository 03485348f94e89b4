"""The ledger's state file: one JSON document with a checksum, replaced as a whole.

The file belongs to one exporter at a time, which holds a lock on a file beside it. It is always a regular
file: a symbolic link at its path is renamed like any foreign file, and anything else (a directory, a FIFO, a
device) is neither read nor replaced nor removed.

A document can be resumed from until a time that is written in it, and only where it was written: on the same
boot, and not from a copy. So an exporter that can neither replace nor remove it knows when it has no effect.
"""

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from zlib import crc32

from gputally.files import replace_file, replaceable
from gputally.ledger.state_check import check_state
from gputally.model import Unavailable

MOST_BYTES = 16 << 20
"""Of a document that is written, and of one that is read."""
_MOST_OBJECTS = 100_000
"""In a document that is read: each takes up to 30 times its bytes in memory. Three for each account."""
_COPY_SECONDS = 60
"""The kernel's time of the last change of the file; it cannot be set, as other times of a copy can."""
_HEAD = b'{"format":"gputally ledger","version":'
_VERSION = b"2"
_BODY = re.compile(rb'"crc32":"([0-9a-f]{8})","content":(.*)\}\n', re.DOTALL)
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FIXES = {
    errno.ENOENT: "mkdir -p {directory}",
    errno.ENOSPC: "free space: df -h {directory}; df -i {directory}",
    errno.EDQUOT: "free space, or raise the quota of the exporter's user on {directory}",
    errno.EROFS: "mount {directory} writable, or set another --state-file",
    errno.EACCES: "let the exporter's user write to {directory}, or set another --state-file",
    errno.EINVAL: "set --state-file to the path of a regular file",
}


class Rejected(Exception):
    """The file has no state to resume from. `reason` is torn, foreign, version, invalid, copied or stale."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class InUse(Unavailable):
    """Another exporter uses the same file."""


class Saved(NamedTuple):
    """A document."""

    state: Mapping[str, Any]
    """Of the ledger."""
    saved_at_seconds: float
    """Unix time."""
    until_us: int
    """When it is no longer resumed from, in microseconds since the boot on which it was saved."""


def encode(saved: Saved) -> bytes:
    payload = json.dumps(saved._asdict(), separators=(",", ":"), allow_nan=False).encode()
    checksum = b"%08x" % crc32(payload)
    return b'%b%b,"crc32":"%b","content":%b}\n' % (_HEAD, _VERSION, checksum, payload)


def decode(document: bytes) -> Saved:
    """What is in a complete document; raises Rejected for all others."""
    if not document.startswith(_HEAD):
        if _HEAD.startswith(document):
            raise Rejected("torn", "is cut short")
        raise Rejected("foreign", "was not written by GPUTally")
    version, _, body = document.removeprefix(_HEAD).partition(b",")
    if version != _VERSION and version.isdigit() and len(version) < 10:
        raise Rejected("version", f"has version {int(version)}, not {int(_VERSION)}")
    found = _BODY.fullmatch(body)
    if version != _VERSION or not found or b"%08x" % crc32(found[2]) != found[1]:
        raise Rejected("torn", "is damaged: it does not match its checksum")
    # A correct checksum does not prove who wrote it.
    try:
        return _content(found[2])
    except RecursionError:
        raise Rejected("invalid", "has content that is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise Rejected("invalid", f"has content that no ledger writes: {error}") from None


def _content(payload: bytes) -> Saved:
    if payload.count(b"{") + payload.count(b"[") > _MOST_OBJECTS:
        raise ValueError(f"more than {_MOST_OBJECTS} objects")
    content = json.loads(payload, parse_constant=_no_number)
    if not isinstance(content, dict):
        raise ValueError("no object")
    saved = Saved(**content)
    check_state(saved.state)
    if type(saved.until_us) is not int or type(saved.saved_at_seconds) not in (int, float):
        raise ValueError("no times")
    return saved


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


class StateFile:
    """The file; for one thread at a time. All failures raise Unavailable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def load(self) -> Saved | None:
        """What was saved last; None if there is no file. Raises Rejected if it cannot be used."""
        with self._explained():
            self._hold()
            try:
                return self._read()
            except Rejected as rejected:
                raise self._put_aside(rejected) from None

    def peek(self) -> Saved | None:
        """As `load`, also of a file in use by another exporter; it is left as it is."""
        with self._explained():
            return self._read()

    def reject(self, reason: str, text: str) -> NoReturn:
        """Puts a file aside that was loaded."""
        with self._explained():
            raise self._put_aside(Rejected(reason, text))

    def save(self, saved: Saved) -> None:
        """Replaces the file as a whole. If it fails, what was there before is there still."""
        document = encode(saved)
        if len(document) > MOST_BYTES:
            raise Unavailable(
                f"the ledger takes {len(document) >> 20} MiB; --state-file can have {MOST_BYTES >> 20}",
                "reduce --retention",
            )
        with self._explained():
            self._hold()
            replace_file(self._path, document, unfinished=f"{self._path.name}.tmp", mode=0o600, sync=True)

    def absent(self) -> bool:
        """Whether it is certain that there is no file."""
        try:
            self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def forget(self) -> bool:
        """Removes the file if this exporter owns it; whether it did."""
        try:
            if self._lock is None or not replaceable(self._path):
                return False
            self._path.unlink()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Releases the file for another exporter."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hold(self) -> None:
        if self._lock is not None:
            if os.fstat(self._lock).st_nlink:
                return
            # The lock file was deleted, perhaps with its directory: another exporter would lock a new one.
            self.close()
        path = self._path.with_name(f"{self._path.name}.lock")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE_FLAGS, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise
            reason = f"--state-file {self._path} is in use by another exporter"
            raise InUse(reason, "set another --state-file for each exporter") from error
        self._lock = lock

    def _read(self) -> Saved | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _SAFE_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
                raise Rejected("foreign", "is not a regular file") from None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Rejected("foreign", "is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                document = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(document) > MOST_BYTES:
            raise Rejected("foreign", f"is larger than {MOST_BYTES >> 20} MiB")
        saved = decode(document)
        if abs(status.st_ctime - saved.saved_at_seconds) > _COPY_SECONDS:
            raise Rejected("copied", "was changed or copied after it was saved")
        return saved

    def _put_aside(self, rejected: Rejected) -> Rejected:
        """The rejection with its whole text."""
        text = f"--state-file {self._path} {rejected.text}{self._rename_rejected()}"
        return Rejected(rejected.reason, text)

    def _rename_rejected(self) -> str:
        renamed = self._path.with_name(f"{self._path.name}.rejected")
        try:
            if not replaceable(self._path):
                return ""
            self._path.replace(renamed)
        except OSError as error:
            return f"; it cannot be renamed: {error.strerror}"
        return f"; it was renamed to {renamed}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = _FIXES.get(error.errno or 0, "check {directory}, or set another --state-file")
            raise Unavailable(
                f"--state-file {self._path}: {error.strerror or error}",
                fix.format(directory=self._path.parent),
            ) from error
