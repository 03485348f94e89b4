"""`gputally verify`: checks an installation from the exporters to the dashboards."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from gputally.commands import FAILURE, Finding, passed, report_lines
from gputally.commands.verify.installation import Installation, verify
from gputally.commands.verify.pod import PodLoad, verify_pod
from gputally.commands.verify.servers import Login, PrometheusApi, RemoteServer, read_login
from gputally.flags import OneLineParser, argument, duration, server_url
from gputally.printable import print_lines

_SECONDS_BETWEEN_CHECKS = 5.0


def run(arguments: Sequence[str], out: TextIO) -> int:
    """The exit status: 0 if nothing fails, 1 if a check fails, 2 for wrong flags."""
    if list(arguments[:1]) == ["pod"]:
        return _pod(arguments[1:], out)
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        installation = _installation(options)
    except OSError as error:
        parser.error(f"cannot read the login {error.filename}: {error.strerror}")
    if installation == Installation():
        parser.error("set at least one of --exporter, --prometheus, --alertmanager and --grafana")
    return report(until_passed(lambda: verify(installation), options.wait, out), out)


def report(findings: Sequence[Finding], out: TextIO) -> int:
    print_lines(report_lines(findings), out)
    return 0 if passed(findings) else 1


def until_passed(
    check: Callable[[], list[Finding]],
    seconds: float,
    out: TextIO,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Finding]:
    """Checks until nothing fails or the time is over; prints the subjects it waits for when they change."""
    deadline = clock() + seconds
    awaited: list[str] = []
    while True:
        found = check()
        missing = sorted({one.subject for one in found if one.level == FAILURE or one.early})
        final = any(finding.final for finding in found)
        if not missing or final or clock() + _SECONDS_BETWEEN_CHECKS > deadline:
            return found
        if missing != awaited:
            print_lines([f"waiting for: {', '.join(missing)}"], out)
            awaited = missing
        sleep(_SECONDS_BETWEEN_CHECKS)


def _pod(arguments: Sequence[str], out: TextIO) -> int:
    options = _pod_parser().parse_args(arguments)
    load = PodLoad(options.namespace, options.pod, options.utilization, round(options.window))
    prometheus = PrometheusApi(RemoteServer(options.prometheus), "")
    return report(until_passed(lambda: verify_pod(prometheus, load), options.wait, out), out)


def _installation(options: argparse.Namespace) -> Installation:
    login = _login(options.exporter_login)
    tls = {
        "authority": options.exporter_ca,
        "server_name": options.exporter_server_name,
        "insecure": options.exporter_insecure,
    }
    return Installation(
        exporters=tuple(RemoteServer(url, login, **tls) for url in options.exporter),
        prometheus=PrometheusApi(RemoteServer(options.prometheus), options.job, options.cluster)
        if options.prometheus
        else None,
        alertmanager=RemoteServer(options.alertmanager) if options.alertmanager else None,
        grafana=RemoteServer(options.grafana, _login(options.grafana_login)) if options.grafana else None,
        rule_groups=options.rule_groups if options.prometheus else None,
        dashboards=options.dashboards if options.grafana else None,
    )


def _login(directory: Path | None) -> Login | None:
    return read_login(directory) if directory else None


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally verify",
        description="Checks an installation from the exporters to the dashboards. Each line is one check, "
        "with the fix if it fails. Parts without an address are not checked.",
        epilog="Exits with 0 if nothing fails, with 1 if a check fails. "
        "`gputally verify pod --help`: check that one pod was seen on a GPU.",
    )
    servers = parser.add_argument_group("addresses")
    servers.add_argument(
        "--exporter",
        action="append",
        default=[],
        type=argument(server_url),
        metavar="URL",
        help="an exporter; may be repeated",
    )
    for name in ("prometheus", "alertmanager", "grafana"):
        servers.add_argument(
            f"--{name}", type=argument(server_url), metavar="URL", help=f"{name.capitalize()}"
        )
    protected = parser.add_argument_group("logins and TLS")
    protected.add_argument(
        "--exporter-login", type=Path, metavar="DIR", help="directory with the files username and password"
    )
    protected.add_argument(
        "--exporter-ca", type=Path, metavar="FILE", help="CA certificates to trust instead of the system's"
    )
    protected.add_argument(
        "--exporter-server-name",
        default="",
        metavar="NAME",
        help="the name in the exporters' certificate, if it differs from the URL",
    )
    protected.add_argument(
        "--exporter-insecure", action="store_true", help="do not check the exporters' certificate"
    )
    protected.add_argument(
        "--grafana-login",
        type=Path,
        metavar="DIR",
        help="the same for Grafana; without it dashboards are only counted, and the data source is not "
        "checked",
    )
    expected = parser.add_argument_group("expected")
    expected.add_argument(
        "--job", default="gputally", help="job of the exporters in Prometheus (default: gputally)"
    )
    expected.add_argument(
        "--cluster",
        default="",
        metavar="NAME",
        help="only series with this cluster label, if Prometheus has several clusters",
    )
    expected.add_argument(
        "--rule-groups", type=_number, metavar="N", help="minimum number of rule groups; 0: none are expected"
    )
    expected.add_argument("--dashboards", type=_number, metavar="N", help="minimum number of dashboards")
    _add_wait(parser)
    return parser


def _pod_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally verify pod",
        description="Checks in Prometheus that a pod was seen on a GPU, was busy enough, and was charged.",
    )
    parser.add_argument("--prometheus", type=argument(server_url), metavar="URL", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--pod", required=True, help="name, or regular expression of names")
    parser.add_argument(
        "--utilization", type=float, default=0.01, metavar="0..1", help="minimum utilisation (default: 0.01)"
    )
    parser.add_argument(
        "--window",
        type=argument(duration),
        default=1800.0,
        metavar="DURATION",
        help="period to query (default: 30m)",
    )
    _add_wait(parser)
    return parser


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=argument(duration),
        default=0.0,
        metavar="DURATION",
        help="repeat until nothing fails, at most this long; a new one needs two scrapes (default: 0)",
    )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
