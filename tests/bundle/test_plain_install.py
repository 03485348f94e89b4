"""deploy/: the chart's objects for kubectl alone, which fit to what else is applied by hand."""

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
def test_both_helms_give_the_same_text(path: str) -> None:
    assert plain_install.text(path, "helm-4") == plain_install.text(path)


@pytest.mark.parametrize("path", FILES)
def test_what_is_committed_is_what_the_chart_gives(path: str) -> None:
    assert (ROOT / path).read_text() == plain_install.text(path), "tools/render writes it"


@pytest.mark.parametrize("path", FILES)
def test_it_says_how_it_is_made_and_nothing_of_helm_is_left(path: str) -> None:
    text = plain_install.text(path)
    assert "# Made by tools/render" in text.splitlines()[1]
    assert "helm.sh/" not in text
    assert "managed-by" not in text
    assert "registry" not in text


@pytest.mark.parametrize("path", FILES)
def test_everything_is_in_one_namespace_which_comes_first_and_allows_it(path: str) -> None:
    namespace, *others = read(path)
    assert namespace["kind"] == "Namespace"
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert (
        {made["metadata"]["namespace"] for made in others} == {namespace["metadata"]["name"]} == {"gputally"}
    )


def test_each_file_has_its_parts_and_no_other() -> None:
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


def test_the_prometheus_of_the_stack_gets_in() -> None:
    policy = one(EXPORTER, "NetworkPolicy", "gputally")
    peers = [
        peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule["from"]
    ]
    scraper = one(STACK, "StatefulSet", "gputally-prometheus")["spec"]["template"]["metadata"]["labels"]
    assert any(labels.items() <= scraper.items() for labels in peers)


def test_grafana_has_the_dashboards_that_are_applied_beside_it() -> None:
    made = {one["name"] for one in yaml.safe_load(KUSTOMIZATION.read_text())["configMapGenerator"]}
    volumes = one(STACK, "StatefulSet", "gputally-grafana")["spec"]["template"]["spec"]["volumes"]
    (projected,) = [volume["projected"] for volume in volumes if volume["name"] == "dashboards"]
    assert {source["configMap"]["name"] for source in projected["sources"]} == made


def test_files_of_configmaps_can_be_read() -> None:
    rules = one(STACK, "ConfigMap", "gputally-prometheus")["data"]["gputally.rules.yml"]
    assert len(yaml.safe_load(rules)["groups"]) > 5
    assert "  gputally.rules.yml: |" in plain_install.text(STACK)
