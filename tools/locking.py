"""One run at a time: a lock between processes that ends with whoever holds it."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, title: str) -> Iterator[None]:
    """Hold the lock on a file, which is made if need be and never written to; says so when it waits."""
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{title}: another run is getting it; waiting", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
