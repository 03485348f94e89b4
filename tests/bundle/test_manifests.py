"""Plain manifests: what the operator of today and one of two years ago would take, field by field."""

from typing import Any

import pytest
import yaml

from alerts import manifests
from tests.bundle import crds
from tools import ROOT

KITS = ("prometheus-operator-crds", "prometheus-operator-crds-2024")
NAMES = [
    path for path in manifests.files() if path.startswith(manifests.MANIFESTS) and "kustomization" not in path
]


def manifest(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return loaded


@pytest.mark.parametrize("kit", KITS)
@pytest.mark.parametrize("path", NAMES)
def test_the_operator_knows_every_field(path: str, kit: str) -> None:
    assert crds.faults(manifest(path), kit) == []


@pytest.mark.parametrize("kit", KITS)
def test_a_misspelt_field_is_found(kit: str) -> None:
    wrong = manifest(f"{manifests.MANIFESTS}/scrapeconfig.yaml")
    wrong["spec"]["enableHttp2"] = True
    assert any("enableHttp2" in fault for fault in crds.faults(wrong, kit))


def test_kustomize_lists_every_manifest() -> None:
    listed = manifest(f"{manifests.MANIFESTS}/kustomization.yaml")["resources"]
    assert {f"{manifests.MANIFESTS}/{name}" for name in listed} == set(NAMES)


def test_the_scrape_keeps_the_labels_of_whoever_uses_the_gpu() -> None:
    spec = manifest(f"{manifests.MANIFESTS}/scrapeconfig.yaml")["spec"]
    assert spec["honorLabels"] is True
    assert {rule.get("targetLabel") for rule in spec["relabelings"]} >= {"node", "instance"}
