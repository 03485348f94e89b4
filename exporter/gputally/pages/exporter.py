"""What the server shows: the metrics, whether they can be trusted, and a page for people."""

import time
from collections.abc import Callable, Mapping

from gputally import __version__
from gputally.metrics.exposition import OPENMETRICS, TEXT, Exposition
from gputally.model import Snapshot
from gputally.server import Page


class ExporterPages:
    """Serves the newest snapshot of an `Exposition`, and what there is at each path."""

    def __init__(
        self,
        exposition: Exposition,
        metrics: Mapping[str, Callable[[bool, bool], Page]],
        *,
        hostname: str,
        metrics_path: str,
        max_age_seconds: float,
    ) -> None:
        self._exposition = exposition
        self._metrics = metrics
        self._hostname = hostname
        self._metrics_path = metrics_path
        self._max_age_seconds = max_age_seconds

    def metrics(self, path: str, openmetrics: bool, gzip: bool) -> Page:
        return self._metrics[path](openmetrics, gzip)

    def landing(self) -> Page:
        from gputally.pages.landing import render_landing  # noqa: PLC0415  # scrapers never ask for it

        body = render_landing(
            self._exposition.snapshot,
            version=__version__,
            hostname=self._hostname,
            metrics_path=self._metrics_path,
        )
        return Page("text/html; charset=utf-8", body, False)

    def ready(self) -> tuple[bool, str]:
        return readiness(self._exposition.snapshot, time.time(), self._max_age_seconds)


def exposed(exposition: Exposition) -> Callable[[bool, bool], Page]:
    """The exposition as a page."""

    def page(openmetrics: bool, gzip: bool) -> Page:
        body = exposition.body(openmetrics=openmetrics, gzipped=gzip)
        return Page(OPENMETRICS if openmetrics else TEXT, body, gzip)

    return page


def readiness(snapshot: Snapshot, now_seconds: float, max_age_seconds: float) -> tuple[bool, str]:
    """Ready once every source has answered, be it with no, and as long as the answers are not too old."""
    if not snapshot.sources:
        return False, "not ready: the first sample is not done"
    down = "; ".join(f"{source.name}: {source.reason}" for source in snapshot.sources if not source.up)
    age = snapshot.age_seconds + max(0.0, now_seconds - snapshot.taken_at_seconds)
    if age > max_age_seconds:
        return False, f"not ready: the readings are {age:.0f} s old" + (f" ({down})" if down else "")
    gpus = sum(reading.up for reading in snapshot.readings)
    return True, f"ready: {gpus} GPUs" + (f" ({down})" if down else "")
