"""The chart on a real API server with the operator: install, upgrade, roll back, uninstall."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import chart
from tests.bundle.cluster import (
    Object,
    Place,
    Release,
    as_list,
    everything,
    place,
    read,
    resources,
)
from tools import ROOT
from tools.dependencies import programs
from tools.servers import control_plane, prometheus_operator
from tools.servers.control_plane import ControlPlane
from tools.servers.prometheus_operator import Generated
from tools.servers.waiting import wait_until

CHART = ROOT / chart.CHART
PREVIOUS = Path(__file__).with_name("releases") / "gputally-0.1.0.tgz"
HELMS = ("helm", "helm-4")
MOST_BYTES_OF_A_SECRET = 1 << 20

# Only the kinds that the chart creates or the operator reads: each CRD takes the API server a while.
DEFINITIONS = {
    "prometheus-operator-crds": (
        *("alertmanagerconfigs", "alertmanagers", "podmonitors", "probes"),
        *("prometheuses", "prometheusrules", "scrapeconfigs", "servicemonitors"),
    ),
    "grafana-operator-crds": ("grafanadashboards",),
    "argo-workflows-crds": ("workflowtemplates",),
    "keda-crds": ("scaledobjects",),
    "openshift-security-crds": ("securitycontextconstraints",),
}
OPENSHIFT_CONSOLE = "openshift-config-managed"
RECEIVERS = {
    "slack-url": "https://hooks.slack.example/services/a/b/c",
    "pagerduty-key": "0123456789abcdef0123456789abcdef",
    "opsgenie-key": "0123456789abcdef",
    "email-password": "none",
    "teams-url": "https://teams.example/webhook",
    "webhook-url": "https://hook.example/",
}
ROUTING = {
    "secret": "receivers",
    "critical": "pagerduty",
    "default": "slack",
    "namespaces": {"team-a-.*": "email", "team-b": "teams", "team-c": "opsgenie", "team-d": "webhook"},
    "email": {
        "to": "gpu@example.com",
        "from": "gputally@example.com",
        "smarthost": "smtp.example.com:587",
        "username": "gputally",
    },
}
PROTECTED = {
    "tls": {"enabled": True, "secret": "web-tls", "serverName": "gputally.example.com"},
    "basicAuth": {
        "enabled": True,
        "users": {"prometheus": "$2b$10$abcdefghijklmnopqrstuuNMy0YWQ3QK0GzR4oG9W7mO5v5pQ3e6C"},
        "secret": "web-login",
    },
}
# Every switch that adds an object or a part of one.
EVERYTHING: dict[str, Any] = {
    "cluster": "north",
    "commonLabels": {"team": "gpu"},
    "commonAnnotations": {"example.com/owner": "gpu"},
    "exporter": {"processMetrics": True},
    "privileges": {"kubeletPods": True, "accounting": True},
    "kubernetes": {"enabled": True, "podLabels": ["app*"], "nodeLabels": ["topology*"]},
    "securityContextConstraints": {"enabled": True},
    "web": PROTECTED,
    "scrapeConfig": {"enabled": True},
    "podMonitor": {"sidecars": {"enabled": True}, "pods": {"enabled": True}},
    "prometheusRule": {"enabled": True},
    "alertmanagerConfig": {"enabled": True},
    "routing": ROUTING,
    "dashboards": {
        "configMaps": {"enabled": True},
        "grafanaOperator": {"enabled": True},
        "openShiftConsole": {"enabled": True},
    },
    "stack": {
        "enabled": True,
        "grafana": {"ingress": {"enabled": True, "host": "grafana.example.com", "tlsSecret": "ingress-tls"}},
    },
    "argoWorkflows": {"sidecar": {"enabled": True}, "stressTest": {"enabled": True}},
    "autoscaling": {
        "prometheusAdapter": {"enabled": True},
        "keda": {"enabled": True, "target": {"name": "trainer"}},
    },
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-extra", "namespace": "{{ .Release.Namespace }}"},
            "data": {"a": "b"},
        }
    ],
}
FEWER: dict[str, Any] = {"commonLabels": {"team": "other"}, "dashboards": {"include": ["fleet"]}}
"""Other labels, and fewer objects than EVERYTHING."""
# Prometheus and Alertmanager that select all objects of their namespace.
SELECTS_ALL: dict[str, Any] = {
    "Prometheus": {
        "serviceMonitorSelector": {},
        "podMonitorSelector": {},
        "scrapeConfigSelector": {},
        "ruleSelector": {},
    },
    "Alertmanager": {
        "alertmanagerConfigSelector": {},
        "alertmanagerConfigMatcherStrategy": {"type": "None"},
    },
}
# The files in the configuration exist only in the pod.
CHECK_PROMETHEUS = ("promtool", "check", "config", "--syntax-only")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane.running(tmp_path_factory.mktemp("cluster")) as running:
        define(running)
        running.kubectl("create", "namespace", OPENSHIFT_CONSOLE)
        yield running


def define(plane: ControlPlane) -> None:
    files = [
        file
        for program, names in DEFINITIONS.items()
        for name in names
        for file in programs.path(program).glob(f"*_{name}*.yaml")
    ]
    plane.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    wanted = {name for names in DEFINITIONS.values() for name in names}

    def known() -> set[str]:
        return {resource.partition(".")[0] for resource in resources(plane)}

    wait_until(lambda: wanted <= known(), "the API has the resources", state=lambda: wanted - known())


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[None]:
    with prometheus_operator.operating(plane):
        yield


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    return new_namespace(plane)


def new_namespace(plane: ControlPlane, name: str = "") -> str:
    """A namespace with the Secrets that a user creates."""
    name = name or f"gpus-{next(_numbers)}"
    tls = {"tls.crt": plane.certificate, "tls.key": plane.key, "ca.crt": plane.authority}
    secrets = {
        "receivers": RECEIVERS,
        "web-login": {"username": "prometheus", "password": "none"},
        "web-tls": {key: file.read_text() for key, file in tls.items()},
    }
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        *(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": secret, "namespace": name},
                "stringData": data,
            }
            for secret, data in secrets.items()
        ),
    ]
    apply(plane, made)
    return name


def apply(plane: ControlPlane, made: list[Object]) -> None:
    plane.kubectl("apply", "--server-side", "--filename=-", given=as_list(made))


def check_that_nothing_is_left(plane: ControlPlane, namespace: str, before: set[Place]) -> None:
    # Kubernetes keeps the claims of a StatefulSet.
    plane.kubectl("delete", "persistentvolumeclaims", "--all", "--namespace", namespace)
    left: set[Place] = set()

    def gone() -> bool:
        nonlocal left
        left = everything(plane) - before
        return not left

    wait_until(gone, "nothing is left behind", state=lambda: sorted(left))


@pytest.mark.parametrize("helm", HELMS)
def test_install_upgrade_rollback_and_uninstall_leave_no_object(
    plane: ControlPlane, namespace: str, helm: str
) -> None:
    before = everything(plane)
    release = Release(plane, namespace, program=helm)
    release.install(CHART, EVERYTHING)
    installed = release.installed()
    size = release.bytes_in_cluster()
    assert size < MOST_BYTES_OF_A_SECRET, f"{size} bytes"
    release.upgrade(CHART, FEWER)
    fewer = release.installed()
    assert fewer.keys() < installed.keys()
    assert not (installed.keys() - fewer.keys()) & everything(plane)
    assert {made["metadata"]["labels"]["team"] for made in fewer.values()} == {"other"}
    release.roll_back(1)
    assert release.installed() == installed
    release.uninstall()
    check_that_nothing_is_left(plane, namespace, before)


def test_releases_share_no_object_in_one_namespace_or_in_two(plane: ControlPlane, namespace: str) -> None:
    # Joined by hyphens, namespace, release and chart of the third are the same text as those of the first.
    releases = [
        Release(plane, namespace, "one"),
        Release(plane, namespace, "two"),
        Release(plane, new_namespace(plane, f"{namespace}-one"), "gputally"),
    ]
    for release in releases:
        release.install(CHART, EVERYTHING)
    first, neighbour, third = (release.installed() for release in releases)
    namesake = {place(made) for made in Release(plane, "elsewhere", "one").rendered(CHART, EVERYTHING)}
    assert not first.keys() & (neighbour.keys() | third.keys() | namesake)
    assert len(first) == len(neighbour) == len(third) == len(namesake)
    taken = [
        labels for labels in pod_labels(neighbour) for selector in selectors(first) if selector <= labels
    ]
    assert taken == []
    for release in releases[1:]:
        release.uninstall()
    assert releases[0].installed() == first


def selectors(made: dict[Place, Object]) -> list[set[tuple[str, str]]]:
    """The labels by which workloads, Services and NetworkPolicies select pods."""
    found = []
    for each in made.values():
        if each["kind"] in {"DaemonSet", "Deployment", "StatefulSet"}:
            found.append(each["spec"]["selector"]["matchLabels"])
        if each["kind"] == "Service":
            found.append(each["spec"]["selector"])
        if each["kind"] == "NetworkPolicy":
            found.append(each["spec"]["podSelector"]["matchLabels"])
    return [{*labels.items()} for labels in found]


def pod_labels(made: dict[Place, Object]) -> list[set[tuple[str, str]]]:
    return [
        {*each["spec"]["template"]["metadata"]["labels"].items()}
        for each in made.values()
        if each["kind"] in {"DaemonSet", "Deployment", "StatefulSet"}
    ]


def test_a_second_server_side_apply_changes_nothing(plane: ControlPlane, namespace: str) -> None:
    release = Release(plane, namespace)
    made = release.rendered(CHART, EVERYTHING)
    apply(plane, made)
    again = release.rendered(CHART, EVERYTHING)
    changed: list[Place] = []

    def unchanged_by_applying() -> bool:
        before = versions(plane, made)
        apply(plane, again)
        changed[:] = [at for at, version in versions(plane, made).items() if before[at] != version]
        return not changed

    # Controllers write a status at first, sometimes between the two reads.
    wait_until(unchanged_by_applying, "applying changes nothing", state=lambda: changed)
    assert again == made
    assert plane.kubectl("diff", "--server-side", "--filename=-", given=as_list(again)) == ""


def versions(plane: ControlPlane, made: list[Object]) -> dict[Place, str]:
    return {at: found["metadata"]["resourceVersion"] for at, found in read(plane, made).items()}


def test_the_previous_release_is_upgraded_with_its_values(plane: ControlPlane, namespace: str) -> None:
    before = everything(plane)
    release = Release(plane, namespace)
    theirs = {
        "prometheusRule": {"additionalLabels": {"release": "kube-prometheus-stack"}},
        "scrapeConfig": {"cluster": "north"},
        "rules": {"settings": {"unusedRatio": 0.9123}},
    }
    release.install(PREVIOUS, theirs)
    old = release.installed()
    release.upgrade(CHART, {}, "--reuse-values")
    new = release.installed()
    assert old.keys() <= new.keys()
    assert "DaemonSet" in {kind for kind, _, _ in new}
    (rule,) = (each for each in new.values() if each["kind"] == "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert "0.9123" in json.dumps(rule)
    (scrape,) = (each for each in new.values() if each["kind"] == "ScrapeConfig")
    assert "north" in json.dumps(scrape)
    assert json.loads(release.helm("get", "values", release.name, "--output", "json")) == theirs
    release.roll_back(1)
    assert release.installed() == old
    release.uninstall()
    check_that_nothing_is_left(plane, namespace, before)


def select_all(plane: ControlPlane, namespace: str, kind: str) -> Generated:
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": "all", "namespace": namespace},
        "spec": SELECTS_ALL[kind],
    }
    apply(plane, [made])
    return Generated(plane, namespace)


@pytest.mark.parametrize("web", [{}, PROTECTED], ids=["open", "protected"])
@pytest.mark.parametrize("monitor", ["scrapeConfig", "serviceMonitor", "podMonitor"])
@pytest.mark.usefixtures("operator")
def test_the_operator_configures_every_scrape_object(
    plane: ControlPlane, namespace: str, tmp_path: Path, monitor: str, web: dict[str, Any]
) -> None:
    generated = select_all(plane, namespace, "Prometheus")
    values: dict[str, Any] = {
        "web": web,
        "podMonitor": {"sidecars": {"enabled": True}, "pods": {"enabled": True}},
    }
    values.setdefault(monitor, {})["enabled"] = True
    Release(plane, namespace).install(CHART, values)
    exporters, *own = (
        f"{monitor}/{namespace}/gpus-gputally",
        f"podMonitor/{namespace}/gpus-gputally-sidecars",
        f"podMonitor/{namespace}/gpus-gputally-pods",
    )
    jobs: dict[str, dict[str, Any]] = {}

    def all_are_there() -> bool:
        nonlocal jobs
        config = yaml.safe_load(generated.prometheus("all")) or {}
        jobs = {job["job_name"].removesuffix("/0"): job for job in config.get("scrape_configs") or ()}
        return jobs.keys() == {exporters, *own}

    wait_until(all_are_there, "the jobs exist", state=lambda: f"{[*jobs]}\n{generated.warnings()}")
    # Exporters have series of other pods; the others only of their own.
    assert [jobs[name]["honor_labels"] for name in (exporters, *own)] == [True, False, False]
    assert jobs[exporters].get("scheme", "http") == ("https" if web else "http")
    assert ("basic_auth" in jobs[exporters]) == bool(web)
    check(tmp_path / "prometheus.yaml", generated.prometheus("all"), *CHECK_PROMETHEUS)
    assert generated.warnings() == []


@pytest.mark.usefixtures("operator")
def test_the_operator_configures_every_rule(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    generated = select_all(plane, namespace, "Prometheus")
    release = Release(plane, namespace)
    release.install(CHART, {"prometheusRule": {"enabled": True}})
    (rule,) = (made for made in release.installed().values() if made["kind"] == "PrometheusRule")
    wait_until(lambda: generated.rules("all"), "there are rule files", state=generated.warnings)
    (text,) = generated.rules("all").values()
    assert [group["name"] for group in yaml.safe_load(text)["groups"]] == [
        group["name"] for group in rule["spec"]["groups"]
    ]
    check(tmp_path / "rules.yaml", text, "promtool", "check", "rules")
    assert generated.warnings() == []


@pytest.mark.usefixtures("operator")
def test_the_operator_configures_every_route(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    generated = select_all(plane, namespace, "Alertmanager")
    Release(plane, namespace).install(CHART, {"alertmanagerConfig": {"enabled": True}, "routing": ROUTING})
    receivers: list[str] = []

    def all_are_there() -> bool:
        config = yaml.safe_load(generated.alertmanager("all")) or {}
        receivers[:] = [receiver["name"] for receiver in config.get("receivers", ())]
        return any(name.startswith(f"{namespace}/") for name in receivers)

    wait_until(all_are_there, "the receivers exist", state=lambda: f"{receivers}\n{generated.warnings()}")
    text = generated.alertmanager("all")
    for secret in RECEIVERS.values():
        assert secret in text
    check(tmp_path / "alertmanager.yaml", text, "amtool", "check-config")
    assert generated.warnings() == []


@pytest.mark.usefixtures("operator")
def test_a_rule_that_the_operator_refuses_is_reported(plane: ControlPlane, namespace: str) -> None:
    generated = select_all(plane, namespace, "Prometheus")
    broken = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "broken", "namespace": namespace},
        "spec": {"groups": [{"name": "broken", "rules": [{"record": "a", "expr": "sum("}]}]},
    }
    apply(plane, [broken])
    wait_until(generated.warnings, "there is a warning")
    assert generated.warnings()[0].startswith("PrometheusRule broken: ")


def check(file: Path, text: str, program: str, *arguments: str) -> None:
    file.write_text(text)
    checked = subprocess.run(
        [programs.path(program), *arguments, file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}\n{text}"
