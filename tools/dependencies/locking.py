"""Locks between runs, and between the threads of one: they end with whoever holds them."""

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TextIO

from tools import Failed

SECONDS_BETWEEN_TRIES = 0.2


@contextmanager
def locked(file: Path, title: str, stop: Event | None = None) -> Iterator[None]:
    """Hold the lock on a file, which is made if need be and never written to; says so when it waits.

    Raises Failed when `stop` is set while it waits.
    """
    stop = stop or Event()
    with file.open("a") as handle:
        if not _taken(handle):
            print(f"{title}: another run is getting it; waiting", file=sys.stderr, flush=True)
            while not _taken(handle):
                if stop.wait(SECONDS_BETWEEN_TRIES):
                    raise Failed(f"{title}: stopped")
        yield


@contextmanager
def used_together(folder: Path, remove: Callable[[Path], None]) -> Iterator[None]:
    """A folder that several runs may use at the same time; the last of them removes it.

    What a run that was killed has left in it is there for the next.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        folder.mkdir(exist_ok=True)
        try:
            yield
        finally:
            if _taken(handle):
                remove(folder)


def _taken(handle: TextIO) -> bool:
    """Whether nobody else has the lock, so that it is ours alone."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
