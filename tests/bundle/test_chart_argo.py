"""Argo: the Argo CD applications, the sidecar of workflows, and the stress test."""

import io
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import runbooks
from gputally.cli import _parser
from gputally.commands.verify import run
from gputally.config import Config, read_config
from tests.bundle import crds, kubernetes_schemas
from tests.bundle.chart import CHART, Object, objects, refusal, render
from tools import ROOT
from tools.dependencies import programs
from tools.rendering import command as rendering
from tools.replay.blocks import write_history
from tools.replay.fleet import GpuNode, Period
from tools.servers.prometheus import Prometheus, serving

ARGO_CD = ROOT / "deploy" / "argocd"
PROMETHEUS = "http://prometheus.monitoring:9090"
SIDECAR = {"argoWorkflows": {"sidecar": {"enabled": True}}}
NEWEST = [*kubernetes_schemas.CLUSTERS][-1]


# -- Argo CD -----------------------------------------------------------------------------------------------


def application() -> Object:
    made: Object = yaml.safe_load((ARGO_CD / "application.yaml").read_text())
    return made


def application_set() -> Object:
    made: Object = yaml.safe_load((ARGO_CD / "applicationset.yaml").read_text())
    return made


def application_for(directory: Path, secret: dict[str, Any]) -> Object:
    """The Application that the ApplicationSet generates for a cluster; Helm has the same functions."""
    chart = directory / "set"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: set, version: 0.0.0}")
    template = yaml.safe_dump(application_set()["spec"]["template"])
    (chart / "templates" / "one.yaml").write_text(f"{{{{ with .Values }}}}\n{template}{{{{ end }}}}\n")
    command: list[str | Path] = [programs.path("helm"), "template", "set", chart, "--values", "-"]
    made = subprocess.run(command, input=json.dumps(secret), capture_output=True, text=True, check=True)
    parsed: Object = yaml.safe_load(made.stdout)
    return parsed


def cluster_secret(**labels: str) -> dict[str, Any]:
    """The parameters of the cluster generator."""
    return {
        "name": "West_1",
        "nameNormalized": "west-1",
        "server": "https://west.example:6443",
        "metadata": {"labels": {"argocd.argoproj.io/secret-type": "cluster", "gpu": "true", **labels}},
    }


@pytest.mark.parametrize("made", [application(), application_set()], ids=lambda made: made["kind"])
def test_the_applications_are_valid(made: Object) -> None:
    assert crds.faults(made, "argo-cd-crds") == []


@pytest.mark.parametrize(
    "spec", [application()["spec"], application_set()["spec"]["template"]["spec"]], ids=["one", "set"]
)
def test_an_application_is_this_chart_at_this_version(spec: Object) -> None:
    source = spec["source"]
    assert runbooks.BASE_URL.startswith(f"{source['repoURL'].removesuffix('.git')}/")
    assert source["targetRevision"] == f"v{rendering.version()}"
    assert ROOT / source["path"] == CHART


@pytest.mark.parametrize(
    "spec", [application()["spec"], application_set()["spec"]["template"]["spec"]], ids=["one", "set"]
)
def test_an_application_uses_server_side_apply_and_labels_the_namespace(spec: Object) -> None:
    policy = spec["syncPolicy"]
    assert {*policy["syncOptions"]} == {
        "ServerSideApply=true",
        "CreateNamespace=true",
        "SkipDryRunOnMissingResource=true",
    }
    (daemon_set,) = objects("DaemonSet", without_templates(spec["source"]["helm"]["valuesObject"]))
    assert daemon_set["spec"]["template"]["spec"]["hostPID"]
    assert policy["managedNamespaceMetadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "privileged"
    }


def without_templates(values: Object) -> Object:
    return {name: value for name, value in values.items() if "{{" not in str(value)}


def test_the_values_of_the_application_enable_rules_scraping_and_dashboards() -> None:
    values = application()["spec"]["source"]["helm"]["valuesObject"]
    made = render(values, namespace="gputally")
    for kind in ("DaemonSet", "ScrapeConfig", "PrometheusRule", "ConfigMap"):
        found = [one for one in made if one["kind"] == kind]
        assert found, kind
        assert all(one["metadata"]["labels"]["release"] == "kube-prometheus-stack" for one in found)


def test_each_cluster_gets_an_application_with_its_name_on_every_series(tmp_path: Path) -> None:
    made = application_for(tmp_path, cluster_secret())
    assert made["metadata"]["name"] == "gputally-west-1"
    assert made["spec"]["destination"] == {"server": "https://west.example:6443", "namespace": "gputally"}
    helm = made["spec"]["source"]["helm"]
    (scrape,) = objects("ScrapeConfig", helm["valuesObject"])
    assert {"targetLabel": "cluster", "replacement": "West_1"}.items() <= {
        key: value
        for rule in scrape["spec"]["relabelings"]
        if rule.get("targetLabel") == "cluster"
        for key, value in rule.items()
    }.items()


def test_a_cluster_can_have_a_preset(tmp_path: Path) -> None:
    labelled = application_for(tmp_path / "a", cluster_secret(**{"gputally.io/preset": "gke"}))
    (file,) = labelled["spec"]["source"]["helm"]["valueFiles"]
    assert (CHART / file).is_file()
    plain = application_for(tmp_path / "b", cluster_secret())["spec"]["source"]["helm"]
    assert not (CHART / plain["valueFiles"][0]).exists()
    assert plain["ignoreMissingValueFiles"] is True


# -- Sidecars ----------------------------------------------------------------------------------------------


def workflow_template(name: str, values: dict[str, Any]) -> Object:
    (made,) = [made for made in objects("WorkflowTemplate", values) if made["metadata"]["name"] == name]
    return made


def sidecar_template(**values: Any) -> Object:
    made = workflow_template("gputally-sidecar", {**SIDECAR, **values})
    (template,) = made["spec"]["templates"]
    found: Object = template
    return found


def workflow_defaults(**values: Any) -> Object:
    (made,) = [
        made
        for made in objects("ConfigMap", {**SIDECAR, **values})
        if made["metadata"]["name"] == "gputally-workflow-defaults"
    ]
    defaults: Object = yaml.safe_load(made["data"]["workflowDefaults"])
    return defaults


def settings(container: Object) -> Config:
    """The exporter's settings, as it parses the container's arguments."""
    assert container["command"] == ["gputally"], "Argo requires a command"
    return read_config(_parser().parse_args(container["args"]), {})


def pod(template: Object) -> Object:
    """The pod that Argo creates from the template, without Argo's own containers."""
    parameters = {"resource": "nvidia.com/gpu", "gpus": "2"}
    patch = re.sub(
        r"\{\{inputs\.parameters\.(\w+)\}\}", lambda found: parameters[found[1]], template["podSpecPatch"]
    )
    spec = json.loads(patch)
    (main,) = spec["containers"]
    containers = [{**template["container"], **main}, *template["sidecars"]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "step", **template["metadata"]},
        "spec": {**spec, "containers": containers, "volumes": template["volumes"]},
    }


def test_a_workflow_can_run_a_step_with_the_exporter_as_a_sidecar() -> None:
    made = pod(sidecar_template())
    assert kubernetes_schemas.faults([made], NEWEST) == []
    main, sidecar = made["spec"]["containers"]
    assert main["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert made["spec"]["shareProcessNamespace"] is True
    assert settings(sidecar).sidecar is True
    variables = {variable["name"]: variable for variable in sidecar["env"]}
    assert {
        name: variables[name]["valueFrom"]["fieldRef"]["fieldPath"]
        for name in variables
        if name.startswith("GPUTALLY_POD")
    } == {
        "GPUTALLY_POD_NAME": "metadata.name",
        "GPUTALLY_POD_NAMESPACE": "metadata.namespace",
        "GPUTALLY_POD_UID": "metadata.uid",
    }
    assert variables["GPUTALLY_CONTAINER_NAME"]["value"] == main["name"] == "main"


def test_a_sidecar_requests_no_gpu_and_has_no_privilege() -> None:
    (sidecar,) = sidecar_template()["sidecars"]
    assert "nvidia.com/gpu" not in str(sidecar["resources"])
    assert sidecar["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (volume,) = sidecar_template()["volumes"]
    assert volume.keys() == {"name", "downwardAPI"}


def test_a_sidecar_exports_the_workflows_name() -> None:
    template = sidecar_template(kubernetes={"enabled": True, "podLabels": ["team"]})
    (sidecar,) = template["sidecars"]
    assert settings(sidecar).pod_labels == ("team", "workflows.argoproj.io/workflow")
    (mount,), (volume,) = sidecar["volumeMounts"], template["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/etc/podinfo", "readOnly": True}
    assert volume["downwardAPI"]["items"] == [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    ]


@pytest.mark.parametrize("reader", ["nvidia-smi", "nvml", "amdgpu"])
def test_the_reader_of_sidecars_is_a_value(reader: str) -> None:
    (sidecar,) = sidecar_template(argoWorkflows={"sidecar": {"enabled": True, "reader": reader}})["sidecars"]
    assert settings(sidecar).reader == reader


def test_the_pod_monitor_selects_sidecars() -> None:
    monitored = {"podMonitor": {"sidecars": {"enabled": True, "port": "gpu", "matchLabels": {"gpu": "yes"}}}}
    (monitor,) = objects("PodMonitor", {**SIDECAR, **monitored})
    template = sidecar_template(**monitored)
    assert template["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]
    assert template["metadata"]["labels"]["gpu"] == "yes"
    (port,) = template["sidecars"][0]["ports"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"] == "gpu"
    assert settings(template["sidecars"][0]).port == port["containerPort"]
    # A sidecar has no certificate: the Secret is in another namespace.
    assert endpoint.get("scheme", "http").lower() == "http"


def test_workflow_defaults_add_the_same_sidecar_to_every_step() -> None:
    defaults = workflow_defaults()["spec"]
    template = sidecar_template()
    assert defaults["templateDefaults"] == {
        "metadata": template["metadata"],
        "sidecars": template["sidecars"],
        "volumes": template["volumes"],
    }
    assert json.loads(defaults["podSpecPatch"]) == {"shareProcessNamespace": True}
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "any"},
        "spec": {**defaults, "entrypoint": "a", "templates": [{"name": "a", "suspend": {}}]},
    }
    assert kubernetes_schemas.faults([workflow], NEWEST) == []


def test_the_list_of_namespaces_can_be_null() -> None:
    none = {"enabled": True, "namespaces": None}
    made = objects("WorkflowTemplate", {"argoWorkflows": {"sidecar": none}})
    assert [one["metadata"]["namespace"] for one in made] == ["monitoring"]


def test_each_namespace_has_the_objects_once() -> None:
    namespaces = {"namespaces": ["ml", "monitoring", "vision"]}
    values = {"argoWorkflows": {"sidecar": {"enabled": True, **namespaces}}}
    made = [one for one in render(values) if one["metadata"]["name"].startswith("gputally-")]
    for kind, name in (("WorkflowTemplate", "sidecar"), ("ConfigMap", "workflow-defaults")):
        found = [one["metadata"] for one in made if one["kind"] == kind]
        where = [one["namespace"] for one in found if one["name"] == f"gputally-{name}"]
        assert sorted(where) == ["ml", "monitoring", "vision"]


def test_the_defaults_of_a_namespace_are_labelled_only_on_request() -> None:
    kind = "workflows.argoproj.io/configmap-type"

    def labels(labelled: bool) -> Object:
        values = {"argoWorkflows": {"sidecar": {"enabled": True, "namespaceDefaults": labelled}}}
        (made,) = [
            one for one in objects("ConfigMap", values) if one["metadata"]["name"].endswith("-defaults")
        ]
        found: Object = made["metadata"]["labels"]
        return found

    assert labels(True)[kind] == "WorkflowDefaults"
    assert kind not in labels(False)


# -- The stress test ---------------------------------------------------------------------------------------


def stress_test(**more: Any) -> Object:
    stress = {"enabled": True, **more.pop("stress", {})}
    values = {"prometheusUrl": PROMETHEUS, "argoWorkflows": {"stressTest": stress}, **more}
    return workflow_template("gputally-stress-test", values)


def step(made: Object, name: str) -> Object:
    (template,) = [template for template in made["spec"]["templates"] if template["name"] == name]
    found: Object = template
    return found


def test_load_comes_before_verify() -> None:
    made = stress_test()
    steps = step(made, made["spec"]["entrypoint"])["steps"]
    assert [[one["template"] for one in together] for together in steps] == [["load"], ["verify"]]


def test_the_load_is_a_value() -> None:
    stress = {
        "image": "example/burn:1",
        "command": ["burn", "60"],
        "resource": "amd.com/gpu",
        "gpus": 2,
        "utilization": 0.9,
        "serviceAccountName": "argo",
    }
    made = stress_test(stress=stress, **{"global": {"imageRegistry": "registry.example"}})
    load = step(made, "load")["container"]
    assert load["image"] == "registry.example/example/burn:1"
    assert load["command"] == ["burn", "60"]
    assert load["resources"] == {"limits": {"amd.com/gpu": 2}}
    assert made["spec"]["serviceAccountName"] == "argo"
    assert made["spec"]["arguments"]["parameters"] == [{"name": "utilization", "value": "0.9"}]


def test_the_load_tolerates_the_taints_of_gpu_nodes() -> None:
    taint = {"key": "pool", "operator": "Exists"}
    made = stress_test(exporter={"tolerations": [taint], "runtimeClassName": "nvidia"})
    load = step(made, "load")
    assert load["tolerations"] == [taint]
    assert json.loads(load["podSpecPatch"]) == {"runtimeClassName": "nvidia"}


def test_a_step_with_template_ref_has_the_same_tolerations() -> None:
    """templateRef copies the template, but not the specification around it."""
    taint = {"key": "pool", "operator": "Exists"}
    assert sidecar_template(exporter={"tolerations": [taint]})["tolerations"] == [taint]


def test_the_last_step_may_reach_the_stacks_prometheus() -> None:
    values = {"stack": {"enabled": True}, "prometheusUrl": ""}
    labels = step(stress_test(**values), "verify")["metadata"]["labels"]
    policies = objects("NetworkPolicy", {**values, "argoWorkflows": {"stressTest": {"enabled": True}}})
    (policy,) = [one for one in policies if one["metadata"]["name"] == "gputally-prometheus"]
    peers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"]]
    assert {"namespaceSelector": {}, "podSelector": {"matchLabels": labels}} in peers


def test_only_the_load_is_on_a_gpu() -> None:
    verify = step(stress_test(), "verify")["container"]
    assert verify["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "nvidia.com/gpu" not in str(verify["resources"])


@pytest.mark.parametrize("cluster", kubernetes_schemas.CLUSTERS)
def test_the_workflow_templates_are_valid(cluster: str) -> None:
    values = {**SIDECAR, "global": {"imagePullSecrets": ["pull"]}}
    made = [*objects("WorkflowTemplate", values), stress_test(exporter={"runtimeClassName": "nvidia"})]
    assert kubernetes_schemas.faults(made, cluster) == []


LOADED = "gputally-stress-test-x7k2p"
IDLE = "gputally-stress-test-q9w4z"
SCENARIO = f"""
model = "h100"
gpus = 2
seed = 77
[[workload]]
shape = "training"
gpus = [0]
pod = "ml/{LOADED}-load-1846721"
container = "main"
controller = "Workflow/{LOADED}"
[[workload]]
shape = "idle"
gpus = [1]
pod = "ml/{IDLE}-load-920174"
container = "main"
controller = "Workflow/{IDLE}"
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has the last minutes of two workflows, one of them idle."""
    directory, now = tmp_path_factory.mktemp("stress"), int(time.time())
    write_history([GpuNode(name="gpu-1", scenario=SCENARIO)], Period(now - 300, now, 15), directory)
    with serving(directory) as found:
        yield found


def verified(prometheus: Prometheus, workflow: str) -> tuple[int, str]:
    """Exit status and output of the last step of a workflow with this name."""
    variables = {
        "workflow.name": workflow,
        "workflow.namespace": "ml",
        "workflow.parameters.utilization": "0.5",
    }
    made = stress_test(prometheusUrl=prometheus.url)
    container = step(made, "verify")["container"]
    assert container["command"] == ["gputally"]
    command, *arguments = [
        re.sub(r"\{\{([\w.]+)\}\}", lambda found: variables[found[1]], argument)
        for argument in container["args"]
        if not argument.startswith("--wait")
    ]
    assert command == "verify"
    printed = io.StringIO()
    return run(arguments, printed), printed.getvalue()


def test_the_last_step_succeeds_if_prometheus_has_the_load(prometheus: Prometheus) -> None:
    status, printed = verified(prometheus, LOADED)
    assert status == 0, printed
    assert re.search(r"ok +energy +[1-9]", printed), printed
    assert re.search(r"ok +gpu seconds +[1-9]", printed), printed


def test_the_last_step_fails_if_the_load_was_idle(prometheus: Prometheus) -> None:
    status, printed = verified(prometheus, IDLE)
    assert status == 1
    assert re.search(r"failure +utilization", printed), printed


def test_the_last_step_fails_if_prometheus_has_no_series_of_the_pod(prometheus: Prometheus) -> None:
    status, printed = verified(prometheus, "gputally-stress-test-missing")
    assert status == 1
    assert re.search(r"failure +pod +ml/gputally-stress-test-missing-", printed), printed


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"argoWorkflows": {"stressTest": {"enabled": True}}}, "argoWorkflows.stressTest.enabled"),
        (
            {
                "prometheusUrl": PROMETHEUS,
                "argoWorkflows": {"stressTest": {"enabled": True, "command": []}},
            },
            "argoWorkflows.stressTest.command",
        ),
    ],
)
def test_a_mistake_is_refused_in_one_line(values: dict[str, Any], key: str) -> None:
    assert refusal(values).startswith(f"{key}: ")
