"""deploy/: the chart's objects for kubectl, which match the manifests that are applied with them."""

from typing import Any

import pytest
import yaml

from alerts import manifests
from tools import ROOT
from tools.rendering import plain_install
from tools.rendering.plain_install import EXPORTER, STACK

FILES = (EXPORTER, STACK)
KUSTOMIZATION = ROOT / "helm/gputally/dashboards/kustomization.yaml"


def read(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(plain_install.text(path)))


def one(path: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = [made for made in read(path) if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("path", FILES)
def test_helm_3_and_helm_4_render_the_same_text(path: str) -> None:
    assert plain_install.text(path, "helm-4") == plain_install.text(path)


@pytest.mark.parametrize("path", FILES)
def test_the_committed_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == plain_install.text(path), "run tools/render"


@pytest.mark.parametrize("path", FILES)
def test_a_plain_file_names_its_generator_and_has_no_labels_of_helm(path: str) -> None:
    text = plain_install.text(path)
    assert "tools/render" in text.splitlines()[1]
    assert "helm.sh/" not in text
    assert "managed-by" not in text
    assert "registry" not in text


@pytest.mark.parametrize("path", FILES)
def test_all_objects_are_in_one_namespace_which_comes_first(path: str) -> None:
    namespace, *others = read(path)
    assert namespace["kind"] == "Namespace"
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert (
        {made["metadata"]["namespace"] for made in others} == {namespace["metadata"]["name"]} == {"gputally"}
    )


def test_each_file_has_its_components_only() -> None:
    components = {
        path: {made["metadata"]["labels"]["app.kubernetes.io/component"] for made in read(path)[1:]}
        for path in FILES
    }
    assert components == {EXPORTER: {"exporter"}, STACK: {"prometheus", "alertmanager", "grafana"}}
    workloads = [
        made for path in FILES for made in read(path) if made["kind"] in ("DaemonSet", "StatefulSet")
    ]
    assert len(workloads) == 4


def test_the_scrape_for_the_operator_selects_these_exporters() -> None:
    config = yaml.safe_load(manifests.files()["alerts/manifests/scrapeconfig.yaml"])
    (discovery,) = config["spec"]["kubernetesSDConfigs"]
    (selector,) = discovery["selectors"]
    wanted = dict(pair.split("=") for pair in selector["label"].split(","))
    template = one(EXPORTER, "DaemonSet", "gputally")["spec"]["template"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    (kept,) = [
        rule["regex"]
        for rule in config["spec"]["relabelings"]
        if rule.get("sourceLabels") == ["__meta_kubernetes_pod_container_port_name"]
    ]
    assert kept in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_the_network_policy_admits_the_stacks_prometheus() -> None:
    policy = one(EXPORTER, "NetworkPolicy", "gputally")
    peers = [
        peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule["from"]
    ]
    scraper = one(STACK, "StatefulSet", "gputally-prometheus")["spec"]["template"]["metadata"]["labels"]
    assert any(labels.items() <= scraper.items() for labels in peers)


def test_grafana_mounts_the_dashboards_of_the_kustomization() -> None:
    made = {one["name"] for one in yaml.safe_load(KUSTOMIZATION.read_text())["configMapGenerator"]}
    volumes = one(STACK, "StatefulSet", "gputally-grafana")["spec"]["template"]["spec"]["volumes"]
    (projected,) = [volume["projected"] for volume in volumes if volume["name"] == "dashboards"]
    assert {source["configMap"]["name"] for source in projected["sources"]} == made


def test_files_in_config_maps_are_readable_blocks() -> None:
    rules = one(STACK, "ConfigMap", "gputally-prometheus")["data"]["gputally.rules.yml"]
    assert len(yaml.safe_load(rules)["groups"]) > 5
    assert "  gputally.rules.yml: |" in plain_install.text(STACK)
