"""Checks an installation of GPUTally in a Kubernetes cluster, and prints how to fix what fails.

With the permissions of kubectl: the exporter's pods and GPU nodes without one, pods that do not start,
pending volumes, and whether the Prometheus operator selects the objects of the release. Then, through
`kubectl port-forward`, the data of Prometheus, Alertmanager and Grafana. Nothing in the cluster is changed.
`helm test` does the second half from inside the cluster.

tools/verify                                    the only release
tools/verify -n gpu --release gputally          this one
tools/verify --wait 5m                          right after an installation
tools/verify --prometheus-url http://127.0.0.1:9090
                                                a Prometheus of neither the operator nor the release
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gputally.commands import NOT_CHECKED, Finding
from gputally.commands.servers import read_login
from gputally.commands.verify import report, until_passed
from gputally.flags import duration
from tools import Failed
from tools.verification import operator, workloads
from tools.verification.kubectl import Kubectl, Object, find_kubectl
from tools.verification.nodes import exporter_nodes
from tools.verification.operator import Operated
from tools.verification.reach import Wanted, verify_through
from tools.verification.release import COMPONENT, PART_OF, Release, find_release, labels_of


def check_installation(kubectl: Kubectl, namespace: str, name: str, wanted: Wanted) -> list[Finding]:
    """All checks, from the nodes to the dashboards. Raises Failed when there is no release."""
    release = find_release(kubectl, namespace, name)
    space = f"--namespace={release.namespace}"

    def own(kind: str) -> list[Object]:
        return [made for made in kubectl.get(kind, space, f"--selector={PART_OF}") if release.has(made)]

    stack = own("statefulsets")
    findings = _guarded("gpu nodes", lambda: exporter_nodes(release.exporter, kubectl.get("nodes")))
    findings += workloads.stateful_sets(stack)
    if any(finding.level != "ok" for finding in findings):
        findings += _guarded("pods", lambda: _why(kubectl, release, own, stack))
    operated = Operated([])
    if not release.of(stack, "prometheus") and not wanted.prometheus_url:
        try:
            operated = operator.check(kubectl, release)
        except Failed as failure:
            operated = Operated([Finding(NOT_CHECKED, "scraping", str(failure))])
    findings += operated.findings
    return [*findings, *_guarded("inside", lambda: verify_through(kubectl, release, stack, operated, wanted))]


def _why(
    kubectl: Kubectl, release: Release, own: Callable[[str], list[Object]], stack: Sequence[Object]
) -> Iterable[Finding]:
    """The reasons of Kubernetes for pods and volumes that are not ready."""
    space = f"--namespace={release.namespace}"
    events = kubectl.get("events", space, "--field-selector=type=Warning")
    running = [pod for pod in own("pods") if labels_of(pod).get(COMPONENT) != "verify"]
    yield from workloads.not_created(events, [release.exporter, *stack], release.namespace)
    yield from workloads.pods(running, events)
    # Claims have only the labels of selectors.
    claims = [one for one in kubectl.get("persistentvolumeclaims", space) if _is_of(one, release)]
    yield from workloads.volumes(claims, kubectl.get("storageclasses"))


def _is_of(claim: Object, release: Release) -> bool:
    return labels_of(claim).get("app.kubernetes.io/instance") == release.name


def _guarded(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except Failed as failure:
        return [Finding(NOT_CHECKED, subject, str(failure))]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        login = read_login(options.grafana_login) if options.grafana_login else None
        wanted = Wanted(options.prometheus_url, options.grafana_url, login, options.job)
        kubectl = find_kubectl(options.context)
        return report(
            until_passed(
                lambda: check_installation(kubectl, options.namespace, options.release, wanted),
                options.wait,
                sys.stdout,
            ),
            sys.stdout,
        )
    except (Failed, OSError) as failure:
        print(f"tools/verify: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit code 0 if nothing fails, otherwise 1. See docs/verify.md.",
    )
    parser.add_argument(
        "-n", "--namespace", default="", help="namespace of the release (default: all namespaces)"
    )
    parser.add_argument("--release", default="", help="name of the release, if there are several")
    parser.add_argument("--context", default="", help="context of kubectl's configuration")
    parser.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="Prometheus to query (default: the release's or the operator's)",
    )
    parser.add_argument(
        "--grafana-url", default="", metavar="URL", help="Grafana to query (default: the release's)"
    )
    parser.add_argument(
        "--grafana-login",
        type=Path,
        metavar="DIRECTORY",
        help="directory with the files username and password",
    )
    parser.add_argument("--job", default="gputally", help="job of the exporters (default: gputally)")
    parser.add_argument(
        "--wait",
        type=duration,
        default=0.0,
        metavar="DURATION",
        help="repeat the checks until nothing fails, for this time at most",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
