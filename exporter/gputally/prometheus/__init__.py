"""The metrics of this host's GPUs in a service of your own that uses prometheus_client.

    from gputally.prometheus import GPUCollector
    from prometheus_client import REGISTRY

    REGISTRY.register(GPUCollector())

`push` sends one sample to a Pushgateway. This package is the only importer of prometheus_client: `serve`
renders on its own, for less memory and CPU time (docs/library.md).
"""

import logging
import os
import threading
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, pushadd_to_gateway
from prometheus_client.registry import Collector

from gputally.app import build_collector, main_families
from gputally.config import Config, read_config
from gputally.flags import ConfigError
from gputally.metrics.catalog import CATALOG, EXPORTER_METRICS
from gputally.metrics.families import FamiliesOf
from gputally.model import Snapshot
from gputally.prometheus.conversion import client_metric, described
from gputally.prometheus.sharing import Shared

log = logging.getLogger(__name__)

__all__ = ["ConfigError", "GPUCollector"]

_OWN_PROCESS = frozenset(metric.name for metric in EXPORTER_METRICS)
"""prometheus_client has these of its own: they are about the process, not about GPUs."""


class GPUCollector(Collector):
    """Samples the GPUs on a thread of its own, from the first scrape on; a scrape gets the newest sample.

    A setting that is not given is that of `gputally serve`: its environment variable, else its default. All
    others can only be set by environment variables. Raises ConfigError.

    With PROMETHEUS_MULTIPROC_DIR, several processes serve one service. One of them samples, the others serve
    its samples; when it ends, another goes on with its ledger. Register the collector on the registry that
    is served, beside MultiProcessCollector.
    """

    def __init__(
        self,
        *,
        metrics: str | None = None,
        metrics_include: Sequence[str] = (),
        metrics_exclude: Sequence[str] = (),
        interval_seconds: float | None = None,
        process_metrics: bool | None = None,
        state_file: str | os.PathLike[str] | None = None,
        reader: str | None = None,
    ) -> None:
        directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if directory and state_file is None and "GPUTALLY_STATE_FILE" not in os.environ:
            state_file = Path(directory) / "gputally_ledger.json"
        self._config = read_config(
            Namespace(
                metrics=metrics,
                metrics_include=",".join(metrics_include) or None,
                metrics_exclude=",".join(metrics_exclude) or None,
                interval_seconds=None if interval_seconds is None else f"{interval_seconds}s",
                process_metrics=None if process_metrics is None else str(process_metrics).lower(),
                state_file=None if state_file is None else os.fspath(state_file),
                reader=reader,
            )
        )
        self._shared = Shared(Path(directory)) if directory else None
        self._starting = threading.Lock()
        self._sampler: _Sampler | None = None
        os.register_at_fork(after_in_child=self._forget)

    def describe(self) -> Iterable[Metric]:
        """The names that it may have, so that a registry refuses another collector with one of them."""
        chosen = self._config.chosen_metrics
        return [
            described(metric)
            for metric in CATALOG
            if metric.name in chosen and metric.name not in _OWN_PROCESS
        ]

    def collect(self) -> Iterable[Metric]:
        """The newest sample. The first scrape waits for the first one."""
        with self._starting:
            if self._sampler is None and (self._shared is None or self._shared.is_leader()):
                self._sampler = _Sampler(self._config, self._shared)
        if self._sampler is not None:
            return self._sampler.newest()
        if self._shared is not None:
            return self._shared.read(self._config.timeout_seconds, self._config.max_age_seconds)
        return ()

    def close(self) -> None:
        """Ends sampling and releases the driver."""
        with self._starting:
            sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.close()
        if self._shared is not None:
            self._shared.release()

    def _forget(self) -> None:
        """After a fork: threads and locks stay with the parent."""
        self._starting, self._sampler = threading.Lock(), None
        if self._shared is not None:
            self._shared.release()


class _Sampler:
    """The thread that samples, and the newest sample."""

    def __init__(self, config: Config, shared: Shared | None) -> None:
        self._families_of = main_families(config)
        self._shared = shared
        self._metrics: list[Metric] = []
        self._sampled, self._stop = threading.Event(), threading.Event()
        self._timeout_seconds = 2 * config.timeout_seconds
        self._collector = build_collector(config)
        self._thread = threading.Thread(
            target=self._collector.run,
            args=(config.interval_seconds, self._publish, self._stop),
            daemon=True,
            name="gputally-sampler",
        )
        self._thread.start()

    def newest(self) -> list[Metric]:
        self._sampled.wait(self._timeout_seconds)
        return self._metrics

    def close(self) -> None:
        self._stop.set()
        self._thread.join(self._timeout_seconds)
        self._collector.close(1.0)

    def _publish(self, snapshot: Snapshot) -> None:
        self._metrics = _metrics(self._families_of, snapshot)
        if self._shared is not None:
            self._shared.write(self._metrics)
        self._sampled.set()


def push(config: Config) -> int:
    """Takes one sample and sends it to a Pushgateway, for hosts that live too short to be scraped.

    The exit code. Only series of this host are replaced: they have the host name as label `instance`.
    """
    collector = build_collector(config)
    metrics = _metrics(main_families(config), collector.sample())
    collector.close(1.0)
    registry = CollectorRegistry()
    registry.register(_Fixed(metrics))
    try:
        pushadd_to_gateway(
            config.push_gateway,
            job="gputally",
            registry=registry,
            grouping_key={"instance": config.hostname},
            timeout=config.timeout_seconds,
        )
    except OSError as error:  # HTTP errors are, too
        log.error("--push-gateway: %s does not take the sample: %s", config.push_gateway, error)
        return 1
    return 0


class _Fixed(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _metrics(families_of: FamiliesOf, snapshot: Snapshot) -> list[Metric]:
    return [client_metric(one) for one in families_of(snapshot) if one.metric.name not in _OWN_PROCESS]
