"""Where a card is in a planted tree, and a way to spoil it."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.devices.amdgpu import files


def device(tree: Path, card: int) -> Path:
    """The directory with the files of a card."""
    return (tree / f"sys/class/drm/card{card}/device").resolve()


def fail_files(patch: pytest.MonkeyPatch, code: int, fails: Callable[[Path], bool]) -> None:
    """From now on these files answer with an error, wherever they are."""
    read = files.read_file

    def read_or_fail(path: str) -> bytes:
        if fails(Path(path)):
            raise OSError(code, errno.errorcode[code], path)
        return read(path)

    patch.setattr(files, "read_file", read_or_fail)
