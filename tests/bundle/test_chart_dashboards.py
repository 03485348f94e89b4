"""Dashboards of the chart for Grafana and for OpenShift's console, and of the kustomization."""

import json
import subprocess
from collections import Counter
from typing import Any

import pytest
import yaml

from dashboards import console, registry
from tests.bundle import chart, crds
from tools import ROOT
from tools.dependencies import programs

Json = dict[str, Any]
SIDECAR: Json = {"configMaps": {"enabled": True}}
OPERATOR: Json = {"grafanaOperator": {"enabled": True}}
MOST_BYTES = 1024 * 1024
"""Size limit of a ConfigMap or a Secret."""
MOST_ANNOTATED_BYTES = 256 * 1024
"""Size limit of annotations: client-side `kubectl apply` writes the whole object into one."""


def config_maps(values: Json, **options: Any) -> list[chart.Object]:
    return [made for made in chart.objects("ConfigMap", values, **options) if is_dashboard(made)]


def is_dashboard(made: chart.Object) -> bool:
    return bool(made["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboards")


def contents(found: list[chart.Object]) -> dict[str, Json]:
    return {name: json.loads(text) for made in found for name, text in made["data"].items()}


EVERY_FILE: dict[str, Json] = {f"{name}.json": json.loads(text) for name, text in registry.texts().items()}
CONSOLE_FILES: dict[str, Json] = {f"{name}.json": json.loads(text) for name, text in console.texts().items()}


def test_dashboards_are_disabled_by_default() -> None:
    assert config_maps({}) == []


def test_the_sidecar_gets_each_dashboard_with_its_folder() -> None:
    found = config_maps({"dashboards": SIDECAR})
    assert contents(found) == EVERY_FILE
    for made in found:
        (name,) = made["data"]
        assert made["metadata"]["name"] == f"gputally-dashboard-{name.removesuffix('.json')}"
        assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert made["metadata"]["annotations"] == {"grafana_folder": "GPUTally"}
        assert made["metadata"]["namespace"] == "monitoring"


def test_node_and_gpu_links_to_the_live_page_where_its_address_is_given() -> None:
    address = 'https://$node.gpus.example.com:9400/?a="b"&c'
    found = contents(config_maps({"dashboards": {**SIDECAR, "livePageUrl": address}}))
    link, *others = found["node.json"].pop("links")
    assert (link["type"], link["url"], link["targetBlank"]) == ("link", address, True)
    assert {**found, "node.json": {**found["node.json"], "links": others}} == EVERY_FILE


def test_the_sidecars_label_annotation_dashboard_folder_and_namespace_are_values() -> None:
    sidecar = {
        "enabled": True,
        "label": "mine",
        "labelValue": "yes",
        "folderAnnotation": "where",
        "namespace": "grafana",
    }
    (made,) = config_maps({"dashboards": {"configMaps": sidecar, "folder": "GPUs", "include": ["node"]}})
    metadata = made["metadata"]
    assert metadata["namespace"] == "grafana"
    assert metadata["labels"]["mine"] == "yes"
    assert metadata["annotations"] == {"where": "GPUs"}


def test_without_dashboard_folders_there_is_no_annotation() -> None:
    (made,) = config_maps(
        {"dashboards": {"configMaps": {"enabled": True, "folderAnnotation": ""}, "include": ["node"]}}
    )
    assert "annotations" not in made["metadata"]


def test_only_selected_dashboards_are_installed() -> None:
    chosen = {"include": ["node", "fleet"]}
    assert contents(config_maps({"dashboards": {**SIDECAR, **chosen}})).keys() == {"fleet.json", "node.json"}
    made = chart.objects("GrafanaDashboard", {"dashboards": {**OPERATOR, **chosen}})
    assert [each["spec"]["configMapRef"]["key"] for each in made] == ["fleet.json", "node.json"]


def test_every_dashboard_can_be_selected() -> None:
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    names = schema["properties"]["dashboards"]["properties"]["include"]["items"]["enum"]
    assert names == sorted(registry.DASHBOARDS)


@pytest.mark.parametrize(
    "values", [{"stack": {"enabled": True}}, {"dashboards": OPERATOR}], ids=["stack", "operator"]
)
def test_config_maps_of_the_stack_and_the_operator_are_not_labelled_for_the_sidecar(values: Json) -> None:
    found = config_maps(values)
    assert contents(found) == EVERY_FILE
    for made in found:
        assert "grafana_dashboard" not in made["metadata"]["labels"]
        assert "annotations" not in made["metadata"]


def test_the_sidecar_the_operator_and_the_stack_share_config_maps() -> None:
    found = config_maps({"dashboards": {**SIDECAR, **OPERATOR}, "stack": {"enabled": True}})
    assert len(found) == len(EVERY_FILE)
    assert all(made["metadata"]["labels"]["grafana_dashboard"] == "1" for made in found)


def test_a_sidecar_in_another_namespace_gets_its_own_config_maps() -> None:
    elsewhere = {"configMaps": {"enabled": True, "namespace": "grafana"}, **OPERATOR}
    found = config_maps({"dashboards": elsewhere})
    namespaces = Counter(made["metadata"]["namespace"] for made in found)
    assert namespaces == {"grafana": len(EVERY_FILE), "monitoring": len(EVERY_FILE)}
    for made in found:
        watched = made["metadata"]["namespace"] == "grafana"
        assert ("grafana_dashboard" in made["metadata"]["labels"]) == watched


def test_the_stacks_grafana_mounts_every_dashboard() -> None:
    rendered = chart.render({"stack": {"enabled": True}, "dashboards": {"include": ["fleet", "node"]}})
    (pod,) = (pod for pod in chart.pods(rendered) if "grafana" in pod.title)
    mounted = {
        source["configMap"]["name"]
        for volume in pod.spec["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
    }
    assert {"gputally-dashboard-fleet", "gputally-dashboard-node"} == mounted


def test_the_operators_resources_refer_to_existing_config_maps() -> None:
    rendered = chart.render({"dashboards": {**SIDECAR, **OPERATOR}})
    there = {
        (made["metadata"]["namespace"], made["metadata"]["name"], key)
        for made in rendered
        if made["kind"] == "ConfigMap"
        for key in made["data"]
    }
    resources = [made for made in rendered if made["kind"] == "GrafanaDashboard"]
    assert len(resources) == len(EVERY_FILE)
    for made in resources:
        named = made["spec"]["configMapRef"]
        assert (made["metadata"]["namespace"], named["name"], named["key"]) in there


def test_the_resource_of_the_grafana_operator_is_valid() -> None:
    operator = {
        "enabled": True,
        "additionalLabels": {"team": "gpu"},
        "matchLabels": {"grafana": "main"},
        "allowCrossNamespaceImport": False,
        "resyncPeriod": "1h",
    }
    values = {"dashboards": {"grafanaOperator": operator, "folder": "GPUs", "include": ["fleet"]}}
    (made,) = chart.objects("GrafanaDashboard", values)
    assert crds.faults(made, "grafana-operator-crds") == []
    assert made["metadata"]["labels"]["team"] == "gpu"
    assert made["spec"] == {
        "configMapRef": {"name": "gputally-dashboard-fleet", "key": "fleet.json"},
        "folder": "GPUs",
        "instanceSelector": {"matchLabels": {"grafana": "main"}},
        "allowCrossNamespaceImport": False,
        "resyncPeriod": "1h",
    }


def test_openshifts_console_gets_its_own_dashboards() -> None:
    found = config_maps({"dashboards": {"openShiftConsole": {"enabled": True}}})
    assert contents(found) == CONSOLE_FILES
    for made in found:
        assert made["metadata"]["namespace"] == "openshift-config-managed"
        assert made["metadata"]["labels"]["console.openshift.io/dashboard"] == "true"
        # The console reads only the first key.
        assert len(made["data"]) == 1


def test_users_of_a_single_project_get_the_dashboard_of_projects() -> None:
    found = config_maps({"dashboards": {"openShiftConsole": {"enabled": True}}})
    shown = [
        [*made["data"]]
        for made in found
        if made["metadata"]["labels"].get("console.openshift.io/odc-dashboard") == "true"
    ]
    assert shown == [["project.json"]]


def test_two_releases_do_not_collide() -> None:
    values = {"dashboards": {**SIDECAR, **OPERATOR, "openShiftConsole": {"enabled": True}}}
    places = [
        (made["kind"], made["metadata"]["namespace"], made["metadata"]["name"])
        for name, namespace in (("a", "one"), ("b", "one"), ("a", "two"))
        for made in chart.render(values, name=name, namespace=namespace)
        if is_dashboard(made)
    ]
    assert len(set(places)) == len(places)


def test_every_config_map_is_small_enough() -> None:
    for made in config_maps({"dashboards": SIDECAR}):
        size = len(json.dumps(made))
        assert size < MOST_BYTES / 4
        assert size < MOST_ANNOTATED_BYTES, f"too large for kubectl apply: {made['metadata']['name']}"


def test_a_release_with_all_dashboards_is_small_enough() -> None:
    everything = {
        "dashboards": {
            "configMaps": {"enabled": True, "namespace": "grafana"},
            **OPERATOR,
            "openShiftConsole": {"enabled": True},
        },
        "prometheusRule": {"enabled": True},
        "alertmanagerConfig": {"enabled": True},
        "routing": {"default": "slack", "secret": "s"},
        "stack": {"enabled": True},
    }
    assert chart.stored_size(everything) < 0.7 * MOST_BYTES


def test_the_kustomization_generates_the_same_config_maps() -> None:
    directory = ROOT / registry.DIRECTORY
    printed = subprocess.run(
        [programs.path("kubectl"), "kustomize", directory], capture_output=True, text=True, check=True
    ).stdout
    of_kustomize = [yaml.safe_load(document) for document in chart.documents(printed)]
    of_chart = config_maps({"dashboards": SIDECAR})
    assert contents(of_kustomize) == contents(of_chart)
    assert [made["metadata"]["name"] for made in of_kustomize] == [
        made["metadata"]["name"] for made in of_chart
    ]
    for made in of_kustomize:
        assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert made["metadata"]["annotations"]["grafana_folder"] == "GPUTally"
