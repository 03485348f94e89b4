"""A watch that scrapes all the time: whatever breaks, /metrics must go on answering."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.exporter import Exporter
from tools.servers.waiting import wait_until

Watch = Callable[[Exporter], AbstractContextManager[None]]


@pytest.fixture
def watched() -> Watch:
    """`with watched(exporter):` fails when a scrape fails, or waits for what hangs, while the block runs."""

    @contextmanager
    def watch(exporter: Exporter) -> Iterator[None]:
        scrapes = 0
        failures: list[BaseException] = []
        stop = threading.Event()

        def scrape_on() -> None:
            nonlocal scrapes
            while not stop.wait(0.02):
                try:
                    exporter.scrape()
                except (OSError, AssertionError) as error:
                    failures.append(error)
                scrapes += 1

        thread = threading.Thread(target=scrape_on)
        thread.start()
        try:
            yield
            wait_until(lambda: scrapes >= 10, "ten scrapes are done")
        finally:
            stop.set()
            thread.join()
        assert not failures

    return watch
