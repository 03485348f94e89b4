"""Custom resources against the schemas that their operator ships, strictly: an unknown field is a fault."""

from functools import cache
from typing import Any

import jsonschema
import yaml

from tools.dependencies import programs


class _Loader(yaml.CSafeLoader):
    """YAML 1.1 has a type of its own for a bare `=`, which the CRDs mean as text."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def schemas(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(apiVersion, kind) -> strict schema, for every resource of a set of CRDs."""
    found = {}
    for file in sorted(programs.path(name).glob("*.yaml")):
        resource = yaml.load(file.read_text(), _Loader)
        if resource["kind"] != "CustomResourceDefinition":
            continue
        definition = resource["spec"]
        for version in definition["versions"]:
            api_version = f"{definition['group']}/{version['name']}"
            schema = strict(version["schema"]["openAPIV3Schema"])
            # The API server fills in what these hold; a CRD says only that they are objects.
            schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
            found[api_version, definition["names"]["kind"]] = schema
    return found


@cache
def _validators(name: str) -> dict[tuple[str, str], jsonschema.Draft7Validator]:
    return {resource: jsonschema.Draft7Validator(schema) for resource, schema in schemas(name).items()}


def faults(resource: dict[str, Any], name: str) -> list[str]:
    """Everything that the operator's schema says against the resource, each with its place."""
    validator = _validators(name)[resource["apiVersion"], resource["kind"]]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(resource)]


def strict(schema: Any) -> Any:
    """The same schema, with objects closed: the API server prunes what it does not know, silently."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(part) for key, part in schema.items() if key not in ("properties", "description")}
    if "properties" in schema:
        closed["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    if "(?i)" in str(schema.get("pattern", "")):
        # Go has flags anywhere, Python only at the start.
        closed["pattern"] = "(?i)" + schema["pattern"].replace("(?i)", "")
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("type", None)
    if closed.pop("nullable", False) and "type" in closed:
        closed["type"] = [closed["type"], "null"]
    return closed
