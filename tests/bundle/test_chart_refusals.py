"""What no schema can tell, the chart itself refuses: in one line that names the value and says what to do."""

from typing import Any

import pytest

from tests.bundle.chart import refusal, render

USERS = {"prometheus": "$2b$10$" + "a" * 53}

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "scraped twice": (
        {"scrapeConfig": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "scrapeConfig.enabled and serviceMonitor.enabled: choose one, or everything is scraped twice",
    ),
    "scraped three times": (
        {
            "scrapeConfig": {"enabled": True},
            "serviceMonitor": {"enabled": True},
            "podMonitor": {"enabled": True},
        },
        "scrapeConfig.enabled and serviceMonitor.enabled and podMonitor.enabled: choose one",
    ),
    "nothing at all": ({"exporter": {"enabled": False}}, "nothing is enabled: set exporter.enabled"),
    "a scraper of nothing": (
        {
            "exporter": {"enabled": False},
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
        },
        "podMonitor.enabled: there is nothing to scrape while exporter.enabled is false",
    ),
    "constraints of nobody": (
        {
            "exporter": {"enabled": False},
            "prometheusRule": {"enabled": True},
            "securityContextConstraints": {"enabled": True},
        },
        "securityContextConstraints.enabled: there is nobody to give them to",
    ),
    "a monitor of a Service that is not there": (
        {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}},
        "serviceMonitor.enabled: it looks for a Service; set service.enabled",
    ),
    "TLS without a certificate": (
        {"web": {"tls": {"enabled": True}}},
        "web.tls.secret: name the Secret with tls.crt and tls.key",
    ),
    "a certificate without TLS": (
        {"web": {"tls": {"secret": "certificate"}}},
        "web.tls: it is set but not on; set web.tls.enabled",
    ),
    "a login without users": (
        {"web": {"basicAuth": {"enabled": True, "secret": "login"}}},
        "web.basicAuth.users: without a user nobody can log in",
    ),
    "a login that the scraper does not know": (
        {"web": {"basicAuth": {"enabled": True, "users": USERS}}},
        "web.basicAuth.secret: name the Secret with username and password",
    ),
    "users without a login": (
        {"web": {"basicAuth": {"users": USERS}}},
        "web.basicAuth: it is set but not on; set web.basicAuth.enabled",
    ),
    "a password for all to read": (
        {
            "web": {"basicAuth": {"enabled": True, "users": USERS, "secret": "login"}},
            "service": {"type": "NodePort"},
        },
        "web.basicAuth.enabled with service.type NodePort: passwords would leave the cluster in the clear",
    ),
    "labels of pods that nobody reads": (
        {"kubernetes": {"podLabels": ["app"]}},
        "kubernetes.podLabels: nothing reads them; set kubernetes.enabled",
    ),
    "annotations of pods that nobody reads": (
        {"kubernetes": {"podAnnotations": ["app"]}},
        "kubernetes.podAnnotations: nothing reads them; set kubernetes.enabled",
    ),
    "labels of nodes that nobody reads": (
        {"kubernetes": {"nodeLabels": ["zone"]}, "privileges": {"kubeletPods": True}},
        "kubernetes.nodeLabels: only the API server knows them; set kubernetes.enabled",
    ),
    "an account that cannot have a role": (
        {"kubernetes": {"enabled": True}, "rbac": {"create": False}},
        "kubernetes.enabled without rbac.create: nobody can have given a role",
    ),
    "a role for everybody's account": (
        {"kubernetes": {"enabled": True}, "serviceAccount": {"create": False}},
        "serviceAccount.name: name the account",
    ),
    "a state without a folder": (
        {"state": {"hostPath": ""}},
        "state.hostPath: name a folder of the node, or set state.volume to emptyDir or none",
    ),
    "a driver that is mounted nowhere": (
        {"driver": {"hostPath": "/home/kubernetes/bin/nvidia", "mountPath": ""}},
        "driver.mountPath: say where the container has driver.hostPath",
    ),
    "a library of no driver": (
        {"driver": {"libraries": ["libnvidia-ml.so.1"]}},
        "driver.libraries: they are looked for below driver.hostPath; set it",
    ),
    "capabilities of a container that has all": (
        {"privileges": {"privileged": True, "capabilities": ["SYS_ADMIN"]}},
        "privileges.capabilities: a privileged container has all of them",
    ),
    "accounting on AMD's GPUs": (
        {"privileges": {"accounting": True}, "exporter": {"reader": "amdgpu"}},
        "privileges.accounting: only NVIDIA's driver has an accounting mode, and exporter.reader is amdgpu",
    ),
    "a GPU for the exporter": (
        {"exporter": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        "exporter.resources: nvidia.com/gpu would take a GPU away",
    ),
    "a flag that is a value": (
        {"exporter": {"extraArgs": ["--interval=1s"]}},
        "exporter.extraArgs: for --interval there is the value exporter.interval",
    ),
    "an address that nobody would scrape": (
        {"exporter": {"extraArgs": ["--listen-address=:9500"]}},
        "exporter.extraArgs: for --listen-address there is the value exporter.port",
    ),
    "a path that nobody would scrape": (
        {"exporter": {"extraArgs": ["--metrics-path=/gpus"]}},
        "exporter.extraArgs: leave --metrics-path out: everything scrapes /metrics",
    ),
    "a pod that ends": (
        {"exporter": {"extraArgs": ["--once"]}},
        "exporter.extraArgs: leave --once out: the pod would end",
    ),
    "a sidecar that is none": (
        {"exporter": {"extraArgs": ["--sidecar"]}},
        "exporter.extraArgs: leave --sidecar out",
    ),
    "nobody to relay": (
        {"exporter": {"extraArgs": ["--relay-metrics"]}},
        "exporter.extraArgs: --relay-metrics is of no use without exporter.relay",
    ),
    "simulated GPUs of a real reader": (
        {"exporter": {"extraArgs": ["--gpus=4"]}},
        "exporter.extraArgs: --gpus is for exporter.reader simulated",
    ),
    "a label that is the chart's": (
        {"commonLabels": {"app.kubernetes.io/component": "gpu"}},
        "commonLabels: app.kubernetes.io/component is the chart's own",
    ),
    "a pod's label that is the chart's": (
        {"exporter": {"podLabels": {"app.kubernetes.io/name": "gpu"}}},
        "exporter.podLabels: app.kubernetes.io/name is the chart's own",
    ),
    "routes of nobody": (
        {"alertmanagerConfig": {"enabled": True}},
        "alertmanagerConfig.enabled: nobody would hear of any alert",
    ),
    "an address of no Grafana": (
        {"stack": {"grafana": {"ingress": {"enabled": True, "host": "gpus.example"}}}},
        "stack.grafana.ingress.enabled: there is no Grafana to reach",
    ),
    "a test that asks nobody": (
        {"argoWorkflows": {"stressTest": {"enabled": True}}},
        "argoWorkflows.stressTest.enabled: set prometheusUrl",
    ),
    "nothing to scale": (
        {"autoscaling": {"keda": {"enabled": True}}, "prometheusUrl": "http://prometheus:9090"},
        "autoscaling.keda.target.name",
    ),
}


@pytest.mark.parametrize(("values", "line"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_answered_in_one_clear_line(values: dict[str, Any], line: str) -> None:
    assert refusal(values).startswith(line)


FINE: dict[str, dict[str, Any]] = {
    "labels of pods by the kubelet": {
        "kubernetes": {"podLabels": ["app"]},
        "privileges": {"kubeletPods": True},
    },
    "a role that somebody else gives": {
        "kubernetes": {"enabled": True},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "gpus"},
    },
    "operator and stack, each with its Prometheus": {
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
    "relayed series among ours": {
        "exporter": {"relay": "http://$(NODE_IP):9400/metrics", "extraArgs": ["--relay-metrics"]}
    },
}


@pytest.mark.parametrize("values", FINE.values(), ids=FINE)
def test_what_only_looks_like_a_mistake_is_rendered(values: dict[str, Any]) -> None:
    assert render(values)
