"""NOTES.txt: installed parts, commands and warnings."""

from typing import Any

import pytest

from tests.bundle.chart import CHART, PRESETS, merged, objects
from tests.bundle.exporter_pod import WITHOUT_PRIVILEGES

# `helm template` does not print notes, so they are rendered into an object.
SHOWN = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\n"
    'data:\n  notes: |\n    {{- include "gputally.notes" . | nindent 4 }}\n'
)
OPERATOR = (
    "monitoring.coreos.com/v1alpha1/ScrapeConfig",
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
)
LABELLED = {"commonLabels": {"release": "kps"}}


def notes(
    values: dict[str, Any] | None = None,
    preset: str | None = None,
    apis: tuple[str, ...] = (),
    name: str = "gputally",
) -> str:
    made = objects(
        "ConfigMap",
        {**(values or {}), "extraObjects": [SHOWN]},
        name=name,
        namespace="gpus",
        files=[PRESETS[preset]] if preset else [],
        arguments=[f"--api-versions={api}" for api in apis],
    )
    (text,) = [one["data"]["notes"] for one in made if one["metadata"]["name"] == "notes"]
    found: str = text
    return found


def warnings(**options: Any) -> list[str]:
    _, _, below = notes(**options).partition("Warnings:\n")
    return [line.removeprefix("  - ") for line in below.splitlines()]


def warned(key: str, *terms: str, **options: Any) -> bool:
    """Whether a warning begins with the key and names all terms; `options` are those of `notes`."""
    return any(
        line.startswith(f"{key}: ") and all(term in line for term in terms) for line in warnings(**options)
    )


def test_the_notes_are_what_helm_prints() -> None:
    text = (CHART / "templates/NOTES.txt").read_text()
    assert text == '{{- include "gputally.defaults" . }}\n{{- include "gputally.notes" . }}\n'


def test_the_notes_list_the_installed_parts_and_the_commands() -> None:
    text = notes({"exporter": {"port": 9401}}, "kube-prometheus-stack")
    for named in ("ScrapeConfig", "every pod of the cluster can", "PrometheusRule"):
        assert named in text
    assert "kubectl port-forward --namespace gpus daemonset/gputally 9401\n  http://localhost:9401" in text
    assert "helm test gputally --namespace gpus" in text


def test_the_notes_name_who_is_admitted() -> None:
    network = {"scrapers": ["vmagent", "alloy"], "scraperNamespaces": ["vm", "grafana"]}
    text = notes({"networkPolicy": network, "stack": {"enabled": True}})
    admitted = "vmagent, alloy in vm, grafana, the stack's Prometheus and `helm test` can reach the exporter"
    assert f"a NetworkPolicy: only {admitted}" in text


def test_the_notes_are_short() -> None:
    assert len(notes({"stack": {"enabled": True}}).splitlines()) < 30


def test_with_tls_the_url_is_https() -> None:
    assert "https://localhost:9400" in notes({"web": {"tls": {"enabled": True, "secret": "certificate"}}})


def test_the_command_for_grafanas_password_reads_the_file_of_the_stack() -> None:
    text = notes({"stack": {"enabled": True}}, name="gpu")
    name = "gpu-gputally-grafana"
    grafana, settings = (
        made
        for kind in ("StatefulSet", "ConfigMap")
        for made in objects(kind, {"stack": {"enabled": True}}, name="gpu", namespace="gpus")
        if made["metadata"]["name"] == name
    )
    containers = [container["name"] for container in grafana["spec"]["template"]["spec"]["containers"]]
    assert "grafana" in containers
    assert (
        f"kubectl exec --namespace gpus --container grafana statefulset/{name} -- "
        "cat /var/lib/grafana/admin-password"
    ) in text
    assert "/var/lib/grafana/admin-password" in str(settings)
    assert f"service/{name} 3000:80" in text


def test_for_a_password_in_a_secret_the_secret_is_named() -> None:
    text = notes({"stack": {"enabled": True, "grafana": {"admin": {"secret": "login"}}}})
    assert "Secret login" in text
    assert "admin-password" not in text


@pytest.mark.parametrize(
    ("key", "values", "api"),
    [
        ("scrapeConfig.enabled", {"scrapeConfig": {"enabled": True}}, OPERATOR[0]),
        ("serviceMonitor.enabled", {"serviceMonitor": {"enabled": True}}, OPERATOR[1]),
        ("podMonitor", {"podMonitor": {"sidecars": {"enabled": True}}}, OPERATOR[2]),
        ("prometheusRule.enabled", {"prometheusRule": {"enabled": True}}, OPERATOR[3]),
        (
            "dashboards.grafanaOperator.enabled",
            {"dashboards": {"grafanaOperator": {"enabled": True}}},
            "grafana.integreatly.org/v1beta1/GrafanaDashboard",
        ),
        (
            "argoWorkflows",
            {"argoWorkflows": {"sidecar": {"enabled": True}}},
            "argoproj.io/v1alpha1/WorkflowTemplate",
        ),
        (
            "autoscaling.keda.enabled",
            {
                "autoscaling": {"keda": {"enabled": True, "target": {"name": "a"}}},
                "prometheusUrl": "http://prometheus:9090",
            },
            "keda.sh/v1alpha1/ScaledObject",
        ),
        (
            "securityContextConstraints.enabled",
            {"securityContextConstraints": {"enabled": True}},
            "security.openshift.io/v1/SecurityContextConstraints",
        ),
    ],
)
def test_an_api_that_the_cluster_lacks_is_a_warning(key: str, values: dict[str, Any], api: str) -> None:
    labelled = {**values, **LABELLED}
    assert warned(key, api, values=labelled)
    assert not warned(key, values=labelled, apis=(api,))


def test_objects_that_kube_prometheus_stack_does_not_select_are_a_warning() -> None:
    values = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    remedy = "commonLabels.release"
    assert warned("serviceMonitor, prometheusRule", remedy, values=values, apis=OPERATOR)
    own = {**values, "prometheusRule": {"enabled": True, "additionalLabels": {"release": "kps"}}}
    assert warned("serviceMonitor", remedy, values=own, apis=OPERATOR)
    assert not any("release" in line for line in warnings(values={**values, **LABELLED}, apis=OPERATOR))


def test_an_exporter_without_a_scraper_is_a_warning() -> None:
    def unscraped(values: dict[str, Any]) -> bool:
        return warned("nothing scrapes the exporter", "stack.enabled", "podMonitor", values=values)

    assert unscraped({})
    assert not unscraped({"stack": {"enabled": True}})
    assert not unscraped({"podMonitor": {"enabled": True}})
    assert not unscraped({"exporter": {"enabled": False}, "prometheusRule": {"enabled": True}})


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"privileges": {"hostPID": True}}, "privileges.hostPID"),
        ({"privileges": {"privileged": True}}, "privileges.privileged"),
        ({"privileges": {"accounting": True}}, "privileges.accounting"),
        ({"privileges": {"podLogs": True}}, "hostPath volumes"),
    ],
)
def test_values_that_pod_security_refuses_are_a_warning_with_the_command(
    values: dict[str, Any], key: str
) -> None:
    command = "`kubectl label namespace gpus pod-security.kubernetes.io/enforce=privileged`"
    assert warned(key, command, values=merged(WITHOUT_PRIVILEGES, values))


def test_without_privileges_there_is_no_warning_about_pod_security() -> None:
    assert not any("pod-security" in line for line in warnings(values=WITHOUT_PRIVILEGES))


def test_alerts_without_a_receiver_are_a_warning() -> None:
    stack = {"stack": {"enabled": True}}
    assert warned("routing.default", "any alert", values=stack)
    assert not warned("routing.default", values={**stack, "routing": {"default": "slack", "secret": "s"}})
    critical_only = {**stack, "routing": {"critical": "pagerduty", "secret": "s"}}
    assert warned("routing.default", values=critical_only)
    assert not warned("routing.default", "any alert", values=critical_only)


def test_an_unencrypted_password_is_a_warning() -> None:
    login = {"enabled": True, "users": {"a": "$2b$10$abc"}, "secret": "login"}
    assert warned("web.basicAuth", "web.tls.enabled", values={"web": {"basicAuth": login}})


def test_an_installation_without_a_mistake_has_no_warning() -> None:
    values = {**WITHOUT_PRIVILEGES, **LABELLED}
    assert warnings(values=values, preset="kube-prometheus-stack", apis=OPERATOR) == []


def test_sidecars_that_are_counted_twice_are_a_warning() -> None:
    def counted_twice(values: dict[str, Any]) -> bool:
        return any("docs/argo.md" in line for line in warnings(values=values, apis=OPERATOR))

    sidecar = {"argoWorkflows": {"sidecar": {"enabled": True}}}
    scraped = {"podMonitor": {"sidecars": {"enabled": True}}}
    assert counted_twice(scraped)
    assert counted_twice({"stack": {"enabled": True}, **sidecar})
    assert not counted_twice({**scraped, "exporter": {"enabled": False}})
    assert not counted_twice(sidecar)
