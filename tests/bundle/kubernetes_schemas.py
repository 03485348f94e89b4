"""Objects against what clusters accept, strictly: kubeconform, with schemas made from the clusters' own.

Kubernetes' OpenAPI and the CRDs become JSON schemas in which an unknown field, and a field that is null, is a
fault. They are made once for each set, in a cache outside the repository.
"""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.bundle import crds
from tools.dependencies import programs

_OTHERS = (
    "grafana-operator-crds",
    "argo-cd-crds",
    "argo-workflows-crds",
    "keda-crds",
    "openshift-security-crds",
)
# Kubernetes version -> sets of schemas. The oldest cluster has an operator of its time.
CLUSTERS = {
    "1.25": ("kubernetes-openapi-1.25", "prometheus-operator-crds-2024", *_OTHERS),
    "1.30": ("kubernetes-openapi-1.30", "prometheus-operator-crds", *_OTHERS),
    "1.34": ("kubernetes-openapi-1.34", "prometheus-operator-crds", *_OTHERS),
}
_LAYOUT = "{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 253},
        "namespace": {"type": "string", "minLength": 1, "maxLength": 63},
        "labels": _STRINGS,
        "annotations": _STRINGS,
    },
    "additionalProperties": False,
}
# What the API server reads by code of its own, and its OpenAPI calls text.
_PARSED = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "type": ["string", "number"],
        "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}


def faults(objects: Iterable[Mapping[str, Any]], cluster: str) -> list[str]:
    """All that a cluster would say against the objects, each once; an unknown kind is a fault too."""
    distinct = {json.dumps(made, sort_keys=True) for made in objects}
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(sorted(distinct)):
            (Path(folder) / f"{number}.json").write_text(text)
        locations = [f"-schema-location={_schemas(name)}/{_LAYOUT}" for name in CLUSTERS[cluster]]
        checked = subprocess.run(
            [programs.path("kubeconform"), "-strict", "-verbose", "-output=json", *locations, folder],
            capture_output=True,
            text=True,
            check=False,
        )
    # Without -verbose what was not looked at at all would pass for valid.
    results = json.loads(checked.stdout)["resources"]
    assert len(results) == len(distinct), checked.stderr
    return sorted(_told(result) for result in results if result["status"] != "statusValid")


def _told(result: Mapping[str, Any]) -> str:
    # Of a fault inside a definition only the message has the place.
    _, _, where = result["msg"].partition(" - at ")
    return f"{result['kind']} {result['name']}: {where or result['msg']}"


def _place(api_version: str, kind: str) -> str:
    """The file name that the layout gives: kubeconform takes `v1` for the group of `v1`."""
    parts = api_version.split("/")
    return f"{parts[0]}/{kind.lower()}_{parts[-1]}.json"


@cache
def _schemas(name: str) -> Path:
    """The directory of a set's schemas; a change of the set or of this code gives another directory."""
    made_by = hashlib.sha256(Path(__file__).read_bytes() + Path(crds.__file__).read_bytes()).hexdigest()[:8]
    folder = programs.cache() / "schemas" / f"{programs.program_sets()[name].directory.name}-{made_by}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Test runs may do this side by side: each makes its own, and the first is kept.
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        made = Path(unfinished) / "schemas"
        for (api_version, kind), schema in _of_program(name):
            file = made / _place(api_version, kind)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(_of_object(schema, api_version, kind)))
        try:
            made.rename(folder)
        except OSError:
            assert folder.exists()
    return folder


def _of_program(name: str) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    if name.startswith("kubernetes-openapi"):
        yield from _of_openapi(programs.path(name))
    else:
        yield from crds.schemas(name).items()


def _of_openapi(file: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    definitions = json.loads(file.read_text())["definitions"]
    closed = {name: crds.strict(definition) for name, definition in definitions.items()} | _PARSED
    for name, definition in definitions.items():
        for known in definition.get("x-kubernetes-group-version-kind", ()):
            if "metadata" not in definition.get("properties", {}):
                continue  # options of requests, and no objects
            api_version = "/".join(part for part in (known["group"], known["version"]) if part)
            used = {other: closed[other] for other in _reachable(name, closed)}
            yield (api_version, known["kind"]), {**closed[name], "definitions": used}


def _reachable(name: str, definitions: Mapping[str, Any]) -> set[str]:
    """The definitions that one refers to, and those that these refer to, and so on."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(_references(definitions[waiting.pop()])) - found
        found |= new
        waiting += new
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix("#/definitions/")
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _of_object(schema: dict[str, Any], api_version: str, kind: str) -> dict[str, Any]:
    properties = {
        **schema["properties"],
        "apiVersion": {"const": api_version},
        "kind": {"const": kind},
        "metadata": _METADATA,
    }
    required = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata"})
    return {**schema, "properties": properties, "required": required}
