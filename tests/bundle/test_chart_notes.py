"""What Helm says after an installation: what there is, how to see it, and what may be wrong."""

from typing import Any

import pytest

from tests.bundle.chart import CHART, PRESETS, merged, objects
from tests.bundle.exporter_pod import WITHOUT_PRIVILEGES

# Helm prints notes only to those who have a cluster: here they are put into an object.
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
    values: dict[str, Any] | None = None, *presets: str, apis: tuple[str, ...] = (), name: str = "gputally"
) -> str:
    made = objects(
        "ConfigMap",
        {**(values or {}), "extraObjects": [SHOWN]},
        name=name,
        namespace="gpus",
        files=[PRESETS[preset] for preset in presets],
        arguments=[f"--api-versions={api}" for api in apis],
    )
    (text,) = [one["data"]["notes"] for one in made if one["metadata"]["name"] == "notes"]
    found: str = text
    return found


def warnings(*arguments: Any, **options: Any) -> list[str]:
    _, _, below = notes(*arguments, **options).partition("Warnings:\n")
    return [line.removeprefix("  - ") for line in below.splitlines()]


def about(value: str, *arguments: Any, **options: Any) -> bool:
    return any(warning.startswith(value) for warning in warnings(*arguments, **options))


def test_the_notes_are_what_helm_prints() -> None:
    text = (CHART / "templates/NOTES.txt").read_text()
    assert text == '{{- include "gputally.defaults" . }}\n{{- include "gputally.notes" . }}\n'


def test_they_say_what_is_installed_and_how_to_see_it() -> None:
    said = notes({"exporter": {"port": 9401}}, "kube-prometheus-stack")
    assert "the exporter on every node with a GPU, scraped by a ScrapeConfig" in said
    assert "only networkPolicy.scrapers" in said
    assert "alerts and recording rules (PrometheusRule)" in said
    assert "kubectl port-forward --namespace gpus daemonset/gputally 9401\n  http://localhost:9401" in said
    assert "helm test gputally --namespace gpus" in said


def test_they_are_short() -> None:
    assert len(notes({"stack": {"enabled": True}}).splitlines()) < 30


def test_with_tls_the_address_has_it_too() -> None:
    assert "https://localhost:9400" in notes({"web": {"tls": {"enabled": True, "secret": "certificate"}}})


def test_the_made_password_of_grafana_is_read_where_the_stack_puts_it() -> None:
    said = notes({"stack": {"enabled": True}}, name="gpu")
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
    ) in said
    assert "/var/lib/grafana/admin-password" in str(settings)
    assert f"service/{name} 3000:80" in said


def test_a_password_of_the_users_own_is_not_shown_how_to_read() -> None:
    said = notes({"stack": {"enabled": True, "grafana": {"admin": {"secret": "login"}}}})
    assert "of the Secret login" in said
    assert "admin-password" not in said


@pytest.mark.parametrize(
    ("value", "values", "api"),
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
def test_an_api_that_the_cluster_lacks_is_worth_a_warning(
    value: str, values: dict[str, Any], api: str
) -> None:
    labelled = {**values, **LABELLED}
    assert about(f"{value}: this cluster does not know {api}", labelled)
    assert not about(f"{value}:", labelled, apis=(api,))


def test_objects_that_kube_prometheus_stack_would_not_see_are_worth_a_warning() -> None:
    values = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    assert about("serviceMonitor, prometheusRule: without a label `release`", values, apis=OPERATOR)
    own = {**values, "prometheusRule": {"enabled": True, "additionalLabels": {"release": "kps"}}}
    assert about("serviceMonitor: without a label `release`", own, apis=OPERATOR)
    assert not any("release" in line for line in warnings({**values, **LABELLED}, apis=OPERATOR))


def test_an_exporter_that_nothing_scrapes_is_worth_a_warning() -> None:
    assert about("nothing scrapes the exporter")
    assert not about("nothing scrapes the exporter", {"stack": {"enabled": True}})
    assert not about("nothing scrapes the exporter", {"podMonitor": {"enabled": True}})
    only_rules = {"exporter": {"enabled": False}, "prometheusRule": {"enabled": True}}
    assert not about("nothing scrapes the exporter", only_rules)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"privileges": {"hostPID": True}}, "privileges.hostPID"),
        ({"privileges": {"privileged": True}}, "privileges.privileged"),
        ({"privileges": {"accounting": True}}, "privileges.accounting"),
        ({"privileges": {"podLogs": True}}, "folders of the node"),
    ],
)
def test_what_pod_security_does_not_allow_is_told_with_its_remedy(
    values: dict[str, Any], reason: str
) -> None:
    assert about(
        f"{reason}: where Pod Security is enforced, `kubectl label namespace gpus",
        merged(WITHOUT_PRIVILEGES, values),
    )


def test_without_privileges_there_is_no_word_of_pod_security() -> None:
    assert not any("Pod Security" in line for line in warnings(WITHOUT_PRIVILEGES))


def test_alerts_that_nobody_hears_of_are_worth_a_warning() -> None:
    stack = {"stack": {"enabled": True}}
    assert "routing.default: without a receiver nobody is told of any alert" in warnings(stack)
    told = {**stack, "routing": {"default": "slack", "secret": "receivers"}}
    assert not about("routing", told)
    some = {**stack, "routing": {"critical": "pagerduty", "secret": "receivers"}}
    assert about("routing.default: without a receiver nobody is told of alerts for which", some)


def test_a_password_in_the_clear_is_worth_a_warning() -> None:
    login = {"enabled": True, "users": {"a": "$2b$10$abc"}, "secret": "login"}
    assert about("web.basicAuth: without web.tls", {"web": {"basicAuth": login}})


def test_an_installation_without_a_fault_has_no_warning() -> None:
    assert warnings({**WITHOUT_PRIVILEGES, **LABELLED}, "kube-prometheus-stack", apis=OPERATOR) == []


def test_they_warn_of_sidecars_that_are_counted_beside_the_exporter_of_their_node() -> None:
    scraped = {"podMonitor": {"sidecars": {"enabled": True}}}
    assert about("sidecars are scraped", scraped, apis=OPERATOR)
    assert about(
        "sidecars are scraped", {"stack": {"enabled": True}, "argoWorkflows": {"sidecar": {"enabled": True}}}
    )
    assert not about("sidecars are scraped", {**scraped, "exporter": {"enabled": False}}, apis=OPERATOR)
    assert not about("sidecars are scraped", {"argoWorkflows": {"sidecar": {"enabled": True}}})
