"""`gputally serve`: builds the collector, the endpoints and the server, and runs them until a signal."""

import ctypes
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

from gputally import __version__
from gputally.attribution import OwnerFinder, PodSource
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.pod_sources import choose_pod_sources
from gputally.config import POD_GPU_PATH, Config
from gputally.declarations import Group
from gputally.devices import Reader
from gputally.devices.host import choose_readers, read_boot_id, read_host
from gputally.devices.vendors import ReaderSettings
from gputally.flags import ConfigError
from gputally.ledger import Ledger
from gputally.metrics.compat import DEFAULT_METRIC_PREFIX, PROFILES, Options, ProfileInput, load_profile
from gputally.metrics.families import FamiliesOf, Family, build_families, merge_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Snapshot
from gputally.pages import Endpoints
from gputally.pages.about import About
from gputally.pages.narrowed import Narrow
from gputally.sampling.collect import Collector
from gputally.sampling.sources import GuardedPodSource, GuardedReaders
from gputally.server import ListenError, PathError, Server, ServerError, format_address, parse_address

if TYPE_CHECKING:
    from gputally.relay import Upstream
    from gputally.sampling.checkpoint import Checkpoint
    from gputally.simulator import SimulatedReader

log = logging.getLogger("gputally")


def serve(config: Config) -> int:
    _share_memory_of_threads()
    sources = _choose_sources(config)
    upstream = build_upstream(config) if config.relay else None
    endpoints = build_endpoints(config, upstream)
    collector = build_collector(config, sources, upstream)
    if config.once:
        endpoints.publish(collector.sample())
        return _once(config, endpoints.metrics.body(openmetrics=False, gzipped=False))
    try:
        server = Server(
            endpoints.by_path,
            endpoints.ready,
            listen=_listen_address(config),
            web_config=config.web_config,
        )
    except ListenError as error:
        raise ConfigError(f"--listen-address: {error}") from None
    except PathError as error:
        raise ConfigError(f"--metrics-path: {error}") from None
    except ServerError as error:
        raise ConfigError(f"--web-config: {error}") from None
    try:
        server.open()
    except ServerError as error:
        log.error("%s", error)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    _log_start(config, sources.readers, server.url)
    stop = threading.Event()
    sampler = threading.Thread(
        target=collector.run,
        args=(config.interval_seconds, _then_settle(_publisher(endpoints, config)), stop),
        daemon=True,
        name="sampler",
    )
    sampler.start()
    if config.sidecar:
        from gputally.attribution.sidecar import start_watch  # noqa: PLC0415  # only for --sidecar

        start_watch(config.procfs, server.stop, stop)
    server.run()
    stop.set()
    sampler.join(0.5)
    collector.close(1.0)
    log.info("stopped")
    return 0


def _then_settle(publish: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
    """Publishes; after the first snapshot, when all modules are loaded, tidies up what the start needed."""
    settled = False

    def publish_then_settle(snapshot: Snapshot) -> None:
        nonlocal settled
        publish(snapshot)
        if not settled:
            settled = True
            gc.collect()
            gc.freeze()  # objects of the start-up live on: the garbage collector skips them
            _return_memory()

    return publish_then_settle


_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def _share_memory_of_threads() -> None:
    """Without it, each thread takes its memory from an area of its own: 0.3 MiB more, and more with time."""
    _call_of_glibc("mallopt", _ARENA_MAX, 1)


def _return_memory() -> None:
    """Returns memory that only the start needed, about 0.5 MiB, to the system."""
    _call_of_glibc("malloc_trim", 0)


def _call_of_glibc(name: str, *numbers: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None)  # musl has neither
    if function is not None:
        function(*numbers)


class Sources(NamedTuple):
    readers: list[list[Reader]]
    """Those of each vendor's GPUs, best first."""
    owners: OwnerFinder
    pods: list[PodSource]


def build_collector(
    config: Config, sources: Sources | None = None, upstream: "Upstream | None" = None
) -> Collector:
    """The collector of these sources, or of those of the configuration. Raises ConfigError."""
    sources = sources or _choose_sources(config)
    checkpoint = _checkpoint(config)
    return Collector(
        [GuardedReaders(readers) for readers in sources.readers],
        timeout_seconds=config.timeout_seconds,
        max_age_seconds=config.max_age_seconds,
        ledger=_ledger(config, checkpoint),
        owners=sources.owners,
        pod_sources=[GuardedPodSource(source) for source in sources.pods],
        other_sources=(upstream,) if upstream else (),
        checkpoint=checkpoint,
    )


def _choose_sources(config: Config) -> Sources:
    if config.reader != "simulated":
        return Sources(readers_of(config), _owners(config), choose_pod_sources(config))
    # Simulated processes are not those of this host.
    from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods  # noqa: PLC0415  # only for `simulate`

    reader = _simulated(config)
    return Sources([[reader]], SimulatedOwners(reader), [SimulatedPods(reader)])


def readers_of(config: Config) -> list[list[Reader]]:
    """The readers of --reader: for each vendor those of its GPUs, best first."""
    if config.reader == "simulated":
        return [[_simulated(config)]]
    settings = {setting.name: getattr(config, setting.name) for setting in fields(ReaderSettings)}
    return choose_readers(config.reader, ReaderSettings(**settings))


def _simulated(config: Config) -> "SimulatedReader":
    from gputally.simulator import simulated_reader  # noqa: PLC0415  # only for `simulate`

    try:
        return simulated_reader(
            scenario=config.scenario,
            gpus=config.gpus,
            model=config.model,
            seed=config.seed,
            began_at=config.began_at,
            pcie_throughput=config.pcie_throughput,
        )
    except ValueError as error:
        raise ConfigError(f"--scenario: {error}") from None


def _owners(config: Config) -> OwnerFinder:
    if not config.sidecar:
        return ProcessOwners(config.procfs, nested=config.nested_pods)
    from gputally.attribution.sidecar import SidecarOwners, is_host  # noqa: PLC0415  # only for --sidecar

    if is_host(config.procfs):
        raise ConfigError(
            f"--sidecar needs a pod with its own pid namespace: {config.procfs} has the host's processes "
            "(hostPID)"
        )
    return SidecarOwners(config.procfs)


def build_endpoints(config: Config, upstream: "Upstream | None" = None) -> Endpoints:
    endpoints = Endpoints(
        main_families(config),
        narrow=Narrow(
            frozenset({*(one.group for one in config.chosen_metrics.values()), *config.profiles}),
            frozenset({*Group, *PROFILES}),
        ),
        metrics_path=config.metrics_path,
        hostname=config.hostname,
        max_age_seconds=max(config.max_age_seconds, 3 * config.interval_seconds),
        about=_about(config) if config.live_page and not config.once else None,
    )
    if upstream is not None:
        endpoints.add_relay(POD_GPU_PATH, upstream, append=config.relay_metrics)
    elif "pod-gpu" in config.profiles:
        endpoints.add_metrics(POD_GPU_PATH, families_of_profiles(["pod-gpu"], _options(config)))
    return endpoints


def _about(config: Config) -> About:
    """The pages name no owner that the metrics do not name."""
    exported = {one.group for one in config.chosen_metrics.values()}
    return About(
        version=__version__,
        hostname=config.hostname,
        interval_seconds=config.interval_seconds,
        pods=Group.PODS in exported,
        hosts=Group.HOST in exported,
        unattributed=Group.UNATTRIBUTED in exported,
        processes=config.process_metrics and Group.PROCESSES in exported,
        links=_links(config.grafana_url, config.node_name or config.hostname) if config.grafana_url else (),
    )


def _links(grafana: str, node: str) -> tuple[tuple[str, str], ...]:
    """To the dashboards of this node."""
    from urllib.parse import quote  # noqa: PLC0415  # only for --grafana-url

    return (
        ("Node and GPU", f"{grafana}/d/gputally-node?var-node={quote(node, safe='')}"),
        ("Fleet", f"{grafana}/d/gputally-fleet"),
    )


def main_families(config: Config) -> FamiliesOf:
    """Our families and those of the compatibility profiles."""
    chosen, profiles = config.chosen_metrics, config.profiles

    def ours(snapshot: Snapshot) -> list[Family]:
        if not config.process_metrics:  # then they are there for a compatibility profile only
            snapshot = replace(snapshot, processes=())
        return build_families(
            snapshot, read_exporter_facts(__version__, config.hostname, config.began_at), chosen
        )

    if not profiles:
        return ours
    others = families_of_profiles(profiles, _options(config))
    return lambda snapshot: merge_families([*ours(snapshot), *others(snapshot)])


def families_of_profiles(names: Sequence[str], options: Options) -> FamiliesOf:
    """Snapshot -> the families of all these profiles. Each profile is imported here, and only here."""
    profiles = {name: load_profile(name) for name in names}

    def families_of(snapshot: Snapshot) -> list[Family]:
        inputs = ProfileInput(snapshot, options)
        return merge_families(
            replace(family, profile=name) for name, profile in profiles.items() for family in profile(inputs)
        )

    return families_of


def _options(config: Config) -> Options:
    return Options(
        hostname=config.hostname_override or config.node_name or config.hostname,
        metric_prefix=config.metric_prefix or DEFAULT_METRIC_PREFIX,
    )


def build_upstream(config: Config) -> "Upstream":
    """Raises ConfigError."""
    from gputally.relay import Relay, Upstream  # noqa: PLC0415
    from gputally.relay.fetch import TargetError  # noqa: PLC0415  # most exporters relay nothing

    try:
        # A little less than the timeout, so that a slow exporter is named and not overrun.
        relay = Relay(
            config.relay,
            timeout_seconds=config.timeout_seconds * 0.8,
            max_age_seconds=config.max_age_seconds,
        )
    except TargetError as error:
        raise ConfigError(f"--relay: {error}") from None
    return Upstream(relay, config.max_age_seconds)


def _checkpoint(config: Config) -> "Checkpoint | None":
    if config.state_file is None:
        return None
    from gputally.sampling.checkpoint import Checkpoint  # noqa: PLC0415  # only for --state-file

    return Checkpoint(
        config.state_file, boot_id=read_boot_id(config.procfs), valid_seconds=_longest_window_seconds(config)
    )


def _ledger(config: Config, checkpoint: "Checkpoint | None") -> Ledger:
    return Ledger(
        retention_seconds=config.retention_seconds,
        max_window_seconds=_longest_window_seconds(config),
        process_accounts=config.process_metrics or "process-energy" in config.profiles,
        boot_id=checkpoint.boot_id if checkpoint else "",
        resume=checkpoint.resume(config.timeout_seconds) if checkpoint else None,
    )


def _longest_window_seconds(config: Config) -> float:
    """Energy between two samples that are further apart is unobserved."""
    return max(60.0, 3 * config.interval_seconds)


def _once(config: Config, body: bytes) -> int:
    if config.metrics_file is None:
        sys.stdout.buffer.write(body)
        return 0
    from gputally.sampling.metrics_file import MetricsFile  # noqa: PLC0415  # only for --metrics-file

    file = MetricsFile(config.metrics_file)
    file.write(body, config.timeout_seconds)
    return 0 if file.up else 1


def _publisher(endpoints: Endpoints, config: Config) -> Callable[[Snapshot], None]:
    """Hands a snapshot to the server and, where asked for, to the metrics file."""
    if config.metrics_file is None:
        return endpoints.publish
    from gputally.sampling.metrics_file import MetricsFile  # noqa: PLC0415  # only for --metrics-file

    file = MetricsFile(config.metrics_file)

    def publish(snapshot: Snapshot) -> None:
        endpoints.publish(snapshot)
        file.write(endpoints.metrics.body(openmetrics=False, gzipped=False), config.timeout_seconds)

    return publish


def _listen_address(config: Config) -> str:
    if config.port is None:
        return config.listen_address
    host, _ = parse_address(config.listen_address)
    return format_address(host, config.port)


def _log_start(config: Config, sources: Sequence[Sequence[Reader]], url: str) -> None:
    log.info("gputally %s serves %s%s", __version__, url.rstrip("/"), config.metrics_path)
    readers = " and ".join(" else ".join(reader.name for reader in readers) for readers in sources)
    log.info("reader %s, one sample every %g s", readers, config.interval_seconds)
    if config.reader == "simulated":
        log.warning('these GPUs are simulated: gputally_gpu_info says simulated="true"')
        return
    host = read_host(config.sysfs, config.procfs)
    log.info("on PCI: %s", ", ".join(f"{len(one.gpus)} {one.vendor.title} GPUs" for one in host))
    for one in host:
        if one.gpus and one.module is None:
            module = one.vendor.kernel_module
            log.warning("the driver of the %s GPUs is not loaded (modprobe %s)", one.vendor.title, module)
        if one.present and config.interval_seconds > one.vendor.sampled_seconds:
            log.warning(
                "--interval %g s: SM time on %s GPUs is known only for the last %g s of each interval "
                "(reduce it, or run gputally enable-accounting)",
                config.interval_seconds,
                one.vendor.title,
                one.vendor.sampled_seconds,
            )
    if not any(one.present for one in host):
        retried, *others = (one.vendor.title for one in host)
        retry = f"; retrying {retried}; restart to detect {' or '.join(others)} GPUs"
        log.warning(
            "no GPU and no driver on this host%s (see gputally check)",
            retry if config.reader == "auto" else "",
        )
