"""The exporter's pod as the chart renders it, and the node labels by which it selects GPU nodes."""

from collections.abc import Mapping
from typing import Any

from gputally.commands.command_line import OneLineParser, add_flags
from gputally.config import SETTINGS, Config, read_config
from tests.bundle.chart import Pod, objects, pods

WITHOUT_PRIVILEGES: dict[str, Any] = {
    "privileges": {"hostPID": False, "podLogs": False, "podResources": False},
    "state": {"volume": "none"},
}
GPU_NODES = {
    "NFD with vendors, NVIDIA": {"feature.node.kubernetes.io/pci-10de.present": "true"},
    "NFD with classes, NVIDIA": {"feature.node.kubernetes.io/pci-0302_10de.present": "true"},
    "NFD with classes, display controller": {"feature.node.kubernetes.io/pci-0300_10de.present": "true"},
    "NFD with vendors, AMD": {"feature.node.kubernetes.io/pci-1002.present": "true"},
    "NFD with classes, MI200": {"feature.node.kubernetes.io/pci-0380_1002.present": "true"},
    "NFD with classes, MI300": {"feature.node.kubernetes.io/pci-1200_1002.present": "true"},
    "NVIDIA's operator": {"nvidia.com/gpu.present": "true"},
    "AMD's operator": {"feature.node.kubernetes.io/amd-gpu": "true"},
    "AMD's operator in a VM": {"feature.node.kubernetes.io/amd-vgpu": "true"},
    "AMD's labeller": {"amd.com/gpu.family": "AI"},
    "GKE": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "EKS Auto Mode": {"eks.amazonaws.com/instance-gpu-manufacturer": "nvidia"},
    "Karpenter": {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"},
    "EKS node groups": {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"},
    "AKS": {"kubernetes.azure.com/accelerator": "nvidia"},
    "AKS auto-provisioning": {"karpenter.azure.com/sku-gpu-manufacturer": "nvidia"},
}
"""Provider of the label -> labels of a node with a GPU."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODE = "node-1"


def pod(values: Mapping[str, Any] | None = None, **options: Any) -> Pod:
    """The pod of the DaemonSet; `options` are those of `chart.render`."""
    (found,) = pods(objects("DaemonSet", values, **options))
    return found


def container(values: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    (found,) = pod(values).spec["containers"]
    made: Mapping[str, Any] = found
    return made


def config(values: Mapping[str, Any] | None = None) -> Config:
    """The exporter's settings, as it parses the container's arguments."""
    command, *flags = container(values)["args"]
    assert command == "serve"
    return parsed(*flags)


def parsed(*flags: str) -> Config:
    """The exporter's settings with these flags of `gputally serve`."""
    parser = OneLineParser()
    add_flags(parser, SETTINGS)
    return read_config(parser.parse_args(flags), {"NODE_NAME": NODE})


def env(made: Mapping[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in made["env"]}


def volumes(made: Pod) -> dict[str, Mapping[str, Any]]:
    return {volume["name"]: volume for volume in made.spec.get("volumes", ())}


def mounts(made: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {mount["name"]: mount for mount in made.get("volumeMounts", ())}


def schedulable(made: Pod, node: Mapping[str, str]) -> bool:
    """Whether the pod's required node affinity matches a node with these labels."""
    terms = made.spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return any(
        all(
            rule["key"] in node if rule["operator"] == "Exists" else node.get(rule["key"]) in rule["values"]
            for rule in term["matchExpressions"]
        )
        for term in terms
    )


def tolerates(made: Pod, key: str, value: str, effect: str = "NoSchedule") -> bool:
    return any(
        toleration["key"] == key
        and (toleration["operator"] == "Exists" or toleration.get("value") == value)
        and toleration.get("effect", effect) == effect
        for toleration in made.spec["tolerations"]
    )
