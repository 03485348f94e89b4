"""Locks between runs, and between the threads of one run. They end with the process that holds them."""

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
    """Holds the lock on a file, which is created if needed and never written to; prints a line when it waits.

    Raises Failed when `stop` is set while it waits.
    """
    stop = stop or Event()
    with file.open("a") as handle:
        if not _taken(handle):
            print(f"{title}: another run is installing it; waiting", file=sys.stderr, flush=True)
            while not _taken(handle):
                if stop.wait(SECONDS_BETWEEN_TRIES):
                    raise Failed(f"{title}: stopped")
        yield


@contextmanager
def shared_directory(directory: Path, remove: Callable[[Path], None]) -> Iterator[None]:
    """A directory that several runs may use at the same time; the last one removes it.

    Files that a killed run has left in it are available to the next run.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        directory.mkdir(exist_ok=True)
        try:
            yield
        finally:
            if _taken(handle):
                remove(directory)


def _taken(handle: TextIO) -> bool:
    """Whether this process now holds the lock, and no other does."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
