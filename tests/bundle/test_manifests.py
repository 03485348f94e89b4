"""Plain manifests against the schemas of the current operator and of one from 2024."""

from typing import Any

import pytest
import yaml

from alerts import manifests
from tests.bundle import crds
from tools import ROOT

SCHEMAS = ("prometheus-operator-crds", "prometheus-operator-crds-2024")
NAMES = [
    path for path in manifests.files() if path.startswith(manifests.MANIFESTS) and "kustomization" not in path
]


def manifest(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return loaded


@pytest.mark.parametrize("schemas", SCHEMAS)
@pytest.mark.parametrize("path", NAMES)
def test_every_field_is_in_the_operators_schema(path: str, schemas: str) -> None:
    assert crds.faults(manifest(path), schemas) == []


@pytest.mark.parametrize("schemas", SCHEMAS)
def test_a_misspelt_field_is_reported(schemas: str) -> None:
    wrong = manifest(f"{manifests.MANIFESTS}/scrapeconfig.yaml")
    wrong["spec"]["enableHttp2"] = True
    assert any("enableHttp2" in fault for fault in crds.faults(wrong, schemas))


def test_kustomize_lists_every_manifest() -> None:
    listed = manifest(f"{manifests.MANIFESTS}/kustomization.yaml")["resources"]
    assert {f"{manifests.MANIFESTS}/{name}" for name in listed} == set(NAMES)


def test_the_scrape_keeps_the_pod_and_namespace_of_the_gpus_user() -> None:
    spec = manifest(f"{manifests.MANIFESTS}/scrapeconfig.yaml")["spec"]
    assert spec["honorLabels"] is True
    assert {rule.get("targetLabel") for rule in spec["relabelings"]} >= {"node", "instance"}
