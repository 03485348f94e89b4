"""Each preset fits its platform."""

from typing import Any

import pytest

from tests.bundle import exporter_pod
from tests.bundle.chart import PRESETS, Object, Pod, objects, render
from tests.bundle.exporter_pod import GPU_NODES, config, env, schedulable, tolerates

PLATFORMS = {"gke", "eks", "aks", "k3s", "openshift", "gpu-operator", "amd"}


def exporter(*presets: str, values: dict[str, Any] | None = None) -> Pod:
    return exporter_pod.pod(values, files=[PRESETS[preset] for preset in presets])


def rendered(*presets: str) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for made in render(files=[PRESETS[preset] for preset in presets]):
        found.setdefault(made["kind"], []).append(made)
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_its_install_command_and_pod_security_level(preset: str) -> None:
    text = PRESETS[preset].read_text()
    head = text[: text.index("\n\n")]
    assert f"--values helm/gputally/presets/{preset}.yaml" in head
    assert "# Pod Security: " in head


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_works_with_the_stack_and_with_an_operator(preset: str) -> None:
    alone = {("Service", "gputally"), ("DaemonSet", "gputally")}
    for more in ({"stack": {"enabled": True}}, {"podMonitor": {"sidecars": {"enabled": True}}}):
        made = {(one["kind"], one["metadata"]["name"]) for one in render(more, files=[PRESETS[preset]])}
        assert alone <= made


@pytest.mark.parametrize("platform", sorted(PLATFORMS - {"openshift"}))
def test_platforms_work_with_kube_prometheus_stack_and_with_argo(platform: str) -> None:
    found = rendered(platform, "kube-prometheus-stack", "argo")
    (scrape,) = found["ScrapeConfig"]
    assert scrape["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert "ClusterRole" in found


def test_gke_mounts_its_driver_and_is_privileged_without_the_nvidia_runtime() -> None:
    pod = exporter("gke")
    (container,) = pod.spec["containers"]
    (driver,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "driver"]
    assert driver["hostPath"]["path"] == "/home/kubernetes/bin/nvidia"
    assert env(container)["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert container["securityContext"]["privileged"] is True
    assert tolerates(pod, "nvidia.com/gpu", "present", "NoSchedule")
    assert schedulable(pod, GPU_NODES["GKE"])


def test_eks_selects_nodes_of_every_provisioner_without_a_capability() -> None:
    pod = exporter("eks")
    for node in ("EKS Auto Mode", "Karpenter", "EKS node groups"):
        assert schedulable(pod, GPU_NODES[node])
    assert pod.spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert tolerates(pod, "nvidia.com/gpu", "true", "NoSchedule")
    bottlerocket = exporter("eks", values={"privileges": {"capabilities": ["SYS_ADMIN"]}})
    assert bottlerocket.spec["containers"][0]["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]


def test_aks_selects_gpu_pools_and_spot_pools() -> None:
    pod = exporter("aks")
    assert schedulable(pod, GPU_NODES["AKS"])
    assert schedulable(pod, GPU_NODES["AKS auto-provisioning"])
    assert tolerates(pod, "sku", "gpu", "NoSchedule")
    assert tolerates(pod, "kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule")
    assert "runtimeClassName" not in pod.spec


def test_k3s_uses_the_nvidia_runtime_on_labelled_nodes_only() -> None:
    pod = exporter("k3s")
    assert pod.spec["runtimeClassName"] == "nvidia"
    assert schedulable(pod, {"nvidia.com/gpu.present": "true"})
    assert not schedulable(pod, {})


def test_with_nvidias_operator_the_exporter_leaves_while_the_driver_is_replaced() -> None:
    pod = exporter("gpu-operator")
    assert pod.spec["runtimeClassName"] == "nvidia"
    assert pod.spec["nodeSelector"]["nvidia.com/gpu.deploy.dcgm-exporter"] == "true"
    assert tolerates(pod, "nvidia.com/gpu", "", "NoSchedule")
    assert pod.spec.get("hostNetwork") is None, "dcgm-exporter uses port 9400 too"


def test_openshift_has_constraints_and_objects_for_its_monitoring() -> None:
    found = rendered("openshift")
    assert {"SecurityContextConstraints", "ServiceMonitor", "PrometheusRule"} <= found.keys()
    assert "ScrapeConfig" not in found
    consoles = [
        made for made in found["ConfigMap"] if made["metadata"]["namespace"] == "openshift-config-managed"
    ]
    assert consoles
    for made in consoles:
        assert made["metadata"]["labels"]["console.openshift.io/dashboard"] == "true"
    pod = exporter("openshift")
    assert pod.spec["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    (constraints,) = found["SecurityContextConstraints"]
    assert constraints["allowPrivilegedContainer"] is False
    assert constraints["seLinuxContext"] == {"type": "RunAsAny"}


def test_amd_uses_the_amdgpu_reader_with_access_to_kfd() -> None:
    pod = exporter("amd")
    (container,) = pod.spec["containers"]
    assert "--reader=amdgpu" in container["args"]
    assert container["securityContext"]["privileged"] is True
    for node in (name for name in GPU_NODES if "AMD" in name or "MI" in name):
        assert schedulable(pod, GPU_NODES[node])
    for taint, effect in {
        "amd.com/gpu": "NoSchedule",
        "amd-gpu-unhealthy": "NoSchedule",
        "amd-dcm": "NoExecute",
    }.items():
        assert tolerates(pod, taint, "up", effect)


@pytest.mark.parametrize("platform", [None, *sorted(PLATFORMS - {"gke", "amd"})])
def test_mig_has_the_variable_and_the_capability_that_the_nvidia_runtime_requires(
    platform: str | None,
) -> None:
    (container,) = exporter(*([platform] if platform else []), "mig").spec["containers"]
    assert env(container)["NVIDIA_MIG_MONITOR_DEVICES"] == "all"
    assert env(container)["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    (alone,) = exporter(*([platform] if platform else [])).spec["containers"]
    assert "NVIDIA_MIG_MONITOR_DEVICES" not in env(alone)


def test_argo_exports_the_label_of_its_dashboard() -> None:
    (container,) = exporter("argo").spec["containers"]
    (labels,) = [flag for flag in container["args"] if flag.startswith("--pod-labels=")]
    assert "workflows.argoproj.io/workflow" in labels.partition("=")[2].split(",")
    assert "--kubernetes" in container["args"]
    assert {"ClusterRole", "ClusterRoleBinding"} <= rendered("argo").keys()
    assert "WorkflowTemplate" not in rendered("argo")


def test_minimal_has_no_privilege_and_reports_no_missing_source() -> None:
    pod = exporter("minimal")
    assert "hostPID" not in pod.spec
    assert [volume for volume in pod.spec["volumes"] if "hostPath" in volume] == []
    assert pod.spec["automountServiceAccountToken"] is False
    assert {"--pod-logs=none", "--pod-resources-socket=none"} <= {*pod.spec["containers"][0]["args"]}
    (rule,) = objects("PrometheusRule", {"prometheusRule": {"enabled": True}}, files=[PRESETS["minimal"]])
    assert 'source!~"state_file|cgroup"' in str(rule)


def test_kube_prometheus_stack_selects_the_objects_by_its_label() -> None:
    found = rendered("kube-prometheus-stack")
    for kind in ("ScrapeConfig", "PrometheusRule"):
        (made,) = found[kind]
        assert made["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert all(made["metadata"]["labels"]["grafana_dashboard"] == "1" for made in found["ConfigMap"])
    assert "StatefulSet" not in found


def test_no_preset_changes_the_sampling_interval() -> None:
    defaults = config()
    for preset in PRESETS:
        flags = exporter(preset).spec["containers"][0]["args"]
        assert f"--interval={defaults.interval_seconds:g}s" in flags
