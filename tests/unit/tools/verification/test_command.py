"""tools/verify with a `kubectl` that plays a cluster, and real servers at the end of its ports."""

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_servers import site
from tests.support.texts import missing, numbers
from tests.unit.tools.verification.fake_kubectl import FakeKubectl
from tools import ROOT
from tools.verification.command import main

METRICS = {"/metrics": b'\ngputally_exporter_info{version="1"} 1\n'}
OPERATOR = ("prometheuses", "alertmanagers", "scrapeconfigs", "prometheusrules")


def labels(component: str, release: str = "gputally") -> dict[str, str]:
    return {
        "app.kubernetes.io/part-of": "gputally",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
    }


def made(name: str, component: str = "", *, namespace: str = "gpu", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels(component) if component else {}}
    return {"metadata": metadata, **more}


def daemonset(desired: int = 1, ready: int = 1, scheme: str = "HTTP") -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": "metrics", "scheme": scheme}}
    pod = {"containers": [{"name": "gputally", "livenessProbe": probe}]}
    counts = {"desiredNumberScheduled": desired, "numberReady": ready}
    return made("gputally", "exporter", spec={"template": {"spec": pod}}, status=counts)


def service(name: str, component: str, port: int) -> dict[str, Any]:
    return made(name, component, spec={"ports": [{"port": port}]})


def running(*components: str) -> list[dict[str, Any]]:
    return [made(f"{one}-0", one, status={"phase": "Running"}) for one in components]


def stateful(component: str, **pod: Any) -> dict[str, Any]:
    name = f"gputally-{component}"
    spec = {"replicas": 1, "template": {"spec": {"containers": [], "volumes": [], **pod}}}
    return made(name, component, spec=spec, status={"readyReplicas": 1})


def exporter_only() -> dict[str, list[Any]]:
    return {
        "daemonsets": [daemonset()],
        "services": [service("gputally", "exporter", 9400)],
        "pods": running("exporter"),
    }


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def lines(report: str) -> dict[str, str]:
    """subject -> its last line, without the subject."""
    said = [re.split(" {2,}", line, maxsplit=2) for line in report.splitlines()]
    return {parts[1]: f"{parts[0]}: {parts[2]}" for parts in said if parts[0]}


def test_an_exporter_with_the_operator_is_checked_through_its_service(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: dict[str, Any] = {
        "scrapeConfigSelector": {},
        "scrapeConfigNamespaceSelector": {},
        "ruleSelector": {},
    }
    enforced = {"routePrefix": "/prom", "enforcedNamespaceLabel": "namespace"}
    prometheus = made("main", namespace="monitoring", spec={**taken, **enforced})
    scrape = made("gputally", "exporter", spec={})
    rule = made("gputally", "rules", namespace="monitoring", spec={"groups": [{}, {}]})
    kinds = {f"{kind}.monitoring.coreos.com": list[Any]() for kind in OPERATOR}
    kinds["prometheuses.monitoring.coreos.com"] = [{**prometheus, "kind": "Prometheus"}]
    kinds["scrapeconfigs.monitoring.coreos.com"] = [scrape]
    kinds["prometheusrules.monitoring.coreos.com"] = [rule]
    pages: dict[str, Any] = {
        "/prom/api/v1/query": {"data": {"result": []}},
        "/prom/api/v1/rules": {"data": {"groups": []}},
    }
    with site(METRICS) as exporter, site(pages) as served:
        ways = {"service/gputally": exporter.port, "pod/prometheus-main-0": served.port}
        kubectl = FakeKubectl(path, {**exporter_only(), **kinds}, ways=ways)
        assert main(["--context", "lab"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^warning +labels +enforcedNamespaceLabel ", said, re.MULTILINE)
    found = lines(said)
    assert found["exporter pods"].startswith("ok: ")
    assert found["scrapeConfig"].startswith("ok: gpu/gputally ")
    assert found["prometheusRule"].startswith("ok: monitoring/gputally ")
    assert found["exporter"].startswith("ok: ")
    assert found["targets"].startswith("failure: ")
    assert found["rules"].startswith("failure: ")
    assert numbers(found["rules"]) == [0, 2]
    assert all(line.startswith("--context=lab ") for line in kubectl.asked)


@pytest.mark.parametrize("with_secret", [False, True])
def test_a_stack_is_checked_with_the_password_of_grafana(
    path: Path, capsys: pytest.CaptureFixture[str], *, with_secret: bool
) -> None:
    probe = {"httpGet": {"path": "/grafana/api/health"}}
    items = [{"key": "user", "path": "user"}, {"key": "word", "path": "password"}]
    admin = {"name": "admin", "secret": {"secretName": "s", "items": items}}
    grafana = stateful(
        "grafana",
        containers=[{"name": "grafana", "readinessProbe": probe}],
        volumes=[admin] if with_secret else [],
    )
    encoded = {
        key: base64.b64encode(text.encode()).decode() for key, text in (("user", "admin"), ("word", "x"))
    }
    objects = {
        "daemonsets": [daemonset()],
        "statefulsets": [stateful("prometheus"), grafana],
        "services": [
            service("gputally-prometheus", "prometheus", 9090),
            service("gputally-grafana", "grafana", 80),
        ],
        "pods": running("prometheus", "grafana"),
        "secrets": [made("other"), made("s", data=encoded)],
        "configmaps": [
            made("gputally-prometheus", "prometheus", data={"gputally.rules.yml": "groups: [{}, {}, {}]"}),
            *(made(f"gputally-dashboard-{name}", "dashboards") for name in "ab"),
        ],
    }
    pages = {
        "/grafana/api/health": {},
        "/grafana/api/search": [{}],
        "/grafana/api/datasources": [],
        "/api/v1/query": {"data": {"result": []}},
        "/api/v1/rules": {"data": {"groups": []}},
    }
    with site(pages, login="" if with_secret else "Basic YWRtaW46eA==") as served, site(pages) as prometheus:
        ways = {"service/gputally-prometheus": prometheus.port, "service/gputally-grafana": served.port}
        FakeKubectl(path, objects, ways=ways, password="" if with_secret else "x")
        assert main([]) == 1
    found = lines(capsys.readouterr().out)
    levels = {subject: line.partition(":")[0] for subject, line in found.items()}
    assert levels["prometheus"] == "ok"
    assert (levels["dashboards"], numbers(found["dashboards"])) == ("failure", [1, 2])
    assert levels["data source"] == "failure"
    assert (levels["rules"], numbers(found["rules"])) == ("failure", [0, 3])
    assert "scraping" not in found


def test_parts_that_do_not_run_are_not_waited_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = {**exporter_only(), "daemonsets": [daemonset(2, 0)], "pods": []}
    kubectl = FakeKubectl(path, objects)
    assert main([]) == 1
    found = lines(capsys.readouterr().out)
    assert numbers(found["exporter pods"]) == [0, 2]
    assert found["exporter"].startswith("not checked: ")
    assert not [line for line in kubectl.asked if "port-forward" in line]


def test_a_failed_port_forward_is_reported_once(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FakeKubectl(path, exporter_only())
    main([])
    said = capsys.readouterr().out
    assert said.count("service/gputally") == 1
    assert "error: unable to forward port" in said  # of kubectl


def test_the_scheme_of_the_exporter_is_that_of_its_probes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site(METRICS) as plain:
        FakeKubectl(
            path,
            {**exporter_only(), "daemonsets": [daemonset(scheme="HTTPS")]},
            ways={"service/gputally": plain.port},
        )
        main([])
    assert f"https://127.0.0.1:{plain.port}" in lines(capsys.readouterr().out)["exporter"]


def test_a_given_address_is_used(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with site({"/api/v1/query": {"data": {"result": []}}}) as given:
        kubectl = FakeKubectl(path, exporter_only())
        assert main(["--prometheus-url", given.url, "--job", "gpus"]) == 1
    found = lines(capsys.readouterr().out)
    assert missing(found["targets"], "failure: ", "job gpus") == []
    assert not [line for line in kubectl.asked if "api-resources" in line]


def test_without_permission_a_check_is_skipped(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FakeKubectl(path, exporter_only(), refused=["nodes", "pods"])
    main([])
    found = lines(capsys.readouterr().out)
    assert missing(found["gpu nodes"], "not checked: ", "(Forbidden)") == []
    assert found["inside"].startswith("not checked: ")


def test_a_missing_kubectl_and_a_missing_release_are_errors_of_one_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeKubectl(path, {})
    assert main(["--namespace", "gpu"]) == 1
    assert "namespace gpu" in capsys.readouterr().err
    os.environ["PATH"] = "/nonexistent"
    assert main([]) == 1
    assert missing(capsys.readouterr().err, "kubectl", "PATH") == []


def test_the_help_lists_requirements_and_flags() -> None:
    shown = subprocess.run([ROOT / "tools" / "verify", "--help"], capture_output=True, text=True, check=True)
    for word in ("port-forward", "helm test", "--release", "--wait 5m"):
        assert word in shown.stdout
