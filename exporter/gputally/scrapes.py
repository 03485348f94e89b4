"""What is served at which path, renewed with every snapshot."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputally import __version__
from gputally.config import POD_GPU_PATH, Config
from gputally.flags import ConfigError
from gputally.metrics.all_names import FamiliesOf, each_once, families_of_profiles
from gputally.metrics.compat import DEFAULT_METRIC_PREFIX, Options
from gputally.metrics.exposition import Exposition
from gputally.metrics.families import Family, build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Snapshot
from gputally.pages.exporter import exposed
from gputally.sampling.guard import Guarded
from gputally.server import Page

if TYPE_CHECKING:
    from gputally.relay.upstream import Upstream


class Scrapes:
    """`main` is at --metrics-path; `pages` has that path and the others that there are."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigError."""
        nothing_yet = Snapshot(taken_at_seconds=time.time(), age_seconds=0, readings=(), sources=())
        self.main = Exposition(main_families(config), nothing_yet)
        self.pages: dict[str, Callable[[bool, bool], Page]] = {config.metrics_path: exposed(self.main)}
        self.guests: Sequence[Guarded] = ()
        self._publish: list[Callable[[Snapshot], None]] = [self.main.publish]
        if config.relay:
            self._add_relay(config)
        elif "pod-gpu" in config.profiles:
            pod_gpu = Exposition(families_of_profiles(["pod-gpu"], _options(config)), nothing_yet)
            self.pages[POD_GPU_PATH] = exposed(pod_gpu)
            self._publish.append(pod_gpu.publish)

    def publish(self, snapshot: Snapshot) -> None:
        for publish in self._publish:
            publish(snapshot)

    def _add_relay(self, config: Config) -> None:
        # Memory that nobody uses is not free.
        from gputally.pages.relayed import OursAndRelayed, RelayedMetrics  # noqa: PLC0415

        upstream = _upstream(config)
        alone = RelayedMetrics()
        self.pages[POD_GPU_PATH] = alone.page
        together = OursAndRelayed(self.main) if config.relay_metrics else None
        if together is not None:
            self.pages[config.metrics_path] = together.page

        def publish(snapshot: Snapshot) -> None:
            relayed = upstream.relabelled(snapshot)
            alone.publish(relayed, upstream.state().reason)
            if together is not None:
                together.publish(relayed)

        self.guests = (upstream,)
        self._publish.append(publish)


def main_families(config: Config) -> FamiliesOf:
    """Ours, and those of the profiles."""

    def ours(snapshot: Snapshot) -> list[Family]:
        if not config.process_metrics:  # then they are here for another tool's names alone
            snapshot = replace(snapshot, processes=())
        return build_families(snapshot, read_exporter_facts(__version__, config.hostname))

    if not config.profiles:
        return ours
    others = families_of_profiles(config.profiles, _options(config))
    return lambda snapshot: each_once([*ours(snapshot), *others(snapshot)])


def _options(config: Config) -> Options:
    return Options(
        hostname=config.hostname_override or config.node_name or config.hostname,
        metric_prefix=config.metric_prefix or DEFAULT_METRIC_PREFIX,
    )


def _upstream(config: Config) -> "Upstream":
    from gputally.relay.fetch import TargetError  # noqa: PLC0415
    from gputally.relay.source import Relay  # noqa: PLC0415
    from gputally.relay.upstream import Upstream  # noqa: PLC0415

    try:
        # A little less than the whole time, so that a slow one is named and not overrun.
        relay = Relay(
            config.relay,
            timeout_seconds=config.timeout_seconds * 0.8,
            max_age_seconds=config.max_age_seconds,
        )
    except TargetError as error:
        raise ConfigError(f"--relay: {error}") from None
    return Upstream(relay, config.max_age_seconds)
