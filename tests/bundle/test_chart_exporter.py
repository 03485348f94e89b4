"""The exporter's pod: each value has its effect, and each privilege is requested by a value."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputally.config import Config
from gputally.server.web_config import parse_web_config
from tests.bundle.chart import CHART, Object, merged, objects, pods, refusal, render
from tests.bundle.exporter_pod import (
    GPU_NODES,
    NODE,
    REQUIRED,
    WITHOUT_PRIVILEGES,
    config,
    container,
    env,
    mounts,
    pod,
    schedulable,
    tolerates,
    volumes,
)
from tests.bundle.network_policies import Peer, reaches

EVERYTHING: dict[str, Any] = {
    "exporter": {
        "metrics": "core",
        "metricsInclude": ["nvlink", "gputally_gpu_bar1_used_bytes"],
        "metricsExclude": ["xid"],
        "compat": ["dcgm", "opencost"],
        "relay": "http://$(NODE_IP):9500/metrics",
        "processMetrics": True,
        "pcieThroughput": True,
        "port": 9401,
        "reader": "nvml",
        "interval": "2s",
        "retention": "10m",
        "logLevel": "debug",
        "logFormat": "json",
    },
    "privileges": {"accounting": True},
    "kubernetes": {
        "enabled": True,
        "podLabels": ["app", "workflows.argoproj.io/*"],
        "podAnnotations": ["example.com/cost"],
        "nodeLabels": ["topology.kubernetes.io/zone"],
    },
}
USERS = {"prometheus": "$2b$10$" + "e" * 53}
TLS = {"enabled": True, "secret": "certificate"}
LOGIN = {"enabled": True, "secret": "login", "users": USERS}


def test_the_chart_has_the_defaults_of_the_exporter() -> None:
    assert config() == Config(port=9400, node_name=NODE, state_file=Path("/var/lib/gputally/ledger.json"))


def test_every_value_reaches_the_exporter() -> None:
    read = config(EVERYTHING)
    assert read == Config(
        port=9401,
        metrics="core",
        metrics_include=("nvlink", "gputally_gpu_bar1_used_bytes"),
        metrics_exclude=("xid",),
        reader="nvml",
        interval_seconds=2,
        retention_seconds=600,
        log_level="debug",
        log_format="json",
        compat=("dcgm", "opencost"),
        relay="http://$(NODE_IP):9500/metrics",
        process_metrics=True,
        pcie_throughput=True,
        accounting=True,
        kubernetes=True,
        pod_labels=("app", "workflows.argoproj.io/*"),
        pod_annotations=("example.com/cost",),
        node_labels=("topology.kubernetes.io/zone",),
        node_name=NODE,
        state_file=Path("/var/lib/gputally/ledger.json"),
    )
    assert container(EVERYTHING)["ports"] == [{"name": "metrics", "containerPort": 9401, "protocol": "TCP"}]


def test_additional_flags_and_variables_come_last() -> None:
    extra = {"extraArgs": ["--release-driver"], "extraEnv": [{"name": "TZ", "value": "UTC"}]}
    assert config({"exporter": extra}).release_driver
    assert container({"exporter": extra})["env"][-1] == {"name": "TZ", "value": "UTC"}


def test_a_flag_that_the_chart_sets_is_refused_in_extra_args() -> None:
    web = {"web": {"tls": TLS}}
    flags = {
        flag.partition("=")[0]
        for values in (EVERYTHING, web)
        for flag in container(values)["args"]
        if flag.startswith("--")
    }
    assert {"--port", "--relay", "--web-config"} <= flags
    for flag in flags:
        assert flag in refusal({"exporter": {"extraArgs": [f"{flag}=x"]}})


def test_sources_without_a_privilege_are_disabled() -> None:
    assert (config(WITHOUT_PRIVILEGES).pod_logs, config(WITHOUT_PRIVILEGES).pod_resources_socket) == (
        None,
        None,
    )
    with_logs = config(merged(WITHOUT_PRIVILEGES, {"privileges": {"podLogs": True}}))
    assert with_logs.pod_logs is not None
    assert with_logs.pod_resources_socket is None


def test_the_driver_is_mounted_without_a_gpu_request() -> None:
    assert env(container())["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert env(container())["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert {*container()["resources"]["limits"]} <= {"cpu", "memory"}


def test_the_node_name_and_the_address_for_the_relay_are_variables() -> None:
    fields = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container(EVERYTHING)["env"]
        if "valueFrom" in variable
    }
    assert fields == {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    assert "NODE_IP" not in env(container())


# -- Privileges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "directories"),
    [
        ({"privileges": {"podLogs": True}}, {"/var/log/containers"}),
        (
            {"privileges": {"podLogs": True, "podLogDirectories": True}},
            {"/var/log/pods", "/var/log/containers"},
        ),
        ({"privileges": {"podResources": True}}, {"/var/lib/kubelet/pod-resources"}),
        ({"privileges": {"kubeletPods": True}}, {"/var/lib/kubelet/pods-api"}),
        ({"driver": {"hostPath": "/usr/local/nvidia"}}, {"/usr/local/nvidia"}),
        ({"state": {"volume": "hostPath"}}, {"/var/lib/gputally"}),
        ({"privileges": {"hostPID": True}}, set()),
    ],
)
def test_a_privilege_mounts_its_directories_of_the_node_only(
    values: dict[str, Any], directories: set[str]
) -> None:
    made = pod(merged(WITHOUT_PRIVILEGES, values))
    (only,) = made.spec["containers"]
    assert {volume["hostPath"]["path"] for volume in volumes(made).values()} == directories
    assert {mount["mountPath"] for mount in mounts(only).values()} == directories
    for name, mount in mounts(only).items():
        assert mount.get("readOnly", False) is (name != "state")


def test_missing_directories_of_the_node_are_created() -> None:
    everything = {
        "privileges": {"podLogDirectories": True, "kubeletPods": True},
        "driver": {"hostPath": "/home/kubernetes/bin/nvidia"},
    }
    found = volumes(pod(everything))
    assert {name: volume["hostPath"]["type"] for name, volume in found.items()} == dict.fromkeys(
        ("pod-logs", "container-logs", "pod-resources", "kubelet-pods", "driver", "state"),
        "DirectoryOrCreate",
    )


def test_the_kubelets_directory_is_a_value() -> None:
    values = {"privileges": {"kubeletDirectory": "/var/lib/k0s/kubelet/", "kubeletPods": True}}
    made = pod(values)
    paths = {name: volume["hostPath"]["path"] for name, volume in volumes(made).items()}
    assert paths["pod-resources"] == "/var/lib/k0s/kubelet/pod-resources"
    assert paths["kubelet-pods"] == "/var/lib/k0s/kubelet/pods-api"
    assert mounts(container(values))["pod-resources"]["mountPath"] == "/var/lib/kubelet/pod-resources"


@pytest.mark.parametrize(
    ("values", "user"),
    [
        ({}, 65532),
        ({"privileges": {"hostPID": True, "podLogs": True}}, 65532),
        ({"privileges": {"accounting": True}}, 65532),
        ({"state": {"volume": "emptyDir"}}, 65532),
        ({"privileges": {"podResources": True}}, 0),
        ({"privileges": {"kubeletPods": True}}, 0),
        ({"privileges": {"capabilities": ["SYS_PTRACE"]}}, 0),
        ({"privileges": {"privileged": True}}, 0),
        ({"state": {"volume": "hostPath"}}, 0),
    ],
)
def test_the_container_runs_as_user_0_only_if_required(values: dict[str, Any], user: int) -> None:
    context = pod(merged(WITHOUT_PRIVILEGES, values)).spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (user, user)
    assert context["runAsNonRoot"] is (user != 0)


def test_all_capabilities_are_dropped_before_others_are_added() -> None:
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    asked = ["SYS_PTRACE", "DAC_READ_SEARCH"]
    added = container({"privileges": {"capabilities": asked}})["securityContext"]["capabilities"]
    assert added == {"drop": ["ALL"], "add": asked}


def test_a_privileged_container_has_no_conflicting_restrictions() -> None:
    values = {"privileges": {"privileged": True, "accounting": True}}
    for made in pod(values).containers:
        context = {key for key in made["securityContext"] if not key.startswith("runAs")}
        assert context == {"privileged", "readOnlyRootFilesystem"}
        assert made["securityContext"]["privileged"] is True


def test_groups_and_the_selinux_type_are_set_on_the_pod() -> None:
    context = pod({"privileges": {"supplementalGroups": [0, 44], "seLinuxType": "spc_t"}}).spec[
        "securityContext"
    ]
    assert context["supplementalGroups"] == [0, 44]
    assert context["seLinuxOptions"] == {"type": "spc_t"}


def test_host_pid_is_a_value() -> None:
    assert pod().spec["hostPID"] is True
    assert "hostPID" not in pod({"privileges": {"hostPID": False}}).spec


def test_accounting_is_enabled_by_an_init_container_that_may_fail() -> None:
    (init,) = pod(merged(WITHOUT_PRIVILEGES, {"privileges": {"accounting": True}})).spec["initContainers"]
    assert init["command"] == ["sh", "-c", "gputally enable-accounting || true"]
    # The driver checks both.
    assert init["securityContext"]["runAsUser"] == 0
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert env(init)["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "initContainers" not in pod().spec


def test_a_token_and_a_role_exist_only_with_the_api_server_as_a_source() -> None:
    assert pod().spec["automountServiceAccountToken"] is False
    assert objects("ClusterRole") == objects("ClusterRoleBinding") == []
    asking = {"kubernetes": {"enabled": True}}
    assert pod(asking).spec["automountServiceAccountToken"] is True
    (role,) = objects("ClusterRole", asking)
    (binding,) = objects("ClusterRoleBinding", asking)
    assert [rule["resources"] for rule in role["rules"]] == [["pods"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "monitoring.gputally"
    (nodes,) = objects("ClusterRole", {"kubernetes": {"enabled": True, "nodeLabels": ["zone"]}})
    assert nodes["rules"][1] == {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


# -- The driver --------------------------------------------------------------------------------------------


def test_a_driver_of_the_host_is_in_the_library_path_and_in_path() -> None:
    values = {
        "driver": {"hostPath": "/home/kubernetes/bin/nvidia", "mountPath": "/driver/"},
        "privileges": {"accounting": True},
    }
    for made in pod(values).containers:
        assert env(made)["LD_LIBRARY_PATH"] == "/driver/lib64"
        assert env(made)["PATH"].split(":")[-1] == "/driver/bin"
        assert env(made)["PATH"].split(":")[0] == "/opt/gputally/bin"
        assert mounts(made)["driver"]["mountPropagation"] == "HostToContainer"
    assert env(container()).keys().isdisjoint({"LD_LIBRARY_PATH", "LD_PRELOAD", "PATH"})


def test_path_contains_the_directories_of_the_image() -> None:
    dockerfile = (Path(__file__).parents[2] / "Dockerfile").read_text()
    assert "PATH=/opt/gputally/bin:$PATH" in dockerfile
    path = env(container({"driver": {"hostPath": "/d"}}))["PATH"].split(":")
    assert {"/opt/gputally/bin", "/usr/local/bin", "/usr/bin", "/bin"} <= {*path}


def test_a_single_library_is_preloaded() -> None:
    values = {
        "hostPath": "/run/nvidia/driver",
        "libraryDirectories": [],
        "libraries": ["usr/lib64/libnvidia-ml.so.1"],
    }
    found = env(container({"driver": values}))
    assert found["LD_PRELOAD"] == "/usr/local/nvidia/usr/lib64/libnvidia-ml.so.1"
    assert "LD_LIBRARY_PATH" not in found


# -- State -------------------------------------------------------------------------------------------------


def test_the_ledger_is_on_the_node_in_the_pod_or_disabled() -> None:
    assert volumes(pod())["state"]["hostPath"]["path"] == "/var/lib/gputally"
    assert (
        volumes(pod({"state": {"hostPath": "/data/ledger"}}))["state"]["hostPath"]["path"] == "/data/ledger"
    )
    assert volumes(pod({"state": {"volume": "emptyDir"}}))["state"]["emptyDir"] == {}
    without = {"state": {"volume": "none"}}
    assert config(without).state_file is None
    assert "state" not in volumes(pod(without))


# -- Nodes -------------------------------------------------------------------------------------------------

OTHER_NODES: dict[str, dict[str, str]] = {
    "nothing": {},
    "NFD, a network adapter": {"feature.node.kubernetes.io/pci-15b3.present": "true"},
    "the operator's label, on a node without": {"nvidia.com/gpu.present": "false"},
    "another accelerator": {"eks.amazonaws.com/instance-gpu-manufacturer": "habana"},
}


@pytest.mark.parametrize("node", GPU_NODES.values(), ids=GPU_NODES)
def test_gpu_nodes_are_selected_by_any_of_the_known_labels(node: dict[str, str]) -> None:
    assert schedulable(pod(), node)


@pytest.mark.parametrize("node", OTHER_NODES.values(), ids=OTHER_NODES)
def test_other_nodes_are_not_selected(node: dict[str, str]) -> None:
    assert not schedulable(pod(), node)


def test_a_node_affinity_replaces_the_one_of_the_chart() -> None:
    own = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}
    assert pod({"exporter": {"affinity": {"nodeAffinity": own}}}).spec["affinity"] == {"nodeAffinity": own}
    beside = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}
    assert pod({"exporter": {"affinity": beside}}).spec["affinity"].keys() == {
        "nodeAffinity",
        "podAntiAffinity",
    }
    assert "affinity" not in pod({"exporter": {"gpuNodesOnly": False}}).spec


@pytest.mark.parametrize(
    ("key", "value"), [("nvidia.com/gpu", "present"), ("amd.com/gpu", ""), ("sku", "gpu")]
)
def test_the_taints_of_gpu_nodes_are_tolerated(key: str, value: str) -> None:
    assert tolerates(pod(), key, value)


def test_runtime_class_and_priority_class_are_values() -> None:
    spec = pod({"exporter": {"runtimeClassName": "nvidia", "priorityClassName": "system-node-critical"}}).spec
    assert (spec["runtimeClassName"], spec["priorityClassName"]) == ("nvidia", "system-node-critical")
    assert pod().spec.keys().isdisjoint({"runtimeClassName", "priorityClassName"})


# -- Lifecycle ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "scheme"), [({}, "HTTP"), ({"web": {"tls": TLS}}, "HTTPS")])
def test_no_probe_depends_on_the_driver(values: dict[str, Any], scheme: str) -> None:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(values)[probe]["httpGet"] == {
            "path": "/healthz",
            "port": "metrics",
            "scheme": scheme,
        }


def test_pods_are_replaced_a_few_at_a_time_and_can_be_rolled_back() -> None:
    (made,) = objects("DaemonSet", {"exporter": {"maxUnavailable": 3, "revisionHistoryLimit": 2}})
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 3},
    }
    assert made["spec"]["revisionHistoryLimit"] == 2


def test_pods_have_the_labels_and_annotations_of_the_values() -> None:
    values = {
        "commonLabels": {"team": "gpu"},
        "commonAnnotations": {"owner": "us"},
        "exporter": {"podLabels": {"tier": "node"}, "podAnnotations": {"note": "a"}},
    }
    made = pod(values)
    assert {"team": "gpu", "tier": "node", "app.kubernetes.io/component": "exporter"}.items() <= dict(
        made.labels
    ).items()
    assert made.metadata["annotations"] == {"owner": "us", "note": "a"}


def test_defaults_can_be_removed_with_null() -> None:
    emptied = {
        "exporter": dict.fromkeys(
            (
                *("affinity", "nodeSelector", "tolerations", "resources", "podLabels", "podAnnotations"),
                *("compat", "extraArgs", "extraEnv", "extraVolumes", "extraVolumeMounts"),
            )
        ),
        "commonLabels": None,
        "commonAnnotations": None,
        "privileges": {"capabilities": None, "supplementalGroups": None},
        "securityContextConstraints": {"enabled": True},
    }
    spec = pod(emptied).spec
    assert spec.keys().isdisjoint({"tolerations"})
    assert "resources" not in spec["containers"][0]


# -- TLS and login -----------------------------------------------------------------------------------------


def web_config(values: Mapping[str, Any]) -> str:
    (secret,) = [made for made in objects("Secret", values) if made["metadata"]["name"] == "gputally-web"]
    return base64.b64decode(secret["data"]["web-config.yml"]).decode()


def test_the_exporter_accepts_the_web_configuration_of_the_chart() -> None:
    values = {"web": {"tls": TLS, "basicAuth": LOGIN}}
    read = parse_web_config(web_config(values), Path("/etc/gputally/web/web-config.yml"))
    assert read.tls is not None
    assert (str(read.tls.cert_file), str(read.tls.key_file)) == (
        "/etc/gputally/tls/tls.crt",
        "/etc/gputally/tls/tls.key",
    )
    assert {name: value.decode() for name, value in read.users.items()} == USERS
    assert "--web-config=/etc/gputally/web/web-config.yml" in container(values)["args"]
    paths = {mount["mountPath"]: name for name, mount in mounts(container(values)).items()}
    sources = {
        name: volume["secret"]["secretName"]
        for name, volume in volumes(pod(values)).items()
        if "secret" in volume
    }
    assert sources[paths["/etc/gputally/web"]] == "gputally-web"
    assert sources[paths["/etc/gputally/tls"]] == "certificate"


@pytest.mark.parametrize("web", [{"tls": TLS}, {"basicAuth": LOGIN}], ids=["TLS", "login"])
def test_tls_and_login_work_separately(web: dict[str, Any]) -> None:
    read = parse_web_config(web_config({"web": web}), Path("/web-config.yml"))
    assert (read.tls is not None) == ("tls" in web)
    assert bool(read.users) == ("basicAuth" in web)


def test_without_tls_and_login_there_is_no_web_configuration() -> None:
    assert objects("Secret") == []
    assert not any(flag.startswith("--web-config") for flag in container()["args"])


def test_a_changed_login_replaces_the_pods() -> None:
    def checksum(users: dict[str, str]) -> str:
        made = pod({"web": {"basicAuth": {**LOGIN, "users": users}}})
        found: str = made.metadata["annotations"]["checksum/web-config"]
        return found

    assert checksum(USERS) != checksum({"another": USERS["prometheus"]})
    assert checksum(USERS) == checksum(dict(USERS))


# -- Service and network -----------------------------------------------------------------------------------


# OpenShift's DNS pods use port 5353.
DNS = {53, 5353}


def policy(values: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    found = [made for made in objects("NetworkPolicy", values) if made["metadata"]["name"] == "gputally"]
    (made,) = found
    spec: Mapping[str, Any] = made["spec"]
    return spec


def egress(values: Mapping[str, Any]) -> set[int]:
    return {port["port"] for rule in policy(values).get("egress", ()) for port in rule["ports"]}


def test_the_service_has_its_own_port_and_targets_the_exporters_port() -> None:
    (service,) = objects("Service", {"service": {"port": 80, "type": "NodePort"}, "exporter": {"port": 9401}})
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"] == [
        {"name": "metrics", "port": 80, "targetPort": "metrics", "protocol": "TCP"}
    ]
    assert objects("Service", {"service": {"enabled": False}}) == []


def test_only_scrapers_and_helm_test_may_connect() -> None:
    own = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    (rule,) = policy({"networkPolicy": {"from": own}, "exporter": {"port": 9401}})["ingress"]
    assert rule["ports"] == [{"port": 9401, "protocol": "TCP"}]
    assert rule["from"][:1] == own
    (verify,) = rule["from"][1:]
    assert verify["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "verify"


def test_the_stacks_prometheus_may_connect() -> None:
    (rule,) = policy({"stack": {"enabled": True}})["ingress"]
    components = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
    assert components == ["prometheus", "verify"]


def test_egress_is_denied_by_default() -> None:
    assert policy()["policyTypes"] == ["Egress"]
    assert policy({"stack": {"enabled": True}})["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy()
    assert "egress" not in policy({"exporter": {"relay": "/run/prometheus/*.prom"}})


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"kubernetes": {"enabled": True}}, DNS | {443, 6443}),
        ({"kubernetes": {"enabled": True}, "networkPolicy": {"apiServerPorts": [16443]}}, DNS | {16443}),
        ({"exporter": {"relay": "http://$(NODE_IP):9500/metrics"}}, DNS | {9500}),
        ({"exporter": {"relay": "http://dcgm-exporter"}}, DNS | {80}),
        ({"exporter": {"relay": "https://dcgm.example/metrics"}}, DNS | {443}),
    ],
)
def test_a_feature_allows_egress_to_its_ports(values: dict[str, Any], ports: set[int]) -> None:
    assert egress(values) == ports


# The labels of their pods, as their operators and charts set them.
SCRAPERS = {
    "prometheus": {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": "k8s"},
    "prometheus-agent": {"app.kubernetes.io/name": "prometheus-agent"},
    "vmagent": {"app.kubernetes.io/name": "vmagent", "managed-by": "vm-operator"},
    "alloy": {"app.kubernetes.io/name": "alloy-metrics"},
    "opentelemetry": {
        "app.kubernetes.io/name": "gpus-collector",
        "app.kubernetes.io/component": "opentelemetry-collector",
        "app.kubernetes.io/managed-by": "opentelemetry-operator",
    },
    "datadog": {"agent.datadoghq.com/component": "agent", "agent.datadoghq.com/name": "datadog"},
}


def may_scrape(labels: Mapping[str, str], namespace: str, values: dict[str, Any]) -> bool:
    rendered = render(values)
    (exporter,) = (pod for pod in pods(rendered) if pod.owner["kind"] == "DaemonSet")
    return reaches(Peer(labels, namespace), Peer.of(exporter), "metrics", rendered)


@pytest.mark.parametrize("scraper", SCRAPERS)
def test_a_named_scraper_is_admitted_from_its_namespace_only(scraper: str) -> None:
    values = {"networkPolicy": {"scrapers": [scraper], "scraperNamespaces": ["monitoring"]}}
    assert may_scrape(SCRAPERS[scraper], "monitoring", values)
    assert not may_scrape(SCRAPERS[scraper], "tenant", values)
    assert not may_scrape({"app.kubernetes.io/name": "notebook"}, "monitoring", values)


@pytest.mark.parametrize("labels", SCRAPERS.values(), ids=SCRAPERS)
@pytest.mark.parametrize(
    "values",
    [
        {"stack": {"enabled": True}},
        {"networkPolicy": {"scrapers": [*SCRAPERS], "scraperNamespaces": ["monitoring"]}},
        {"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
    ],
    ids=["stack", "all scrapers", "an address"],
)
def test_a_tenants_pod_with_the_labels_of_a_scraper_is_not_admitted(
    labels: Mapping[str, str], values: dict[str, Any]
) -> None:
    assert not may_scrape(labels, "tenant", values)


def test_every_scraper_of_the_schema_has_labels() -> None:
    network = json.loads((CHART / "values.schema.json").read_text())["properties"]["networkPolicy"]
    assert network["properties"]["scrapers"]["items"]["enum"] == [*SCRAPERS]


def test_the_network_policy_can_be_disabled() -> None:
    assert objects("NetworkPolicy", {"networkPolicy": {"enabled": False}}) == []


# -- OpenShift ---------------------------------------------------------------------------------------------


def constraints(values: Mapping[str, Any]) -> Object:
    (made,) = objects(
        "SecurityContextConstraints", {**values, "securityContextConstraints": {"enabled": True}}
    )
    return made


def test_without_privileges_the_constraints_allow_nothing() -> None:
    made = constraints(WITHOUT_PRIVILEGES)
    assert [key for key, value in made.items() if key.startswith("allow") and value] == []
    assert made["runAsUser"] == {"type": "MustRunAs", "uid": 65532}
    assert made["seLinuxContext"] == {"type": "MustRunAs"}
    assert made["requiredDropCapabilities"] == ["ALL"]
    assert made["volumes"] == []


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({"privileges": {"hostPID": True}}, {"allowHostPID": True}),
        ({"privileges": {"podLogs": True}}, {"allowHostDirVolumePlugin": True, "volumes": ["hostPath"]}),
        ({"privileges": {"podResources": True}}, {"runAsUser": {"type": "RunAsAny"}}),
        ({"privileges": {"capabilities": ["SYS_PTRACE"]}}, {"allowedCapabilities": ["SYS_PTRACE"]}),
        ({"privileges": {"accounting": True}}, {"allowedCapabilities": ["SYS_ADMIN"]}),
        (
            {"privileges": {"privileged": True}},
            {"allowPrivilegedContainer": True, "allowPrivilegeEscalation": True},
        ),
        ({"privileges": {"seLinuxType": "spc_t"}}, {"seLinuxContext": {"type": "RunAsAny"}}),
        ({"kubernetes": {"enabled": True}}, {"volumes": ["projected"]}),
        ({"state": {"volume": "emptyDir"}}, {"volumes": ["emptyDir"]}),
        ({"web": {"tls": TLS}}, {"volumes": ["secret"]}),
        (
            {"exporter": {"extraVolumes": [{"name": "a", "configMap": {"name": "b"}}]}},
            {"volumes": ["configMap"]},
        ),
    ],
)
def test_the_constraints_allow_the_privilege_of_a_value(
    values: dict[str, Any], allowed: dict[str, Any]
) -> None:
    assert allowed.items() <= constraints(merged(WITHOUT_PRIVILEGES, values)).items()


def test_the_pod_requires_these_constraints() -> None:
    values = {"securityContextConstraints": {"enabled": True}, "serviceAccount": {"name": "gpus"}}
    made = constraints(values)
    assert made["users"] == ["system:serviceaccount:monitoring:gpus"]
    assert pod(values).metadata["annotations"]["openshift.io/required-scc"] == made["metadata"]["name"]


# -- Other objects -----------------------------------------------------------------------------------------


def test_without_the_exporter_none_of_its_objects_is_rendered() -> None:
    rendered = render({"exporter": {"enabled": False}, "prometheusRule": {"enabled": True}})
    assert {made["kind"] for made in rendered} == {"PrometheusRule"}


def test_two_releases_do_not_collide() -> None:
    values = {
        "kubernetes": {"enabled": True},
        "securityContextConstraints": {"enabled": True},
        "web": {"tls": TLS},
        "podMonitor": {"enabled": True, "sidecars": {"enabled": True}, "pods": {"enabled": True}},
    }

    def names(name: str, namespace: str) -> set[tuple[str, str, str]]:
        return {
            (made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"])
            for made in render(values, name=name, namespace=namespace)
        }

    releases = [names("gputally", "a"), names("gputally", "b"), names("second", "a")]
    assert len(set().union(*releases)) == sum(map(len, releases))


def test_extra_objects_are_maps_or_text_with_templates() -> None:
    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-map"}}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-text\n"
    made = objects("ConfigMap", {"extraObjects": [named, text]})
    assert [each["metadata"]["name"] for each in made] == ["gputally-map", "gputally-text"]
