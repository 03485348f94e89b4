"""Small files of sysfs, read so that nothing they do can harm: a value comes back, or None.

A file that is not there is a thing that the card does not have: None, and nothing to count. One that
answers with an error (EIO while the card resets, EBUSY, ETIMEDOUT, ...) is None too, and counted.
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
    """All of a small file; the only place where a card's files are opened. Links are not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def inside(root: Path, path: Path) -> Path | None:
    """Where `path` really is; None when it is not there, or leads out of `root`."""
    try:
        real = path.resolve(strict=True)
        return real if real.is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: links that go in a circle
        return None


class Files:
    """The files of one folder. Remembers which fields were answered, and which were not, since `begin`."""

    def __init__(self, folder: Path, errors: Errors) -> None:
        self.folder = folder
        self._path = str(folder)  # dozens of files per look: a Path for each costs more than reading it
        self.errors = errors
        self.answered: set[str] = set()
        self.failed: set[str] = set()
        self.denied: set[str] = set()

    def begin(self) -> None:
        """A new look: what was answered before does not count."""
        self.answered.clear()
        self.failed.clear()
        self.denied.clear()

    def raw(self, field: str, name: str) -> bytes | None:
        """The bytes of a file below the folder; an error is counted under `field`."""
        try:
            content = read_file(f"{self._path}/{name}")
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                self._count(field, error.errno)
            return None
        self.answered.add(field)
        return content

    def text(self, field: str, name: str) -> str | None:
        """The words in a file; None when there are none."""
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
        """The number in a file that counts in parts of a base unit, `units` of which make one."""
        number = self.number(field, name)
        return None if number is None else number / units

    def asleep(self) -> bool:
        """Whether the kernel has put the card to sleep; most of its files would wake it up, or fail."""
        return self.text("up", "power/runtime_status") == "suspended"

    def names(self, folder: str) -> list[str]:
        """The names in a folder below this one; none when it is not there."""
        try:
            return sorted(os.listdir(f"{self._path}/{folder}"))  # noqa: PTH208 - names, not paths
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                self._count(folder, error.errno)
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

    The star stands at the current level; equal levels may all have one, and a domain that sleeps none.
    The highest is the first or the last: in a list of three, the middle one is often not a level but
    the clock of this moment. A level S is deep sleep.
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
    """Lines of the form "ue: 3"; what has another form is left out."""
    matches = (_COUNT.fullmatch(line) for line in text.splitlines())
    return {match["name"].lower(): int(match["count"]) for match in matches if match}


_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV}


class ProcessFiles:
    """Reads files of one kind. What fails is None, and counted under `field`.

    A denial is only noted in `denied`: it is one fact, however many files it is about. `count_denial`
    counts it.
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

    def names(self, folder: str) -> list[str] | None:
        """What is in a folder, in the system's order."""
        try:
            return os.listdir(folder)  # noqa: PTH208 - names, not paths
        except OSError as error:
            self._note(error)
            return None

    def numbered(self, folder: str) -> list[tuple[int, int]] | None:
        """The entries of a folder that are named by a number above zero, each with its inode."""
        try:
            with os.scandir(folder) as entries:
                return [
                    (number, entry.inode()) for entry in entries if (number := parse_count(entry.name)) > 0
                ]
        except OSError as error:
            self._note(error)
            return None

    def links(self, folder: str) -> list[tuple[str, str]] | None:
        """The symbolic links in a folder, and where each points."""
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError as error:
            self._note(error)
            return None
        links = []
        try:
            for name in os.listdir(descriptor):  # noqa: PTH208 - a descriptor, not a path
                try:
                    links.append((name, os.readlink(name, dir_fd=descriptor)))
                except PermissionError as error:  # what goes for one goes for all
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
    """A number as the kernel writes it, of at most 64 bits; -1 when it is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        return -1
    number = int(text)
    return number if number < 1 << 64 else -1
