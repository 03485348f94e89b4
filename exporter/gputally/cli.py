"""The command `gputally`: parses the command line and runs the chosen command."""

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gputally import __version__
from gputally.attribution.pod_sources import choose_pod_sources
from gputally.config import SETTINGS, Config, read_config
from gputally.flags import ConfigError, OneLineParser, add_flags
from gputally.model import Owner
from gputally.printable import print_lines, printable

if TYPE_CHECKING:
    from gputally.sampling.collect import Collector

_WHOSE_SETTINGS = (
    *("procfs", "pod_logs", "container_logs", "kubelet_pods_socket", "kubernetes", "node_name"),
    "nested_pods",
)
_CAPTURE_SETTINGS = ("nvidia_smi", "procfs", "sysfs")
_CHECK_SETTINGS = (
    *("reader", "timeout_seconds", "nvidia_smi", "rocm_smi", "procfs", "sysfs"),
    *("pod_logs", "container_logs", "pod_resources_socket", "kubelet_pods_socket"),
    *("kubernetes", "node_name"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) == ["verify"]:
        from gputally.commands.verify import run  # noqa: PLC0415  # not for serving

        return run(arguments[1:], sys.stdout)
    if list(arguments[:1]) == ["top"]:
        from gputally.commands.top.command import run as top  # noqa: PLC0415  # not for serving

        return top(arguments[1:], sys.stdout, _collector)
    return _run(_parser().parse_args(arguments))  # the parser is large: it is not kept in memory


def _run(parsed: argparse.Namespace) -> int:
    if parsed.command == "version":
        print(f"gputally {__version__}")
        return 0
    if parsed.command == "enable-accounting":
        from gputally.commands.enable_accounting import enable_accounting  # noqa: PLC0415  # not for serving

        return enable_accounting(sys.stdout)
    try:
        if parsed.command == "simulate":
            parsed.reader = "simulated"
        config = read_config(parsed)
        if parsed.command == "whose":
            return _whose(config, parsed.pids, as_json=parsed.json)
        if parsed.command == "capture":
            return _capture(config, parsed.file)
        if parsed.command == "check":
            return _check(config, as_json=parsed.json)
        set_up_logging(config.log_level, config.log_format, config.log_file)
        return _serve(config)
    except ConfigError as error:
        print_lines([f"gputally {parsed.command}: {error}"], sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally",
        description="GPU metrics for Prometheus: usage, memory and energy by pod and job, and GPU health.",
        epilog="Start with `gputally check`, then `gputally serve`; without a GPU try `gputally simulate`.",
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="read the GPUs of this host and serve the metrics")
    serve.description = (
        "Reads the GPUs of this host every --interval and serves the metrics. Each flag can also be set by "
        "the "
        "environment variable in [brackets]."
    )
    add_flags(serve, SETTINGS)
    _add_version(serve)
    simulate = commands.add_parser("simulate", help="serve the metrics of simulated GPUs")
    simulate.description = 'Serves the metrics of simulated GPUs; gputally_gpu_info has simulated="true".'
    add_flags(simulate, SETTINGS)
    _add_version(simulate)
    check = commands.add_parser("check", help="report what can be read on this host, and how to fix the rest")
    check.description = (
        "Checks drivers, GPUs, processes and pod sources of this host. Exits with 0 if its GPUs can be "
        "read, else with 1."
    )
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_flags(check, SETTINGS, _CHECK_SETTINGS)
    whose = commands.add_parser("whose", help="report the owners of processes: pod, container, job, service")
    whose.description = "Reports the owner of any process. Exits with 0 if all owners are known, else with 1."
    whose.add_argument("pids", nargs="+", metavar="PID", type=_pid)
    whose.add_argument("--json", action="store_true", help="print the owners as JSON")
    add_flags(whose, SETTINGS, _WHOSE_SETTINGS)
    capture = commands.add_parser("capture", help="record what the GPU drivers answer, for a bug report")
    capture.description = (
        "Writes what NVML, nvidia-smi and the files of AMD's driver say into one new file (.tar.gz), for a "
        "bug report or a test. Only reads. Replaces UUIDs, serial numbers, process names and other "
        "identifiers, and prints what is in the file. Takes about 15 seconds, more if a driver hangs. Exits "
        "with 0 if anything was captured, else with 1."
    )
    capture.add_argument("file", metavar="FILE", help="the new file; - writes it to stdout")
    add_flags(capture, SETTINGS, _CAPTURE_SETTINGS)
    accounting = commands.add_parser(
        "enable-accounting", help="enable the accounting of ended processes in the NVIDIA driver (needs root)"
    )
    accounting.description = (
        "Enables accounting mode on every GPU, for `serve --accounting`. It stays enabled until the driver "
        "is "
        "reloaded. Exits with 0 if it is enabled, else with 1."
    )
    # main runs these before this parser: they have parsers of their own.
    commands.add_parser("top", help="show the GPUs and who uses them, live, in the terminal")
    commands.add_parser("verify", help="verify a whole installation, from the exporter to the dashboards")
    commands.add_parser("version", help="print the version")
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version", action="version", version=f"gputally {__version__}", help="print the version and exit"
    )


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json  # noqa: PLC0415  # not needed for text

        entry = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _traceback(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_utc(record.created)} {record.levelname:<7} {printable(record.getMessage())}"
        return line + "\n" + _traceback(self.formatException(record.exc_info)) if record.exc_info else line


def _traceback(text: str) -> str:
    """Indented, so that no line of an error's message is taken for one of the log."""
    return "\n".join(f"  {printable(line)}" for line in text.split("\n"))


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def set_up_logging(level: str, log_format: str, file: Path | None) -> None:
    """Log to standard error, or to a file that may be rotated while it is open."""
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        from logging.handlers import WatchedFileHandler  # noqa: PLC0415  # not needed for standard error

        handler = WatchedFileHandler(file)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _check(config: Config, *, as_json: bool) -> int:
    from gputally.app import readers_of  # noqa: PLC0415  # not for the other commands
    from gputally.commands import report_lines  # noqa: PLC0415  # not for serving
    from gputally.commands.check import check_host, report_json, usable  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    findings = check_host(
        readers_of(config),
        procfs=config.procfs,
        sysfs=config.sysfs,
        timeout_seconds=config.timeout_seconds,
        pod_sources=choose_pod_sources(config),
        release_driver=config.release_driver,
        state_file=config.state_file,
    )
    print_lines(report_json(findings) if as_json else report_lines(findings), sys.stdout)
    return 0 if usable(findings) else 1


def _capture(config: Config, file: str) -> int:
    from gputally.commands.capture import capture  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    target, out = (sys.stdout.buffer, sys.stderr) if file == "-" else (Path(file), sys.stdout)
    return capture(config.sysfs, config.procfs, config.nvidia_smi, target, out)


def _collector(config: Config) -> "Collector":
    from gputally.app import open_collector  # noqa: PLC0415  # not for the other commands

    return open_collector(config)


def _pid(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pid; allowed: a whole number above 0")
    return int(text)


def _whose(config: Config, pids: list[int], *, as_json: bool) -> int:
    from gputally.commands.whose import report_json, report_lines, whose  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    owners = whose(pids, choose_pod_sources(config), config.procfs, nested=config.nested_pods)
    print_lines(report_json(owners) if as_json else report_lines(owners), sys.stdout)
    return 0 if all(isinstance(owner, Owner) for owner in owners.values()) else 1


def _serve(config: Config) -> int:
    if config.push_gateway:
        from gputally.prometheus import push  # noqa: PLC0415  # not for serving

        return push(config)
    with contextlib.nullcontext() if config.web_config else _without_ssl():
        from gputally.app import serve  # noqa: PLC0415  # not for checking

    return serve(config)


@contextlib.contextmanager
def _without_ssl() -> Iterator[None]:
    """Keep asyncio from importing ssl, which takes 4.4 MiB and is needed for TLS only."""
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # None makes an import fail
    try:
        yield
    finally:
        del sys.modules["ssl"]
