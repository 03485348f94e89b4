"""The command `gputally`: reads the flags, builds the parts and connects them."""

import argparse
import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from gputally import __version__
from gputally.collect import Collector, Source
from gputally.config import Config, ConfigError, OneLineParser, add_flags, read_config
from gputally.devices import Reader
from gputally.devices.host import nvidia_module_version, nvidia_pci_addresses
from gputally.devices.nvidia_smi import NvidiaSmiReader
from gputally.devices.nvml import NvmlReader
from gputally.logs import set_up_logging
from gputally.metrics.exposition import Exposition, render_text
from gputally.metrics.families import Family, build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.metrics_file import write_metrics_file
from gputally.model import Snapshot
from gputally.pages import ExporterPages
from gputally.server import ListenError, PathError, Server, ServerError
from gputally.server.listen import format_address, parse_address

log = logging.getLogger("gputally")

_CHECK_SETTINGS = ("reader", "timeout_seconds", "nvidia_smi", "procfs", "sysfs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.command == "version":
        print(f"gputally {__version__}")
        return 0
    try:
        if parsed.command == "simulate":
            parsed.reader = "simulated"
        config = read_config(parsed)
        if parsed.command == "check":
            return _check(config, as_json=parsed.json)
        return _serve(config)
    except ConfigError as error:
        parser.exit(2, f"{parser.prog} {parsed.command}: {error}\n")


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally",
        description="Who uses which GPU, and what it costs: reads GPUs and serves them to Prometheus.",
        epilog="Start with `gputally check`, then `gputally serve`; without a GPU try `gputally simulate`.",
    )
    parser.add_argument("--version", action="version", version=f"gputally {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="read this host's GPUs and serve the metrics")
    serve.description = (
        "Reads this host's GPUs every --interval and serves the metrics. Every flag can be given as the "
        "environment variable in [brackets] instead."
    )
    add_flags(serve)
    simulate = commands.add_parser("simulate", help="the same, on simulated GPUs that say so")
    simulate.description = 'Serves the metrics of simulated GPUs, with simulated="true" on gputally_gpu_info.'
    add_flags(simulate)
    check = commands.add_parser(
        "check", help="say what can be read on this host, and what to do about the rest"
    )
    check.description = "Looks at this host. Exits with 0 when its GPUs can be read, with 1 when not."
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_flags(check, _CHECK_SETTINGS)
    commands.add_parser("version", help="print the version")
    return parser


def _readers(config: Config) -> list[Reader]:
    """The readers to use, best first."""
    if config.reader == "simulated":
        return [_simulated_reader(config)]
    nvml = NvmlReader(pcie_throughput=config.pcie_throughput, release_driver=config.release_driver)
    # A little less than the whole time, so that a hanging command is killed and named, not overrun.
    nvidia_smi = NvidiaSmiReader(command=config.nvidia_smi, timeout_seconds=config.timeout_seconds * 0.8)
    chosen: dict[str, list[Reader]] = {
        "auto": [nvml, nvidia_smi],
        "nvml": [nvml],
        "nvidia-smi": [nvidia_smi],
    }
    return chosen[config.reader]


def _simulated_reader(config: Config) -> Reader:
    from gputally.devices.simulated import simulated_reader  # noqa: PLC0415  # only who asks for it pays

    try:
        return simulated_reader(
            scenario=config.scenario,
            gpus=config.gpus,
            model=config.model,
            seed=config.seed,
            pcie_throughput=config.pcie_throughput,
        )
    except ValueError as error:
        raise ConfigError(f"--scenario: {error}") from None


def _check(config: Config, *, as_json: bool) -> int:
    from gputally.check import check_host, report_json, report_text, usable  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    findings = check_host(
        _readers(config), procfs=config.procfs, sysfs=config.sysfs, timeout_seconds=config.timeout_seconds
    )
    print(report_json(findings) if as_json else report_text(findings))
    return 0 if usable(findings) else 1


def _serve(config: Config) -> int:
    set_up_logging(config.log_level, config.log_format, config.log_file)
    collector = Collector(
        [Source(_readers(config))],
        timeout_seconds=config.timeout_seconds,
        max_age_seconds=config.max_age_seconds,
    )

    def families_of(snapshot: Snapshot) -> list[Family]:
        facts = read_exporter_facts(__version__, config.hostname)
        return build_families(snapshot, facts, process_metrics=config.process_metrics)

    if config.once:
        return _once(config, render_text(families_of(collector.sample())))
    nothing_yet = Snapshot(taken_at_seconds=time.time(), age_seconds=0, readings=(), sources=())
    exposition = Exposition(families_of, nothing_yet)
    pages = ExporterPages(
        exposition,
        hostname=config.hostname,
        metrics_path=config.metrics_path,
        max_age_seconds=config.max_age_seconds,
    )
    try:
        server = Server(
            pages,
            listen=_listen_address(config),
            metrics_paths=(config.metrics_path,),
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
    _log_start(config, server.url)
    stop = threading.Event()
    sampler = threading.Thread(
        target=collector.run,
        args=(config.interval_seconds, _publisher(exposition, config), stop),
        daemon=True,
        name="sampler",
    )
    sampler.start()
    gc.freeze()  # what start-up made stays: the collector need not walk it again and again
    server.run()
    stop.set()
    sampler.join(0.5)
    collector.close(0.2)
    log.info("stopped")
    return 0


def _once(config: Config, body: bytes) -> int:
    if config.metrics_file is None:
        sys.stdout.buffer.write(body)
        return 0
    try:
        write_metrics_file(config.metrics_file, body)
    except OSError as error:
        log.error("--metrics-file: cannot write %s: %s", config.metrics_file, error.strerror)
        return 1
    return 0


def _publisher(exposition: Exposition, config: Config) -> Callable[[Snapshot], None]:
    """Hands a snapshot to the server and, where asked for, to the metrics file."""
    file = config.metrics_file
    writable = True

    def publish(snapshot: Snapshot) -> None:
        nonlocal writable
        exposition.publish(snapshot)
        if file is None:
            return
        try:
            write_metrics_file(file, exposition.body(openmetrics=False, gzipped=False))
            writable = True
        except OSError as error:
            if writable:
                log.warning("--metrics-file: cannot write %s: %s", file, error.strerror)
            writable = False

    return publish


def _listen_address(config: Config) -> str:
    if config.port is None:
        return config.listen_address
    host, _ = parse_address(config.listen_address)
    return format_address(host, config.port)


def _log_start(config: Config, url: str) -> None:
    log.info("gputally %s serves %s%s", __version__, url.rstrip("/"), config.metrics_path)
    log.info("reader %s, one sample every %g s", config.reader, config.interval_seconds)
    if config.reader == "simulated":
        log.warning('these GPUs are simulated: gputally_gpu_info says simulated="true"')
        return
    addresses = nvidia_pci_addresses(config.sysfs)
    module = nvidia_module_version(config.procfs)
    if addresses and module is None:
        log.warning("%d NVIDIA GPUs on PCI, but the driver is not loaded (modprobe nvidia)", len(addresses))
    if not addresses and module is None:
        log.warning("no NVIDIA GPU and no driver on this host; waiting for one (see gputally check)")
