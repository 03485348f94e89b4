"""The command `gputally`: reads the flags and hands over."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gputally import __version__
from gputally.config import Config, ConfigError, OneLineParser, add_flags, read_config
from gputally.informants import choose_informants, choose_owners
from gputally.logs import set_up_logging
from gputally.model import Owner
from gputally.readers import choose_sources

_WHOSE_SETTINGS = ("procfs", "pod_logs", "container_logs", "kubelet_pods_socket", "kubernetes", "node_name")
_CAPTURE_SETTINGS = ("procfs", "sysfs")
_CHECK_SETTINGS = (
    *("reader", "timeout_seconds", "nvidia_smi", "rocm_smi", "procfs", "sysfs"),
    *("pod_logs", "container_logs", "pod_resources_socket", "kubelet_pods_socket"),
    *("kubernetes", "node_name"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) == ["verify"]:
        from gputally.commands.verify.command import run  # noqa: PLC0415  # not for serving

        return run(arguments[1:], sys.stdout)
    return _run(_parser().parse_args(arguments))  # the parser is not kept: it is large


def _run(parsed: argparse.Namespace) -> int:
    if parsed.command == "version":
        print(f"gputally {__version__}")
        return 0
    if parsed.command == "enable-accounting":
        from gputally.commands.accounting import enable_accounting  # noqa: PLC0415  # not for serving

        return enable_accounting(sys.stdout)
    try:
        if parsed.command == "simulate":
            parsed.reader = "simulated"
        config = read_config(parsed)
        if parsed.command == "whose":
            return _whose(config, parsed.pids, as_json=parsed.json)
        if parsed.command == "capture":
            return _capture(config, parsed.directory)
        if parsed.command == "check":
            return _check(config, as_json=parsed.json)
        set_up_logging(config.log_level, config.log_format, config.log_file)
        return _serve(config)
    except ConfigError as error:
        print(f"gputally {parsed.command}: {error}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally",
        description="Who uses which GPU, and what it costs: reads GPUs and serves them to Prometheus.",
        epilog="Start with `gputally check`, then `gputally serve`; without a GPU try `gputally simulate`.",
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="read this host's GPUs and serve the metrics")
    serve.description = (
        "Reads this host's GPUs every --interval and serves the metrics. Every flag can be given as the "
        "environment variable in [brackets] instead."
    )
    add_flags(serve)
    _add_version(serve)
    simulate = commands.add_parser("simulate", help="the same, on simulated GPUs that say so")
    simulate.description = 'Serves the metrics of simulated GPUs, with simulated="true" on gputally_gpu_info.'
    add_flags(simulate)
    _add_version(simulate)
    check = commands.add_parser(
        "check", help="say what can be read on this host, and what to do about the rest"
    )
    check.description = "Looks at this host. Exits with 0 when its GPUs can be read, with 1 when not."
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_flags(check, _CHECK_SETTINGS)
    whose = commands.add_parser("whose", help="say whose processes these are: pod, container, job, service")
    whose.description = "Names the owner of any process. Exits with 0 when all are known, with 1 when not."
    whose.add_argument("pids", nargs="+", metavar="PID", type=_pid)
    whose.add_argument("--json", action="store_true", help="print the answers as JSON")
    add_flags(whose, _WHOSE_SETTINGS)
    capture = commands.add_parser("capture", help="copy what is read of AMD GPUs, to give to somebody else")
    capture.description = (
        "Copies the files of /sys and /proc that reader amdgpu reads into a new directory, for a report or a "
        "test. Ids and names of processes are made up. Exits with 0 when that worked."
    )
    capture.add_argument("directory", metavar="DIR", type=Path)
    add_flags(capture, _CAPTURE_SETTINGS)
    accounting = commands.add_parser(
        "enable-accounting", help="have the NVIDIA driver keep account of processes that end (needs root)"
    )
    accounting.description = (
        "Turns accounting mode on, on every GPU, for `serve --accounting`. It stays on until the driver is "
        "loaded anew. Exits with 0 when it is on, with 1 when not."
    )
    # Its flags are its own: main hands over before any of them is read here.
    commands.add_parser("verify", help="say whether a whole installation works, up to its dashboards")
    commands.add_parser("version", help="print the version")
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version", action="version", version=f"gputally {__version__}", help="print the version and exit"
    )


def _check(config: Config, *, as_json: bool) -> int:
    from gputally.commands.check import check_host, report_json, report_text, usable  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    findings = check_host(
        choose_sources(config),
        procfs=config.procfs,
        sysfs=config.sysfs,
        timeout_seconds=config.timeout_seconds,
        informants=choose_informants(config),
    )
    print(report_json(findings) if as_json else report_text(findings))
    return 0 if usable(findings) else 1


def _capture(config: Config, target: Path) -> int:
    from gputally.commands.capture import capture  # noqa: PLC0415  # not for serving

    return capture(config.sysfs, config.procfs, target, sys.stdout)


def _pid(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pid: a whole number above 0")
    return int(text)


def _whose(config: Config, pids: list[int], *, as_json: bool) -> int:
    from gputally.commands.whose import answer_json, answer_text, whose  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    owners = whose(pids, choose_informants(config), config.procfs)
    print(answer_json(owners) if as_json else answer_text(owners))
    return 0 if all(isinstance(owner, Owner) for owner in owners.values()) else 1


def _serve(config: Config) -> int:
    with contextlib.nullcontext() if config.web_config else _without_ssl():
        from gputally.app import serve  # noqa: PLC0415  # not for checking

    sources = choose_sources(config)
    return serve(config, sources, *choose_owners(config, sources[0]))


@contextlib.contextmanager
def _without_ssl() -> Iterator[None]:
    """asyncio imports ssl wherever it finds it, 4.4 MiB that only TLS needs: let it not be found."""
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # this is how import is told that there is none
    try:
        yield
    finally:
        del sys.modules["ssl"]
