"""A watch that scrapes all the time: whatever breaks, /metrics must go on answering."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.exporter import Exporter
from tools.servers.waiting import wait_until

Watch = Callable[[Exporter], AbstractContextManager[None]]

# Milliseconds are what one sees; a loaded test machine gets some room.
SLOWEST_SECONDS = 1.0


@pytest.fixture
def watched() -> Watch:
    """`with watched(exporter):` fails when a scrape fails or is slow while the block runs."""

    @contextmanager
    def watch(exporter: Exporter) -> Iterator[None]:
        seconds: list[float] = []
        failures: list[BaseException] = []
        stop = threading.Event()

        def scrape_on() -> None:
            while not stop.wait(0.02):
                started = time.monotonic()
                try:
                    exporter.scrape()
                except (OSError, AssertionError) as error:
                    failures.append(error)
                seconds.append(time.monotonic() - started)

        thread = threading.Thread(target=scrape_on)
        thread.start()
        try:
            yield
            wait_until(lambda: len(seconds) >= 10, "ten scrapes are done")
        finally:
            stop.set()
            thread.join()
        assert not failures
        assert max(seconds) < SLOWEST_SECONDS

    return watch
