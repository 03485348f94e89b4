"""Small files of sysfs and procfs. Reading one returns a value or None, and never raises.

A missing file of sysfs is a value that the GPU does not support: None, and no error. Any other failure (EIO
during a reset, EBUSY, ETIMEDOUT, ...) is None too, and counted. A missing file of procfs is of a process that
has ended.
"""

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputally.devices import Errors

_MOST_BYTES = 1 << 16  # a file of sysfs is a page of memory: 4 KiB, on some machines 64 KiB
_NOT_SUPPORTED = {errno.ENOENT, errno.ENOTDIR, errno.ENODATA, errno.EOPNOTSUPP}
_LEVEL = re.compile(
    r"\s*(?P<level>[0-9]{1,3}|s):\s*(?P<megahertz>[0-9]{1,9})\s*mhz\s*(?P<current>\*)?\s*", re.IGNORECASE
)
_COUNT = re.compile(r"\s*(?P<name>[a-z]{1,20}):\s*(?P<count>[0-9]{1,20})\s*", re.IGNORECASE)


def read_file(path: str) -> bytes:
    """The content of a small file of a GPU. Links are not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def inside(root: Path, path: Path) -> Path | None:
    """The real path; None when it does not exist or leads out of `root`."""
    try:
        real = path.resolve(strict=True)
        return real if real.is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return None


class Files:
    """The files of one directory. Records which fields were read, and which failed, since `begin`."""

    def __init__(self, directory: Path, errors: Errors) -> None:
        self.directory = directory
        self._path = str(
            directory
        )  # dozens of files per sample: a Path for each would cost more than reading it
        self.errors = errors
        self.succeeded: set[str] = set()
        self.failed: set[str] = set()
        self.denied: set[str] = set()

    def begin(self) -> None:
        """Starts a new sample and clears the record."""
        self.succeeded.clear()
        self.failed.clear()
        self.denied.clear()

    def raw(self, field: str, name: str) -> bytes | None:
        """The bytes of a file below the directory; an error is counted under `field`."""
        try:
            content = read_file(f"{self._path}/{name}")
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                self._count(field, error.errno)
            return None
        self.succeeded.add(field)
        return content

    def text(self, field: str, name: str) -> str | None:
        """The text of a file; None when it is empty."""
        content = self.raw(field, name)
        if content is None:
            return None
        return content.decode(errors="replace").replace("\0", "").strip() or None

    def number(self, field: str, name: str) -> int | None:
        """The whole number in a file, decimal, or hexadecimal with 0x."""
        text = self.text(field, name)
        if text is None:
            return None
        number = parse_number(text)
        if number is None:
            self.errors[field, "malformed"] += 1
        return number

    def divided(self, field: str, name: str, units: int) -> float | None:
        """The number in a file, divided by the `units` per base unit."""
        number = self.number(field, name)
        return None if number is None else number / units

    def suspended(self) -> bool:
        """Whether the GPU is suspended; most of its files would wake it up, or fail."""
        return self.text("up", "power/runtime_status") == "suspended"

    def names(self, directory: str) -> list[str]:
        """The names in a directory below this one; none when it does not exist."""
        try:
            return sorted(os.listdir(f"{self._path}/{directory}"))  # noqa: PTH208 - names, not paths
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                self._count(directory, error.errno)
            return []

    def _count(self, field: str, code: int | None) -> None:
        self.errors[field, errno.errorcode.get(code or 0, "unknown").lower()] += 1
        (self.denied if code == errno.EACCES else self.failed).add(field)


def parse_number(text: str) -> int | None:
    """A number of at most 64 bits."""
    try:
        number = int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**64 else None


@dataclass(frozen=True, slots=True)
class Levels:
    """The clocks of one domain."""

    current_hertz: int | None
    max_hertz: int | None


def parse_levels(text: str) -> Levels | None:
    """The levels of a pp_dpm_* file; None when it lists none.

    A star marks the current level; equal levels may all have one, a sleeping domain has none. The highest
    level is the first or the last: of three, the middle one is often the current clock and not a level.
    A level S is deep sleep.
    """
    levels = [match for line in text.splitlines() if (match := _LEVEL.fullmatch(line))]
    if not levels:
        return None
    current = [int(match["megahertz"]) for match in levels if match["current"]]
    steady = [int(match["megahertz"]) for match in levels if match["level"].isdecimal()]
    return Levels(
        current_hertz=current[-1] * 1_000_000 if current else None,
        max_hertz=max(steady[0], steady[-1]) * 1_000_000 or None if steady else None,
    )


def parse_counts(text: str) -> Mapping[str, int]:
    """Lines of the form "ue: 3"; other lines are left out."""
    matches = (_COUNT.fullmatch(line) for line in text.splitlines())
    return {match["name"].lower(): int(match["count"]) for match in matches if match}


_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV}


class ProcessFiles:
    """Reads files about processes, which may end while they are read.

    A failure is None, and counted under `field`. Missing permission only sets `denied`, however many files it
    concerns; `count_denial` counts it once.
    """

    def __init__(self, field: str, errors: Errors) -> None:
        self.denied = False
        self._field = field
        self._errors = errors

    def count_denial(self) -> None:
        self._errors[self._field, "permission"] += 1

    def read(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._note(error)
            return None
        try:
            return os.read(descriptor, _MOST_BYTES)
        except OSError as error:
            self._note(error)
            return None
        finally:
            os.close(descriptor)

    def names(self, directory: str) -> list[str] | None:
        """The names in a directory, in the system's order."""
        try:
            return os.listdir(directory)  # noqa: PTH208 - names, not paths
        except OSError as error:
            self._note(error)
            return None

    def numbered(self, directory: str) -> list[tuple[int, int]] | None:
        """The entries of a directory whose name is a number above 0, each with its inode."""
        try:
            with os.scandir(directory) as entries:
                return [
                    (number, entry.inode()) for entry in entries if (number := parse_count(entry.name)) > 0
                ]
        except OSError as error:
            self._note(error)
            return None

    def links(self, directory: str) -> list[tuple[str, str]] | None:
        """The symbolic links in a directory, and the target of each."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError as error:
            self._note(error)
            return None
        links = []
        try:
            for name in os.listdir(descriptor):  # noqa: PTH208 - a descriptor, not a path
                try:
                    links.append((name, os.readlink(name, dir_fd=descriptor)))
                except PermissionError as error:  # all links of a process have the same permission
                    self._note(error)
                    return None
                except OSError as error:
                    self._note(error)
        except OSError as error:
            self._note(error)
            return None
        finally:
            os.close(descriptor)
        return links

    def _note(self, error: OSError) -> None:
        if isinstance(error, PermissionError):
            self.denied = True
        elif error.errno not in _GONE:
            self._errors[self._field, errno.errorcode.get(error.errno or 0, "unknown").lower()] += 1


def parse_count(text: str) -> int:
    """A decimal number of at most 64 bits; -1 when the text is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        return -1
    number = int(text)
    return number if number < 1 << 64 else -1
