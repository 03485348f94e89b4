"""deploy/: what the chart gives with its defaults, for those who use kubectl alone."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools import ROOT, Failed
from tools.dependencies import programs

NAMESPACE = "gputally"
EXPORTER = "deploy/exporter.yaml"
STACK = "deploy/stack.yaml"
COMPONENTS = {EXPORTER: {"exporter"}, STACK: {"prometheus", "alertmanager", "grafana"}}
_COMPONENT = "app.kubernetes.io/component"
_OF_HELM = {"app.kubernetes.io/managed-by", "helm.sh/chart"}
# What others need comes first, so that one `kubectl apply` is enough.
_ORDER = ("Namespace", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role")
_HEADS = {
    EXPORTER: "# The exporter on every GPU node: `kubectl apply -f deploy/exporter.yaml`.\n",
    STACK: "# Prometheus, Alertmanager and Grafana, for a cluster that has none: deploy/README.md.\n",
}

Object = dict[str, Any]


def text(path: str, helm: str = "helm") -> str:
    """One of the files, as it should be. Raises Failed."""
    kept = [_plain(made) for made in _rendered(helm) if _component(made) in COMPONENTS[path]]
    documents = [_namespace(), *sorted(kept, key=_place)]
    head = _HEADS[path] + "# Made by tools/render from helm/gputally: change it there.\n"
    return head + "---\n".join(
        yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=110) for made in documents
    )


@cache
def _rendered(helm: str) -> tuple[Object, ...]:
    """With the stack, also for the exporter: the NetworkPolicy then lets this Prometheus in, too."""
    chart = ROOT / "helm" / "gputally"
    command: list[str | Path] = [programs.path(helm), "template", "gputally", chart]
    flags = ("--namespace", NAMESPACE, "--set", "stack.enabled=true", "--no-hooks")
    printed = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    if printed.returncode:
        raise Failed(f"the chart cannot be rendered: {printed.stderr.strip()}")
    return tuple(made for made in yaml.safe_load_all(printed.stdout) if made)


def _namespace() -> Object:
    # Processes of the node and folders of it are out of bounds otherwise: docs/privileges.md.
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _component(made: Object) -> str:
    return str(made["metadata"].get("labels", {}).get(_COMPONENT, ""))


def _place(made: Object) -> tuple[int, str, str]:
    kind, name = made["kind"], made["metadata"]["name"]
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind, name)


def _plain(made: Any) -> Any:
    """Without the labels by which Helm knows its own."""
    if isinstance(made, dict):
        return {key: _plain(value) for key, value in made.items() if key not in _OF_HELM}
    return [_plain(value) for value in made] if isinstance(made, list) else made


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: lists are indented, and files in ConfigMaps stay readable."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    style = "|" if "\n" in data else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _text)
