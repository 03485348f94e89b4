"""The ledger's checkpoint on disk: one JSON document with a checksum, replaced as a whole.

The file belongs to one exporter at a time, which holds a lock on a file beside it. It is always a regular
file: a symbolic link at its path is renamed like any foreign file, and anything else (a directory, a FIFO, a
device) is neither read nor replaced nor removed.
"""

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from gputally.model import Unavailable

_HEAD = b'{"format":"gputally ledger","version":'
_VERSION = b"1"
_BODY = re.compile(rb'"crc32":"([0-9a-f]{8})","state":(.*)\}\n', re.DOTALL)
_MOST_BYTES = 8 << 20
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FIXES = {
    errno.ENOENT: "mkdir -p {directory}",
    errno.ENOSPC: "free space: df -h {directory}; df -i {directory}",
    errno.EDQUOT: "free space, or raise the quota of the exporter's user on {directory}",
    errno.EROFS: "mount {directory} writable, or set another --state-file",
    errno.EACCES: "let the exporter's user write to {directory}, or set another --state-file",
}


class Rejected(Exception):
    """The file has no state to resume from. `reason` is torn, foreign or version."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class InUse(Unavailable):
    """Another exporter uses the same file."""


def encode(state: Mapping[str, Any]) -> bytes:
    payload = json.dumps(dict(state), separators=(",", ":"), allow_nan=False).encode()
    checksum = b"%08x" % crc32(payload)
    return b'%b%b,"crc32":"%b","state":%b}\n' % (_HEAD, _VERSION, checksum, payload)


def decode(document: bytes) -> Mapping[str, Any]:
    """The state in a complete document; raises Rejected for all others."""
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
        state = json.loads(found[2])
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise Rejected("foreign", "was not written by GPUTally")
    return state


class StateFile:
    """The file; for one thread at a time. All failures raise Unavailable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def load(self) -> Mapping[str, Any] | None:
        """The last saved state; None if there is none. Raises Rejected if it cannot be used."""
        with self._explained():
            self._hold()
            try:
                document = self._read()
                return None if document is None else decode(document)
            except Rejected as rejected:
                text = f"--state-file {self._path} {rejected.text}{self._rename_rejected()}"
                raise Rejected(rejected.reason, text) from None

    def save(self, state: Mapping[str, Any]) -> None:
        """Replaces the file as a whole: even after a power cut it has the old state or the new one."""
        document = encode(state)
        with self._explained():
            self._hold()
            if not self._replaceable():
                raise Unavailable(
                    f"--state-file {self._path} is not a regular file",
                    "set --state-file to the path of a regular file",
                )
            unfinished = self._path.with_name(f"{self._path.name}.tmp")
            unfinished.unlink(missing_ok=True)  # an exporter that was killed may have left it
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
                with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
                    file.write(document)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self._path)
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise
            self._sync_directory()

    def forget(self) -> None:
        """Removes the file, if possible and if this exporter owns it."""
        with suppress(OSError):
            if self._lock is not None and self._replaceable():
                self._path.unlink(missing_ok=True)
                self._sync_directory()

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

    def _read(self) -> bytes | None:
        mode = self._mode()
        if mode is None:
            return None
        if not stat.S_ISREG(mode):
            raise Rejected("foreign", "is not a regular file")
        with os.fdopen(os.open(self._path, os.O_RDONLY | _SAFE_FLAGS), "rb") as file:
            document = file.read(_MOST_BYTES + 1)
        if len(document) > _MOST_BYTES:
            raise Rejected("foreign", f"is larger than {_MOST_BYTES >> 20} MiB")
        return document

    def _rename_rejected(self) -> str:
        renamed = self._path.with_name(f"{self._path.name}.rejected")
        try:
            if not self._replaceable():
                return ""
            self._path.replace(renamed)
        except OSError as error:
            return f"; it cannot be renamed: {error.strerror}"
        return f"; it was renamed to {renamed}"

    def _replaceable(self) -> bool:
        """A device is not: `--state-file /dev/null`, run as root, must not remove it from the host."""
        mode = self._mode()
        return mode is None or stat.S_ISREG(mode) or stat.S_ISLNK(mode)

    def _mode(self) -> int | None:
        with suppress(FileNotFoundError):
            return self._path.lstat().st_mode
        return None

    def _sync_directory(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

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
