"""Values that the schema allows and the templates refuse."""

from typing import Any

import pytest

from tests.bundle.chart import refusal, render

USERS = {"prometheus": "$2b$10$" + "e" * 53}

# Title -> values, the key that the message begins with, and what it has to name besides.
MISTAKES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "scraped twice": (
        {"scrapeConfig": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "scrapeConfig.enabled and serviceMonitor.enabled",
        [],
    ),
    "scraped three times": (
        {
            "scrapeConfig": {"enabled": True},
            "serviceMonitor": {"enabled": True},
            "podMonitor": {"enabled": True},
        },
        "scrapeConfig.enabled and serviceMonitor.enabled and podMonitor.enabled",
        [],
    ),
    "scrapers of all namespaces": (
        {"networkPolicy": {"scrapers": ["prometheus"]}},
        "networkPolicy.scraperNamespaces",
        ["required with networkPolicy.scrapers"],
    ),
    "namespaces without scrapers": (
        {"networkPolicy": {"scraperNamespaces": ["monitoring"]}},
        "networkPolicy.scraperNamespaces",
        ["set networkPolicy.scrapers"],
    ),
    "directories of logs without their links": (
        {"privileges": {"podLogs": False, "podLogDirectories": True}},
        "privileges.podLogDirectories",
        ["privileges.podLogs"],
    ),
    "nothing enabled": ({"exporter": {"enabled": False}}, "nothing is enabled", ["exporter.enabled"]),
    "scraping without an exporter": (
        {
            "exporter": {"enabled": False},
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
        },
        "podMonitor.enabled",
        ["exporter.enabled is false"],
    ),
    "constraints without an exporter": (
        {
            "exporter": {"enabled": False},
            "prometheusRule": {"enabled": True},
            "securityContextConstraints": {"enabled": True},
        },
        "securityContextConstraints.enabled",
        ["exporter.enabled is false"],
    ),
    "a ServiceMonitor without a Service": (
        {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}},
        "serviceMonitor.enabled",
        ["service.enabled", "podMonitor", "scrapeConfig"],
    ),
    "TLS without a certificate": (
        {"web": {"tls": {"enabled": True}}},
        "web.tls.secret",
        ["tls.crt", "tls.key"],
    ),
    "a certificate without TLS": (
        {"web": {"tls": {"secret": "certificate"}}},
        "web.tls",
        ["web.tls.enabled"],
    ),
    "a login without users": (
        {"web": {"basicAuth": {"enabled": True, "secret": "login"}}},
        "web.basicAuth.users",
        ["htpasswd -nBC 10 USER"],
    ),
    "a login without the scraper's Secret": (
        {"web": {"basicAuth": {"enabled": True, "users": USERS}}},
        "web.basicAuth.secret",
        ["username", "password"],
    ),
    "users without a login": (
        {"web": {"basicAuth": {"users": USERS}}},
        "web.basicAuth",
        ["web.basicAuth.enabled"],
    ),
    "an unencrypted password on a node port": (
        {
            "web": {"basicAuth": {"enabled": True, "users": USERS, "secret": "login"}},
            "service": {"type": "NodePort"},
        },
        "web.basicAuth.enabled with service.type NodePort",
        ["web.tls.enabled"],
    ),
    "pod labels without a source": (
        {"kubernetes": {"podLabels": ["app"]}},
        "kubernetes.podLabels",
        ["kubernetes.enabled", "privileges.kubeletPods"],
    ),
    "pod annotations without a source": (
        {"kubernetes": {"podAnnotations": ["app"]}},
        "kubernetes.podAnnotations",
        ["kubernetes.enabled", "privileges.kubeletPods"],
    ),
    "node labels without a source": (
        {"kubernetes": {"nodeLabels": ["zone"]}, "privileges": {"kubeletPods": True}},
        "kubernetes.nodeLabels",
        ["kubernetes.enabled"],
    ),
    "an account without a role": (
        {"kubernetes": {"enabled": True}, "rbac": {"create": False}},
        "kubernetes.enabled without rbac.create",
        ["serviceAccount.create=false", "serviceAccount.name"],
    ),
    "a role for the namespace's default account": (
        {"kubernetes": {"enabled": True}, "serviceAccount": {"create": False}},
        "serviceAccount.name",
        ["serviceAccount.create=false"],
    ),
    "a state file without a directory": (
        {"state": {"hostPath": ""}},
        "state.hostPath",
        ["state.volume", "emptyDir", "none"],
    ),
    "a driver without a mount path": (
        {"driver": {"hostPath": "/home/kubernetes/bin/nvidia", "mountPath": ""}},
        "driver.mountPath",
        ["driver.hostPath"],
    ),
    "a library without a driver": (
        {"driver": {"libraries": ["libnvidia-ml.so.1"]}},
        "driver.libraries",
        ["driver.hostPath"],
    ),
    "capabilities of a privileged container": (
        {"privileges": {"privileged": True, "capabilities": ["SYS_ADMIN"]}},
        "privileges.capabilities",
        ["privileges.privileged=false"],
    ),
    "accounting on AMD GPUs": (
        {"privileges": {"accounting": True}, "exporter": {"reader": "amdgpu"}},
        "privileges.accounting",
        ["exporter.reader is amdgpu"],
    ),
    "a GPU request of the exporter": (
        {"exporter": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        "exporter.resources",
        ["nvidia.com/gpu"],
    ),
    "a flag that is a value": (
        {"exporter": {"extraArgs": ["--interval=1s"]}},
        "exporter.extraArgs",
        ["--interval", "exporter.interval"],
    ),
    "another listen address": (
        {"exporter": {"extraArgs": ["--listen-address=:9500"]}},
        "exporter.extraArgs",
        ["--listen-address", "exporter.port"],
    ),
    "another metrics path": (
        {"exporter": {"extraArgs": ["--metrics-path=/gpus"]}},
        "exporter.extraArgs",
        ["--metrics-path", "/metrics"],
    ),
    "a pod that exits": (
        {"exporter": {"extraArgs": ["--once"]}},
        "exporter.extraArgs",
        ["--once"],
    ),
    "the exporter as a sidecar": (
        {"exporter": {"extraArgs": ["--sidecar"]}},
        "exporter.extraArgs",
        ["--sidecar", "argoWorkflows.sidecar"],
    ),
    "relayed metrics without a relay": (
        {"exporter": {"extraArgs": ["--relay-metrics"]}},
        "exporter.extraArgs",
        ["--relay-metrics", "exporter.relay"],
    ),
    "a flag of the simulator with a real reader": (
        {"exporter": {"extraArgs": ["--gpus=4"]}},
        "exporter.extraArgs",
        ["--gpus", "exporter.reader=simulated"],
    ),
    "a reserved label": (
        {"commonLabels": {"app.kubernetes.io/component": "gpu"}},
        "commonLabels",
        ["app.kubernetes.io/component"],
    ),
    "a reserved pod label": (
        {"exporter": {"podLabels": {"app.kubernetes.io/name": "gpu"}}},
        "exporter.podLabels",
        ["app.kubernetes.io/name"],
    ),
    "routes without a receiver": (
        {"alertmanagerConfig": {"enabled": True}},
        "alertmanagerConfig.enabled",
        ["routing.default"],
    ),
    "an Ingress without Grafana": (
        {"stack": {"grafana": {"ingress": {"enabled": True, "host": "gpus.example"}}}},
        "stack.grafana.ingress.enabled",
        ["stack.enabled", "stack.grafana.enabled"],
    ),
    "a stress test without Prometheus": (
        {"argoWorkflows": {"stressTest": {"enabled": True}}},
        "argoWorkflows.stressTest.enabled",
        ["prometheusUrl", "stack.enabled"],
    ),
    "a ScaledObject without a target": (
        {"autoscaling": {"keda": {"enabled": True}}, "prometheusUrl": "http://prometheus:9090"},
        "autoscaling.keda.target.name",
        [],
    ),
}


@pytest.mark.parametrize(("values", "key", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_line_with_the_key_and_the_remedy(
    values: dict[str, Any], key: str, named: list[str]
) -> None:
    line = refusal(values)
    assert line.startswith(f"{key}: ")
    assert [term for term in named if term not in line] == []


FINE: dict[str, dict[str, Any]] = {
    "pod labels from the kubelet": {
        "kubernetes": {"podLabels": ["app"]},
        "privileges": {"kubeletPods": True},
    },
    "a role outside the chart": {
        "kubernetes": {"enabled": True},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "gpus"},
    },
    "the operator and the stack, each with its Prometheus": {
        "stack": {"enabled": True},
        "scrapeConfig": {"enabled": True},
    },
    "rules and dashboards only": {
        "exporter": {"enabled": False},
        "prometheusRule": {"enabled": True},
        "dashboards": {"configMaps": {"enabled": True}},
    },
    "sidecars without the exporter": {
        "exporter": {"enabled": False},
        "podMonitor": {"sidecars": {"enabled": True}},
    },
    "simulated GPUs": {"exporter": {"reader": "simulated", "extraArgs": ["--gpus=4"]}},
    "relayed metrics": {
        "exporter": {"relay": "http://$(NODE_IP):9400/metrics", "extraArgs": ["--relay-metrics"]}
    },
}


@pytest.mark.parametrize("values", FINE.values(), ids=FINE)
def test_similar_values_without_a_mistake_are_rendered(values: dict[str, Any]) -> None:
    assert render(values)
