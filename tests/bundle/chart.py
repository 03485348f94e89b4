"""The chart as Helm renders it."""

import base64
import gzip
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools import ROOT
from tools.dependencies import programs

CHART = ROOT / "helm" / "gputally"
PRESETS = {file.stem: file for file in sorted(CHART.glob("presets/*.yaml"))}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "PriorityClass", "SecurityContextConstraints"}

# Lines that Helm prints around a message of `fail` or of the schema.
_IN_EVERY_REFUSAL = re.compile(
    r"Use --debug flag .*|Error: values don't meet the specifications .*|gputally:"
)
_BEFORE_THE_MESSAGE = re.compile(r"^(Error: execution error at \(.*?\): |- )")

# Helm ends before it runs out of memory: a tenth of its time is for the collection of garbage.
_ENVIRONMENT = {**os.environ, "GOGC": "off"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that an object of the chart creates."""

    owner: Object
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.metadata.get("labels", {})
        return labels

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def component(self) -> str:
        component: str = self.owner["metadata"]["labels"]["app.kubernetes.io/component"]
        return component

    @property
    def title(self) -> str:
        return f"{self.owner['kind']} {self.owner['metadata']['name']}"


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: a duplicate key is an error, and a date is text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) != len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            raise yaml.constructor.ConstructorError(None, None, f"duplicate keys: {twice}", node.start_mark)
        return made


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)


def render(
    values: Mapping[str, Any] | None = None,
    *,
    helm: str = "helm",
    name: str = "gputally",
    namespace: str = "monitoring",
    files: Sequence[Path] = (),
    arguments: Sequence[str] = (),
) -> list[Object]:
    """The objects that `helm template` renders. They are cached: do not change them.

    `files` are values files, which `values` override; `arguments` are additional flags of `helm template`.
    """
    shown = text(values, helm=helm, name=name, namespace=namespace, files=files, arguments=arguments)
    return [made for document in documents(shown) if (made := _parsed(document)) is not None]


def objects(kind: str, values: Mapping[str, Any] | None = None, **options: Any) -> list[Object]:
    """The objects of one kind that `render` returns."""
    return [made for made in render(values, **options) if made["kind"] == kind]


def pods(rendered: Iterable[Object]) -> list[Pod]:
    """The pods of workloads, of `helm test`, and of workflows."""
    return [pod for made in rendered for pod in _pods(made)]


def text(
    values: Mapping[str, Any] | None = None,
    *,
    helm: str = "helm",
    name: str = "gputally",
    namespace: str = "monitoring",
    files: Sequence[Path] = (),
    arguments: Sequence[str] = (),
) -> str:
    """The output of `helm template`."""
    return _template(json.dumps(values or {}), helm, name, namespace, tuple(files), tuple(arguments))


def refusal(values: Mapping[str, Any], files: Sequence[Path] = ()) -> str:
    """The message, one line, with which Helm refuses the values."""
    command = [*_command("helm", "template", "gputally", "monitoring"), *_values_files(files)]
    refused = _run(command, json.dumps(values))
    assert refused.returncode != 0, "the chart accepts these values"
    lines = [line for line in refused.stderr.splitlines() if line and not _IN_EVERY_REFUSAL.fullmatch(line)]
    assert len(lines) == 1, refused.stderr
    return _BEFORE_THE_MESSAGE.sub("", lines[0])


def lint(values: Mapping[str, Any] | None = None, files: Sequence[Path] = ()) -> str:
    """The findings of `helm lint --strict` with these values; empty if there are none."""
    command: list[str | Path] = [programs.path("helm"), "lint", "--strict", "--quiet", CHART]
    linted = _run([*command, "--namespace", "monitoring", *_values_files(files)], json.dumps(values or {}))
    return linted.stdout + linted.stderr if linted.returncode else ""


def stored_size(values: Mapping[str, Any] | None = None, files: Sequence[Path] = ()) -> int:
    """Bytes of the Secret in which Helm stores a release: the chart, the values and the manifests."""
    kept = {
        "chart": _packaged(),
        "config": values,
        "manifest": text(values, files=files),
        "info": {"notes": "long notes of a release " * 200},
    }
    return len(base64.b64encode(gzip.compress(json.dumps(kept).encode())))


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` over `values`, as Helm merges values files."""
    made = dict(values)
    for key, value in more.items():
        old = made.get(key)
        made[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return made


def at(path: str, value: Any) -> dict[str, Any]:
    """{a: {b: value}} for "a.b"; [] stands for a list with one element."""
    for part in reversed(re.findall(r"\[\]|[^.\[\]]+", path)):
        value = [value] if part == "[]" else {part: value}
    assert isinstance(value, dict)
    return value


def documents(shown: str) -> Iterator[str]:
    """The YAML documents of Helm's output."""
    for document in f"\n{shown}".split("\n---\n"):
        if document.strip():
            yield document


@cache
def _template(
    values: str, helm: str, name: str, namespace: str, files: Sequence[Path], arguments: Sequence[str]
) -> str:
    command = [*_command(helm, "template", name, namespace), *_values_files(files), *arguments]
    printed = _run(command, values)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


def _pods(made: Object) -> Iterator[Pod]:
    match made["kind"]:
        case "Pod":
            yield Pod(made, made["metadata"], made["spec"])
        case "DaemonSet" | "Deployment" | "Job" | "StatefulSet":
            template = made["spec"]["template"]
            yield Pod(made, template["metadata"], template["spec"])
        case "CronJob":
            template = made["spec"]["jobTemplate"]["spec"]["template"]
            yield Pod(made, template["metadata"], template["spec"])
        case "WorkflowTemplate":
            for template in made["spec"]["templates"]:
                if "container" in template:
                    yield _workflow_pod(made, template)


def _workflow_pod(made: Object, template: Mapping[str, Any]) -> Pod:
    """The pod that Argo creates from a template, without Argo's own containers."""
    workflow = made["spec"]
    labels = {
        **workflow.get("podMetadata", {}).get("labels", {}),
        **template.get("metadata", {}).get("labels", {}),
    }
    inherited = ("securityContext", "serviceAccountName", "automountServiceAccountToken")
    spec = {
        **{name: source[name] for name in inherited for source in (workflow, template) if name in source},
        "volumes": [*workflow.get("volumes", ()), *template.get("volumes", ())],
        "initContainers": template.get("initContainers", []),
        "containers": [{"name": "main", **template["container"]}, *template.get("sidecars", ())],
    }
    return Pod(made, {"labels": labels}, spec)


def _command(helm: str, verb: str, name: str, namespace: str) -> list[str | Path]:
    return [programs.path(helm), verb, name, CHART, "--namespace", namespace]


def _values_files(files: Sequence[Path]) -> list[str | Path]:
    """Flags for values files, followed by values from the standard input."""
    return [part for file in (*map(str, files), "-") for part in ("--values", file)]


def _run(command: Sequence[str | Path], values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=values, env=_ENVIRONMENT, capture_output=True, text=True, check=False
    )


@cache
def _packaged() -> dict[str, str]:
    """Every file of the packaged chart."""
    with tempfile.TemporaryDirectory() as directory:
        _run([programs.path("helm"), "package", CHART, "--destination", directory], "").check_returncode()
        (package,) = Path(directory).iterdir()
        with tarfile.open(package) as archive:
            read = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            return {name: base64.b64encode(file.read()).decode() for name, file in read.items() if file}


@cache
def _parsed(document: str) -> Object | None:
    """Cached by text: most documents are the same for most values, and dashboards are long."""
    parsed: Object | None = yaml.load(document, _Loader)
    return parsed
