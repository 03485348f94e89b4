"""Files about processes, which may end while they are read: that is no error, and not counted."""

import errno
import os

from gputally.devices.amdgpu.files import Errors

_MOST_BYTES = 1 << 16
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV}


class FleetingFiles:
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
