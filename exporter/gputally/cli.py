"""The command `gputally`: reads the flags and hands over."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence

from gputally import __version__
from gputally.config import Config, ConfigError, OneLineParser, add_flags, read_config
from gputally.logs import set_up_logging
from gputally.readers import choose_readers

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
        set_up_logging(config.log_level, config.log_format, config.log_file)
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


def _check(config: Config, *, as_json: bool) -> int:
    from gputally.check import check_host, report_json, report_text, usable  # noqa: PLC0415  # not for serving

    set_up_logging("error", "text", None)
    findings = check_host(
        choose_readers(config),
        procfs=config.procfs,
        sysfs=config.sysfs,
        timeout_seconds=config.timeout_seconds,
    )
    print(report_json(findings) if as_json else report_text(findings))
    return 0 if usable(findings) else 1


def _serve(config: Config) -> int:
    with contextlib.nullcontext() if config.web_config else _without_ssl():
        from gputally.serve import serve  # noqa: PLC0415  # not for checking

    return serve(config, choose_readers(config))


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
