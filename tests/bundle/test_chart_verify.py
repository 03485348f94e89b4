"""`helm test`: its pod checks the installed parts without privileges."""

import io
import re
from typing import Any

import pytest

from alerts.rules import rule_groups
from dashboards import registry
from gputally.commands.verify import run
from tests.bundle import chart, pod_security

BCRYPT = "$2b$10$abcdefghijklmnopqrstuuNMy0YWQ3QK0GzR4oG9W7mO5v5pQ3e6C"
PROTECTED: dict[str, Any] = {
    "tls": {"enabled": True, "secret": "web-tls"},
    "basicAuth": {"enabled": True, "users": {"p": BCRYPT}, "secret": "web-login"},
}


def verify_pod(values: dict[str, Any] | None = None) -> chart.Pod:
    made = [
        made for made in chart.objects("Pod", values) if "helm.sh/hook" in made["metadata"]["annotations"]
    ]
    (pod,) = chart.pods(made)
    return pod


def flags(values: dict[str, Any] | None = None) -> dict[str, str]:
    (container,) = verify_pod(values).containers
    command, *arguments = container["args"]
    assert (container["command"], command) == (["gputally"], "verify")
    return {name: value for name, _, value in (one.partition("=") for one in arguments)}


def test_the_pod_runs_only_for_helm_test_and_is_kept() -> None:
    made = verify_pod().owner
    assert made["metadata"]["name"] == "gputally-verify"
    assert made["metadata"]["annotations"] == {
        "helm.sh/hook": "test",
        "helm.sh/hook-delete-policy": "before-hook-creation",
    }
    assert made["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("values", [{}, {"stack": {"enabled": True}}, {"web": PROTECTED}])
def test_the_pod_has_no_privileges(values: dict[str, Any]) -> None:
    pod = verify_pod(values)
    assert pod_security.level(pod) == "restricted"
    assert pod.spec["automountServiceAccountToken"] is False
    assert pod.containers[0]["securityContext"]["readOnlyRootFilesystem"] is True
    # Otherwise a runtime that is the default on the node would mount all GPUs.
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in pod.containers[0]["env"]


def test_the_pod_has_the_exporters_image() -> None:
    values = {"global": {"imageRegistry": "registry.example.com", "imagePullSecrets": ["s"]}}
    pod = verify_pod(values)
    (exporter,) = chart.pods(chart.objects("DaemonSet", values))
    assert pod.containers[0]["image"] == exporter.containers[0]["image"]
    assert pod.spec["imagePullSecrets"] == [{"name": "s"}]


def test_by_default_it_checks_the_exporter() -> None:
    assert flags() == {"--wait": "4m", "--exporter": "http://gputally.monitoring:9400"}
    assert flags({"service": {"port": 80}})["--exporter"] == "http://gputally.monitoring:80"


def test_an_existing_prometheus_is_checked_with_its_url() -> None:
    asked = {"prometheusUrl": "https://p.example.com/prom/", "cluster": "north"}
    found = flags({**asked, "rules": {"settings": {"job": "gpus"}}})
    assert (found["--prometheus"], found["--cluster"], found["--job"]) == (
        *("https://p.example.com/prom", "north"),
        "gpus",
    )
    assert found["--rule-groups"] == "0"
    with_rules = flags({**asked, "prometheusRule": {"enabled": True}})
    assert with_rules["--rule-groups"] == str(len([group for group in rule_groups() if group["rules"]]))
    assert "--grafana" not in found


def test_all_parts_of_a_stack_are_checked() -> None:
    found = flags({"stack": {"enabled": True}})
    assert found["--prometheus"] == "http://gputally-prometheus.monitoring:9090"
    assert found["--alertmanager"] == "http://gputally-alertmanager.monitoring:9093"
    assert found["--grafana"] == "http://gputally-grafana.monitoring:80"
    assert found["--dashboards"] == str(len(registry.texts()))
    fewer = {"enabled": True, "alertmanager": {"enabled": False}, "grafana": {"enabled": False}}
    assert flags({"stack": fewer}).keys() == {
        *("--wait", "--exporter", "--prometheus", "--job", "--rule-groups"),
    }


def test_disabled_parts_are_not_expected() -> None:
    values = {
        "stack": {"enabled": True},
        "dashboards": {"include": ["fleet", "node"]},
        "rules": {"groups": {"gputally-prices": {"enabled": False}}},
    }
    usual, found = flags({"stack": {"enabled": True}}), flags(values)
    assert found["--dashboards"] == "2"
    assert int(found["--rule-groups"]) == int(usual["--rule-groups"]) - 1


def test_without_a_part_to_check_there_is_no_pod() -> None:
    only_rules = {"exporter": {"enabled": False}, "prometheusRule": {"enabled": True}}
    assert chart.objects("Pod", only_rules) == []
    assert "--exporter" not in flags({**only_rules, "prometheusUrl": "http://p.example.com"})


def test_the_web_settings_of_the_exporter_are_used() -> None:
    found = flags({"web": PROTECTED})
    assert found["--exporter"] == "https://gputally.monitoring:9400"
    assert found["--exporter-server-name"] == "gputally.monitoring.svc"
    (container,) = verify_pod({"web": PROTECTED}).containers
    (mount,) = container["volumeMounts"]
    assert found["--exporter-ca"] == f"{mount['mountPath']}/ca.crt"
    assert found["--exporter-login"] == mount["mountPath"]
    (volume,) = verify_pod({"web": PROTECTED}).spec["volumes"]
    files = {
        (source["secret"]["name"], item["path"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files == {("web-tls", "ca.crt"), ("web-login", "username"), ("web-login", "password")}


def test_insecure_skip_verify_applies_here_too() -> None:
    tls = {"enabled": True, "secret": "s", "insecureSkipVerify": True, "serverName": "x.example.com"}
    found = flags({"web": {"tls": tls}})
    assert "--exporter-insecure" in found
    assert "--exporter-ca" not in found
    assert found["--exporter-server-name"] == "x.example.com"
    assert "volumes" not in verify_pod({"web": {"tls": tls}}).spec


def test_grafanas_path_and_login_are_used() -> None:
    admin = {"secret": "g", "userKey": "name", "passwordKey": "word"}
    grafana = {"admin": admin, "rootUrl": "https://x.example.com/grafana"}
    values = {"stack": {"enabled": True, "grafana": grafana}}
    found = flags(values)
    assert found["--grafana"] == "http://gputally-grafana.monitoring:80/grafana"
    pod = verify_pod(values)
    (volume,) = pod.spec["volumes"]
    assert volume["secret"]["items"] == [
        {"key": "name", "path": "username"},
        {"key": "word", "path": "password"},
    ]
    assert found["--grafana-login"] == pod.containers[0]["volumeMounts"][0]["mountPath"]


def test_every_flag_is_accepted_by_the_command(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The connections are refused: no server is running."""
    login = tmp_path_factory.mktemp("login")
    for name in ("username", "password"):
        (login / name).write_text("x")
    grafana = {"admin": {"secret": "g"}}
    values = {"stack": {"enabled": True, "grafana": grafana}, "web": PROTECTED, "cluster": "a"}
    given = {**flags(values), "--wait": "1s", "--exporter-login": str(login), "--grafana-login": str(login)}
    arguments = [
        re.sub(r"https?://[^/]+", "http://127.0.0.1:1", f"{name}={value}") for name, value in given.items()
    ]
    out = io.StringIO()
    assert run(arguments, out) == 1
    assert out.getvalue().count("is unavailable: connection refused") == 3
