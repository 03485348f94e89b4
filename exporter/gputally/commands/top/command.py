"""The command line of `gputally top`."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from gputally import __version__
from gputally.commands.top.nodes import Exporters, ThisHost
from gputally.commands.top.page import GPUS, NODES, OWNERS, SORTS, PodName, Query, Source
from gputally.commands.top.plain import MOST_ROWS, page_json, page_lines
from gputally.commands.top.state import State
from gputally.commands.verify.servers import Login, PrometheusApi, RemoteServer, read_login
from gputally.config import SETTINGS, Config, read_config
from gputally.flags import ConfigError, OneLineParser, add_flags, argument, duration, server_url
from gputally.model import Unavailable
from gputally.pages.document import About
from gputally.printable import print_lines
from gputally.sampling.collect import Collector

_SIMULATOR = ("gpus", "model", "seed", "began_at", "scenario")
_SETTINGS = (
    *("reader", "timeout_seconds", "nvidia_smi", "rocm_smi", "procfs", "sysfs"),
    *("pods", "pod_logs", "container_logs", "pod_resources_socket", "kubelet_pods_socket"),
    *("kubernetes", "node_name", "nested_pods", *_SIMULATOR),
)
_VIEWS = {"gpus": GPUS, "pods": OWNERS, "nodes": NODES}
_INTERVAL_SECONDS = 2.0
_FLEET_INTERVAL_SECONDS = 10.0
_NO_LIBRARY = (
    "the screen needs the library textual: pip install 'gputally[top]' (--once and --json work without it)"
)


def run(arguments: Sequence[str], out: TextIO, collector_of: Callable[[Config], Collector]) -> int:
    """The exit status: 0, 1 if the source fails or the library is missing, 2 for wrong flags."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.once or options.json or out.isatty()):
        parser.error("standard output is no terminal; add --once or --json")
    logging.basicConfig(
        handlers=[logging.NullHandler()], force=True
    )  # a line of the log would cut the screen
    try:
        source = _source(options, collector_of)
    except OSError as error:
        parser.error(f"cannot read the login {error.filename}: {error.strerror}")
    except ConfigError as error:
        parser.error(str(error))
    state = _state(options, source, parser)
    interval = options.interval or (_FLEET_INTERVAL_SECONDS if options.prometheus else _INTERVAL_SECONDS)
    try:
        if options.once or options.json:
            return _once(source, state, options, interval, out)
        return _screen(source, state, interval, unicode=_unicode(options, out))
    finally:
        source.close()


def _screen(source: Source, state: State, interval_seconds: float, *, unicode: bool) -> int:
    try:
        from gputally.commands.top.screen import TopApp  # noqa: PLC0415  # the library is optional
    except ImportError:
        print_lines([f"gputally top: {_NO_LIBRARY}"], sys.stderr)
        return 1
    app = TopApp(source, state, interval_seconds, unicode=unicode)
    app.run()
    return app.return_code or 0


def _once(
    source: Source, state: State, options: argparse.Namespace, interval_seconds: float, out: TextIO
) -> int:
    try:
        source.refresh()
        if isinstance(source, ThisHost):  # power and SM time are those between two samples
            time.sleep(interval_seconds)
            source.refresh()
        page = source.page(state.query(options.rows, Query().points))
    except Unavailable as error:
        print_lines(
            [f"gputally top: {error.reason}", *([f"fix: {error.fix}"] if error.fix else [])], sys.stderr
        )
        return 1
    if options.json:
        out.write(f"{page_json(page)}\n")
    else:
        print_lines(page_lines(state, page, unicode=_unicode(options, out)), out)
    return 0


def _source(options: argparse.Namespace, collector_of: Callable[[Config], Collector]) -> Source:
    login = read_login(options.login) if options.login else None
    if options.connect:
        return Exporters([_server(url, login, options) for url in options.connect])
    if options.prometheus:
        # Only prometheus asks for pages: this package of queries is not needed otherwise.
        from gputally.commands.top.fleet import Fleet  # noqa: PLC0415

        return Fleet(PrometheusApi(_server(options.prometheus, login, options), "", options.cluster))
    config = _config(options)
    collector = collector_of(config)
    about = About(
        version=__version__,
        hostname="simulated" if config.reader == "simulated" else config.hostname,
        interval_seconds=options.interval or _INTERVAL_SECONDS,
    )
    return ThisHost(collector.sample, lambda: collector.close(1.0), about)


def _config(options: argparse.Namespace) -> Config:
    """The settings of the readers and owners; the state file is left alone. Raises ConfigError."""
    settings = argparse.Namespace(**{name: getattr(options, name) for name in _SETTINGS})
    if options.simulate or any(getattr(options, name) is not None for name in _SIMULATOR):
        settings.reader = "simulated"
    return replace(read_config(settings), state_file=None)


def _server(url: str, login: Login | None, options: argparse.Namespace) -> RemoteServer:
    return RemoteServer(url, login, options.ca, options.server_name, options.insecure)


def _state(options: argparse.Namespace, source: Source, parser: argparse.ArgumentParser) -> State:
    view = _VIEWS[options.view] if options.view else source.views[0]
    if view == NODES and not options.view and (options.pod or options.namespace):
        view = OWNERS
    if options.sort and options.sort not in SORTS[view]:
        parser.error(
            f"--sort {options.sort}: these rows have no such value; allowed: {', '.join(SORTS[view])}"
        )
    return State(
        view=view,
        views=source.views,
        sort=options.sort or "",
        namespace=options.namespace,
        node=options.node,
        pod=options.pod,
        owners=not options.no_pods,
    )


def _unicode(options: argparse.Namespace, out: TextIO) -> bool:
    return not options.ascii and "utf" in (out.encoding or "").lower()


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally top",
        description="Shows GPUs and who uses them, live, in the terminal. Reads only. Press ? for the keys.",
        epilog="Without a source: the GPUs of this host. With --once or --json, exits with 1 if the source "
        "cannot be read.",
    )
    sources = parser.add_argument_group("source")
    only = sources.add_mutually_exclusive_group()
    only.add_argument("--simulate", action="store_true", help="simulated GPUs, as `gputally simulate`")
    only.add_argument(
        "--connect",
        nargs="+",
        action="extend",
        type=argument(_address),
        metavar="URL",
        help="one or more exporters: http://HOST:9400, or HOST:9400",
    )
    only.add_argument(
        "--prometheus",
        type=argument(_address),
        metavar="URL",
        help="a fleet: a Prometheus with GPUTally's recording rules",
    )
    sources.add_argument(
        "--cluster", default="", metavar="NAME", help="of --prometheus: only series with this cluster label"
    )
    protected = parser.add_argument_group("login and TLS of --connect and --prometheus")
    protected.add_argument(
        "--login", type=Path, metavar="DIR", help="directory with the files username and password"
    )
    protected.add_argument(
        "--ca", type=Path, metavar="FILE", help="CA certificates to trust instead of the system's"
    )
    protected.add_argument(
        "--server-name",
        default="",
        metavar="NAME",
        help="the name in the certificate, if it differs from the URL",
    )
    protected.add_argument("--insecure", action="store_true", help="do not check the certificate")
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--view", choices=_VIEWS, help="first view (default: gpus; nodes with --prometheus)")
    shown.add_argument(
        "--sort",
        metavar="ORDER",
        choices=sorted({one for each in SORTS.values() for one in each}),
        help="order of the rows: " + ", ".join(sorted({one for each in SORTS.values() for one in each})),
    )
    shown.add_argument("--namespace", default="", metavar="NAME", help="only pods of this namespace")
    shown.add_argument("--node", default="", metavar="NAME", help="only this node")
    shown.add_argument(
        "--pod", type=_pod, metavar="NAMESPACE/NAME", help="follow this pod: its GPUs, and its graph"
    )
    shown.add_argument("--no-pods", action="store_true", help="only the GPUs, without their pods below them")
    shown.add_argument(
        "--interval",
        type=argument(duration),
        metavar="DURATION",
        help=f"time between two readings (default: {_INTERVAL_SECONDS:g}s; {_FLEET_INTERVAL_SECONDS:g}s with "
        "--prometheus, whose rules are evaluated every minute)",
    )
    shown.add_argument("--ascii", action="store_true", help="bars and graphs of ASCII characters")
    scripts = parser.add_argument_group("for scripts")
    scripts.add_argument("--once", action="store_true", help="print one page as text, and exit")
    scripts.add_argument("--json", action="store_true", help="print one page as JSON, and exit")
    scripts.add_argument(
        "--rows",
        type=argument(_rows),
        default=MOST_ROWS,
        metavar="N",
        help=f"most rows of the page (default: {MOST_ROWS}, with --prometheus 200)",
    )
    add_flags(parser, SETTINGS, _SETTINGS)
    return parser


def _address(text: str) -> str:
    return server_url(text if "://" in text else f"http://{text}")


def _pod(text: str) -> PodName:
    namespace, _, pod = text.partition("/")
    if not namespace or not pod:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pod; allowed: NAMESPACE/NAME")
    return namespace, pod


def _rows(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_ROWS:
        raise ValueError(f"a whole number from 1 to {MOST_ROWS}")
    return int(text)
