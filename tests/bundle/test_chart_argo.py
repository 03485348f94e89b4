"""Argo: the applications of Argo CD, the sidecar of workflows, and the workflow that tests everything."""

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
from gputally.commands.verify.command import run
from gputally.config import Config, read_config
from tests.bundle import crds, kubernetes_schemas
from tests.bundle.chart import CHART, Object, objects, refusal, render
from tools import ROOT
from tools.dependencies import programs
from tools.rendering import command as rendering
from tools.replay.blocks import write_history
from tools.replay.fleet import Node, Period
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


def application_for(folder: Path, secret: dict[str, Any]) -> Object:
    """What the ApplicationSet makes of a cluster: Helm fills in such templates with the same functions."""
    chart = folder / "set"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: set, version: 0.0.0}")
    template = yaml.safe_dump(application_set()["spec"]["template"])
    (chart / "templates" / "one.yaml").write_text(f"{{{{ with .Values }}}}\n{template}{{{{ end }}}}\n")
    command: list[str | Path] = [programs.path("helm"), "template", "set", chart, "--values", "-"]
    made = subprocess.run(command, input=json.dumps(secret), capture_output=True, text=True, check=True)
    parsed: Object = yaml.safe_load(made.stdout)
    return parsed


def cluster_secret(**labels: str) -> dict[str, Any]:
    """As the generator of clusters hands it on."""
    return {
        "name": "West_1",
        "nameNormalized": "west-1",
        "server": "https://west.example:6443",
        "metadata": {"labels": {"argocd.argoproj.io/secret-type": "cluster", "gpu": "true", **labels}},
    }


@pytest.mark.parametrize("made", [application(), application_set()], ids=lambda made: made["kind"])
def test_argo_cd_takes_them(made: Object) -> None:
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
def test_an_application_is_applied_by_the_server_and_in_a_namespace_that_lets_it_in(spec: Object) -> None:
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


def test_the_values_of_the_application_give_rules_scrape_and_dashboards_to_the_operator() -> None:
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


def test_a_cluster_can_have_the_values_of_its_provider(tmp_path: Path) -> None:
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
    """What the exporter understands of the flags of a container."""
    assert container["command"] == ["gputally"], "Argo has to know what it starts"
    return read_config(_parser().parse_args(container["args"]), {})


def pod(template: Object) -> Object:
    """What Argo makes of the template: its own containers aside."""
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


def test_a_workflow_can_run_its_step_with_the_exporter_beside_it() -> None:
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


def test_a_sidecar_takes_no_gpu_and_has_no_privilege() -> None:
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


def test_a_sidecar_puts_the_workflow_on_its_metrics() -> None:
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


def test_sidecars_are_found_by_their_pod_monitor() -> None:
    monitored = {"podMonitor": {"sidecars": {"enabled": True, "port": "gpu", "matchLabels": {"gpu": "yes"}}}}
    (monitor,) = objects("PodMonitor", {**SIDECAR, **monitored})
    template = sidecar_template(**monitored)
    assert template["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]
    assert template["metadata"]["labels"]["gpu"] == "yes"
    (port,) = template["sidecars"][0]["ports"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"] == "gpu"
    assert settings(template["sidecars"][0]).port == port["containerPort"]
    # A sidecar has no certificate: it is in a namespace where the chart's Secret is not.
    assert endpoint.get("scheme", "http").lower() == "http"


def test_workflow_defaults_give_the_same_sidecar_to_every_step() -> None:
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


def test_a_list_of_namespaces_can_be_taken_away() -> None:
    none = {"enabled": True, "namespaces": None}
    made = objects("WorkflowTemplate", {"argoWorkflows": {"sidecar": none}})
    assert [one["metadata"]["namespace"] for one in made] == ["monitoring"]


def test_each_namespace_gets_them_once() -> None:
    namespaces = {"namespaces": ["ml", "monitoring", "vision"]}
    values = {"argoWorkflows": {"sidecar": {"enabled": True, **namespaces}}}
    made = [one for one in render(values) if one["metadata"]["name"].startswith("gputally-")]
    for kind, name in (("WorkflowTemplate", "sidecar"), ("ConfigMap", "workflow-defaults")):
        found = [one["metadata"] for one in made if one["kind"] == kind]
        where = [one["namespace"] for one in found if one["name"] == f"gputally-{name}"]
        assert sorted(where) == ["ml", "monitoring", "vision"]


def test_the_defaults_of_a_namespace_are_taken_by_argo_only_when_wanted() -> None:
    kind = "workflows.argoproj.io/configmap-type"

    def labels(wanted: bool) -> Object:
        values = {"argoWorkflows": {"sidecar": {"enabled": True, "namespaceDefaults": wanted}}}
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


def test_load_comes_before_the_look_at_it() -> None:
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


def test_the_load_gets_to_where_gpus_are() -> None:
    taint = {"key": "pool", "operator": "Exists"}
    made = stress_test(exporter={"tolerations": [taint], "runtimeClassName": "nvidia"})
    load = step(made, "load")
    assert load["tolerations"] == [taint]
    assert json.loads(load["podSpecPatch"]) == {"runtimeClassName": "nvidia"}


def test_a_step_that_is_taken_from_the_template_gets_there_too() -> None:
    """What is in the template comes along with templateRef, what is beside it does not."""
    taint = {"key": "pool", "operator": "Exists"}
    assert sidecar_template(exporter={"tolerations": [taint]})["tolerations"] == [taint]


def test_the_stacks_prometheus_lets_the_last_step_in() -> None:
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
def test_argo_workflows_takes_the_templates(cluster: str) -> None:
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
    """Has seen the loads of two workflows in the last minutes, one of which did nothing."""
    folder, now = tmp_path_factory.mktemp("stress"), int(time.time())
    write_history([Node(name="gpu-1", scenario=SCENARIO)], Period(now - 300, now, 15), folder)
    with serving(folder) as found:
        yield found


def verified(prometheus: Prometheus, workflow: str) -> tuple[int, str]:
    """Exit status and words of the last step of a workflow with this name."""
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
    said = io.StringIO()
    return run(arguments, said), said.getvalue()


@pytest.mark.timeout(600)
def test_the_last_step_is_content_when_prometheus_has_seen_the_load(prometheus: Prometheus) -> None:
    status, said = verified(prometheus, LOADED)
    assert status == 0, said
    assert re.search(r"ok +energy +[1-9]", said), said
    assert re.search(r"ok +gpu seconds +[1-9]", said), said


@pytest.mark.timeout(600)
def test_the_last_step_fails_when_the_load_was_none(prometheus: Prometheus) -> None:
    status, said = verified(prometheus, IDLE)
    assert status == 1
    assert re.search(r"failure +utilization", said), said


@pytest.mark.timeout(600)
def test_the_last_step_fails_when_nobody_has_seen_the_pod(prometheus: Prometheus) -> None:
    status, said = verified(prometheus, "gputally-stress-test-nobody")
    assert status == 1
    assert "was not seen on a GPU" in said


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"argoWorkflows": {"stressTest": {"enabled": True}}},
            "argoWorkflows.stressTest.enabled: set prometheusUrl",
        ),
        (
            {
                "prometheusUrl": PROMETHEUS,
                "argoWorkflows": {"stressTest": {"enabled": True, "command": []}},
            },
            "argoWorkflows.stressTest.command: say what makes the load",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(values: dict[str, Any], told: str) -> None:
    assert told in refusal(values)
