"""values.schema.json: each likely mistake is refused in one line with its path, by Helm 3 and Helm 4."""

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from alerts.routing import RECEIVERS
from dashboards.registry import DASHBOARDS
from gputally.config import LOG_FORMATS, LOG_LEVELS, READERS
from gputally.metrics.compat import PROFILES
from tests.bundle import chart
from tests.bundle.chart import CHART, PRESETS, at, merged
from tools.chart_values import source
from tools.chart_values.definitions import DEFINITIONS
from tools.chart_values.source import ChartValue
from tools.dependencies import programs

HELMS = ("helm", "helm-4")
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
SOURCE = (CHART / "values.yaml").read_text()
LEAVES = [value for value in source.every(source.values(SOURCE)) if not value.children]
RELEASES = Path(__file__).with_name("releases")

# Lines of Helm 3 (`- exporter.port: Must be ...`), and of Helm 4 (`- at '/exporter/port': minimum: ...`).
_LINES = (re.compile(r" *- ([^:]+): (.*)"), re.compile(r" *- at '([^']*)': (.*)"))
_FRAMES = ('Must validate "then" as "if" was valid', "validation failed")
"""Lines that Helm prints around those of missing keys."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without templates, so that only the schema refuses values."""
    directory = tmp_path_factory.mktemp("chart") / "gputally"
    directory.mkdir()
    for name in ("Chart.yaml", "values.yaml", "values.schema.json"):
        shutil.copy(CHART / name, directory)
    return directory


def refusals(helm: str, directory: Path, values: dict[str, Any]) -> list[tuple[str, str]]:
    """(path with dots, message) of each refused value; empty if the values are accepted."""
    return _refusals(helm, directory, json.dumps(values))


@cache
def _refusals(helm: str, directory: Path, values: str) -> list[tuple[str, str]]:
    command: list[str | Path] = [programs.path(helm), "template", "gputally", directory, "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if not done.returncode:
        return []
    assert "values don't meet the specifications of the schema(s)" in done.stderr
    line_of = _LINES[HELMS.index(helm)]
    lines = [found for line in done.stderr.splitlines() if (found := line_of.fullmatch(line))]
    return [
        ("" if found[1] == "(root)" else found[1].strip("/").replace("/", "."), found[2])
        for found in lines
        if found[2] not in _FRAMES
    ]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A value, and the path with which it is refused."""

    where: str
    value: Any
    refused_at: str


def together(mistakes: Iterable[Mistake]) -> list[list[Mistake]]:
    """The mistakes in few groups: one run of Helm refuses a group, each in its own line.

    Of two in one group, none is refused at the path of the other or below it.
    """
    groups: list[list[Mistake]] = []
    for mistake in mistakes:
        for group in groups:
            if not any(_is_below(mistake, other) or _is_below(other, mistake) for other in group):
                group.append(mistake)
                break
        else:
            groups.append([mistake])
    return groups


def _is_below(one: Mistake, other: Mistake) -> bool:
    where = one.where.replace("[]", ".0")
    return f"{where}.".startswith(f"{other.refused_at}.") or not other.refused_at


def refused_in_group(helm: str, directory: Path, mistake: Mistake) -> str:
    """The message of the one line with which Helm refuses the mistake, in its group."""
    (group,) = (group for group in GROUPS if mistake in group)
    found = refusals(helm, directory, reduce(merged, (at(one.where, one.value) for one in group)))
    assert {path for path, _ in found} == {one.refused_at for one in group}
    (words,) = (words for path, words in found if path == mistake.refused_at)
    return words


UNKNOWN = [
    # Parent of the key, the unknown key, and a value that is valid for the intended key.
    ("", "exportr", {"enabled": True}),
    ("", "fullNameOverride", "gpu"),
    ("", "nodeSelector", {"gpu": "true"}),
    ("", "resources", {"limits": {"memory": "1Gi"}}),
    ("image", "Tag", "0.2.0"),
    ("exporter", "intervall", "10s"),
    ("exporter", "hostPID", False),
    ("exporter.tolerations[]", "operater", "Exists"),
    ("exporter.resources", "reqests", {"cpu": "1"}),
    ("exporter.resources.limits", "memroy", "1Gi"),
    ("exporter.affinity", "nodeAfinity", {}),
    ("exporter.affinity.nodeAffinity", "requiredDuringScheduling", {"nodeSelectorTerms": []}),
    ("privileges", "hostPid", False),
    ("serviceMonitor", "labels", {"release": "kps"}),
    ("serviceMonitor", "interval", "30s"),
    ("serviceMonitor.relabelings[]", "source_labels", ["a"]),
    ("stack.prometheus", "retentionTime", "30d"),
    ("stack.prometheus.persistence", "storageClassName", "ssd"),
    ("stack.grafana", "adminPassword", "secret"),
    ("rules", "memoryFullRatio", 0.9),
    ("rules.settings", "memoryFullRation", 0.9),
    ("rules.alerts", "GPUTallyGPULost", {"enabled": False}),
    ("rules.alerts.GPUTallyGpuLost", "keep_firing_for", "5m"),
    ("rules.groups", "gputally-anomaly", {"enabled": False}),
    ("routing.slack", "url", "https://example.com/hook"),
]


def unknown(parent: str, key: str, value: Any) -> Mistake:
    return Mistake(f"{parent}.{key}".strip("."), value, parent.replace("[]", ".0"))


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("parent", "key", "value"), UNKNOWN)
def test_an_unknown_key_is_refused_with_its_path(
    helm: str, bare: Path, parent: str, key: str, value: Any
) -> None:
    words = refused_in_group(helm, bare, unknown(parent, key, value))
    assert re.search(rf"\b{key}\b.*not allowed", words)


WRONG = [
    # Path, wrong value, and a word that the message must contain.
    ("exporter.enabled", "yes", "boolean"),
    ("exporter.enabled", "false", "boolean"),
    ("exporter.port", -1, "1"),
    ("exporter.port", "9400", "integer"),
    ("service.port", 94000, "65,?535"),
    ("exporter.interval", "5 minutes", "pattern"),
    ("exporter.interval", 5, "string"),
    ("stack.prometheus.retention", "6 months", "pattern"),
    ("exporter.reader", "nvidia", "nvml"),
    ("exporter.compat[]", "dcgm-exporter", "dcgm-4.9"),
    ("exporter.compat", "dcgm", "array"),
    ("exporter.extraArgs[]", "interval=5s", "pattern"),
    ("exporter.extraArgs", "--once", "array"),
    ("exporter.nodeSelector.gpu", True, "string"),
    ("exporter.maxUnavailable", "half", "pattern"),
    ("exporter.maxUnavailable", 0, "1"),
    ("exporter.resources.requests.memory", "50 MB", "pattern"),
    ("exporter.tolerations", {"operator": "Exists"}, "array"),
    ("exporter.tolerations[].operator", "Exist", "Exists"),
    ("exporter.runtimeClassName", "NVIDIA", "pattern"),
    ("commonLabels.gpus", 8, "string"),
    ("commonLabels.owner", "the gpu team", "pattern"),
    ("cluster", 1, "string"),
    ("cluster", "my cluster", "pattern"),
    ("image.tag", 0.2, "string"),
    ("image.digest", "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", "pattern"),
    ("image.pullPolicy", "ifNotPresent", "IfNotPresent"),
    ("fullnameOverride", "GPUTally", "pattern"),
    ("global.imagePullSecrets[]", {"name": "registry"}, "string"),
    ("driver.hostPath", "home/kubernetes/bin/nvidia", "pattern"),
    ("state.volume", "pvc", "emptyDir"),
    ("web.basicAuth.users.prometheus", "password", "pattern"),
    ("prometheusRule.additionalLabels", [{"release": "kps"}], "object"),
    ("dashboards.include[]", "overview", "fleet"),
    ("rules.settings.memoryFullRatio", "0.9", "number"),
    ("rules.settings.memoryFullRatio", 95, "1"),
    ("rules.settings.xidCritical", "48|79", "array"),
    ("rules.settings.scrapeInterval", 15, "string"),
    ("rules.alerts.GPUTallyGpuLost.severity", "ciritical", "critical"),
    ("rules.alerts.GPUTallyGpuLost.for", "10 min", "pattern"),
    ("rules.alerts.GPUTallyGpuLost", False, "object"),
    ("rules.tables.gpuHourPrices.H100", "2 USD", "number"),
    ("routing.critical", "pager", "pagerduty"),
    ("routing.email.smarthost", "smtp.example.com", "pattern"),
    ("stack.prometheus.persistence.size", "0Gi", "pattern"),
    ("stack.prometheus.persistence.size", "50 GB", "pattern"),
    ("stack.prometheus.persistence.size", 50, "string"),
    ("autoscaling.keda.utilization", 70, "1"),
    ("argoWorkflows.stressTest.utilization", 0, "0"),
    ("prometheusUrl", "prometheus.monitoring:9090", "pattern"),
    ("enabled", False, "true"),
]


def wrong(where: str, value: Any) -> Mistake:
    return Mistake(where, value, where.replace("[]", ".0"))


GROUPS = together([*(unknown(*mistake) for mistake in UNKNOWN), *(wrong(*mistake[:2]) for mistake in WRONG)])


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("where", "value", "word"), WRONG)
def test_a_wrong_value_is_refused_with_its_path_and_the_allowed_values(
    helm: str, bare: Path, where: str, value: Any, word: str
) -> None:
    assert re.search(rf"\b{word}\b", refused_in_group(helm, bare, wrong(where, value)))


@pytest.mark.parametrize("helm", HELMS)
def test_a_number_in_the_environment_is_refused_with_its_index(helm: str, bare: Path) -> None:
    values = at("exporter.extraEnv", [{"name": "A", "value": "1"}, {"name": "B", "value": 1}])
    ((path, words),) = refusals(helm, bare, values)
    assert (path, "string" in words) == ("exporter.extraEnv.1.value", True)


GOOD: dict[str, Any] = {
    "enabled": True,
    "cluster": "arn:aws:eks:eu-west-1:123456789012:cluster/gpu",
    "global": {"storageClass": "of the parent chart", "imagePullSecrets": ["registry.example"]},
    "commonLabels": {"release": "kube-prometheus-stack", "example.com/team": "gpu_1"},
    "exporter": {
        "interval": "500ms",
        "maxUnavailable": 3,
        "extraArgs": ["--once"],
        "extraEnv": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
        "extraVolumes": [{"name": "v", "hostPath": {"path": "/a", "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "v", "mountPath": "/a", "readOnly": True}],
        "resources": {"limits": {"cpu": 1, "memory": "1Gi", "hugepages-2Mi": "4Mi"}, "requests": None},
        "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}
                    ]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "a"}},
                        },
                    }
                ]
            },
        },
    },
    "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {}}]},
    "serviceMonitor": {
        "relabelings": [{"action": "replace", "sourceLabels": ["a"], "targetLabel": "b", "regex": "(.*)"}]
    },
    "rules": {
        "runbookUrl": "https://wiki.example/gpu",
        "additionalRuleLabels": {"team": "platform"},
        "settings": {"memoryFullRatio": 1, "xidCritical": [79], "idleWindow": "1h30m"},
        "tables": {"gpuHourPrices": {".*H100.*": 2.5}, "namespaceBudgets": {"team-a": 100}},
        "groups": {"gputally-anomalies": {"enabled": False}},
        "alerts": {"GPUTallyGpuLost": {"enabled": False, "for": "0s", "severity": "info"}},
    },
    "web": {"basicAuth": {"users": {"prometheus": "$2y$10$" + "e" * 53}}},
    "stack": {"prometheus": {"remoteWrite": [{"url": "https://mimir.example/push", "headers": {"a": "b"}}]}},
    "extraObjects": ["kind: ConfigMap", {"kind": "ConfigMap"}],
}


@pytest.mark.parametrize("helm", HELMS)
def test_valid_values_are_accepted(helm: str, bare: Path) -> None:
    assert refusals(helm, bare, GOOD) == []


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda file: file.stem)
def test_every_preset_is_accepted(helm: str, bare: Path, preset: Path) -> None:
    assert refusals(helm, bare, yaml.safe_load(preset.read_text())) == []


EVERYTHING = (
    "kubernetes.enabled",
    "securityContextConstraints.enabled",
    "podMonitor.sidecars.enabled",
    "podMonitor.pods.enabled",
    "prometheusRule.enabled",
    "alertmanagerConfig.enabled",
    "dashboards.configMaps.enabled",
    "dashboards.grafanaOperator.enabled",
    "dashboards.openShiftConsole.enabled",
    "stack.enabled",
    "argoWorkflows.sidecar.enabled",
    "argoWorkflows.stressTest.enabled",
    "autoscaling.prometheusAdapter.enabled",
    "autoscaling.keda.enabled",
)


def of_leaves(leaves: list[ChartValue]) -> dict[str, Any]:
    """null for each of these keys."""
    values: dict[str, Any] = {}
    for leaf in leaves:
        inner = values
        for part in leaf.path[:-1]:
            inner = inner.setdefault(part, {})
        inner[leaf.name] = None
    return values


@pytest.mark.parametrize("helm", HELMS)
def test_lists_and_free_maps_can_be_null(helm: str, bare: Path) -> None:
    own = [leaf for leaf in LEAVES if isinstance(leaf.default, list | dict)]
    assert refusals(helm, bare, of_leaves(own)) == []


def test_templates_render_with_null_for_lists_and_free_maps() -> None:
    # Templates refuse a stress test without a command.
    own = [leaf for leaf in LEAVES if isinstance(leaf.default, list | dict) and leaf.name != "command"]
    values = of_leaves(own)
    for switch in EVERYTHING:
        place, _, name = switch.rpartition(".")
        inner = values
        for part in place.split("."):
            inner = inner.setdefault(part, {})
        inner[name] = True
    values["autoscaling"]["keda"]["target"] = {"name": "a"}
    values["routing"] |= {"default": "slack", "secret": "alerting"}
    kinds = {made["kind"] for made in chart.render(values)}
    assert {"DaemonSet", "StatefulSet", "ScaledObject", "WorkflowTemplate", "GrafanaDashboard"} <= kinds


@pytest.mark.parametrize("helm", HELMS)
def test_other_values_must_not_be_null(helm: str, bare: Path) -> None:
    needed = [leaf for leaf in LEAVES if not isinstance(leaf.default, list | dict) and leaf.path[1:]]
    assert len(needed) > 100
    missed = refusals(helm, bare, of_leaves(needed))
    assert {path for path, _ in missed} == {".".join(leaf.path[:-1]) for leaf in needed}
    said = " ".join(words for _, words in missed)
    assert [leaf.dotted for leaf in needed if not re.search(rf"\b{leaf.name}\b", said)] == []


@pytest.mark.parametrize("helm", HELMS)
def test_a_group_must_not_be_null(helm: str, bare: Path) -> None:
    ((path, words),) = refusals(helm, bare, {"image": None})
    assert (path, "image" in words) == ("", True)


@pytest.mark.parametrize("archive", sorted(RELEASES.glob("*.tgz")), ids=lambda file: file.stem)
def test_values_of_an_older_release_are_accepted(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        file = packed.extractfile("gputally/values.yaml")
        assert file is not None
        older = yaml.safe_load(file)
    assert [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(older)] == []


def test_the_defaults_are_valid_and_templates_have_the_same() -> None:
    defaults = yaml.safe_load(SOURCE)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(defaults)] == []
    assert yaml.safe_load((CHART / "files/values.yaml").read_text()) == defaults


def test_all_defaults_of_the_rules_are_valid_values() -> None:
    rules = yaml.safe_load((CHART / "files/rules.yaml").read_text())
    assert [*jsonschema.Draft7Validator(SCHEMA).iter_errors({"rules": rules})] == []


def test_every_definition_is_used() -> None:
    written = json.dumps(SCHEMA)
    assert [name for name in SCHEMA["definitions"] if f'"#/definitions/{name}"' not in written] == []


@pytest.mark.parametrize(
    ("names", "choices"),
    [
        (("exporter.reader", "argoWorkflows.sidecar.reader"), READERS),
        (("exporter.compat",), PROFILES),
        (("exporter.logLevel",), LOG_LEVELS),
        (("exporter.logFormat",), LOG_FORMATS),
        (("routing.namespaces",), RECEIVERS),
        (("routing.critical", "routing.default"), ("", *RECEIVERS)),
        (("dashboards.include",), DASHBOARDS),
    ],
)
def test_enumerations_match_the_code(names: tuple[str, ...], choices: Any) -> None:
    schemas = {leaf.dotted: leaf.schema for leaf in LEAVES}
    for name in names:
        schema = schemas[name]
        found = schema.get("enum") or (schema.get("items") or schema["additionalProperties"])["enum"]
        assert sorted(found) == sorted(choices), name


KUBERNETES = {
    "core.v1.Affinity": DEFINITIONS["affinity"],
    "core.v1.NodeAffinity": DEFINITIONS["affinity"]["properties"]["nodeAffinity"],
    "core.v1.PodAntiAffinity": DEFINITIONS["affinity"]["properties"]["podAntiAffinity"],
    "core.v1.PodAffinityTerm": DEFINITIONS["podAffinityTerm"],
    "core.v1.EnvVar": DEFINITIONS["env"]["items"],
    "core.v1.EnvVarSource": DEFINITIONS["env"]["items"]["properties"]["valueFrom"],
    "core.v1.ResourceRequirements": DEFINITIONS["resources"],
    "core.v1.Toleration": DEFINITIONS["tolerations"]["items"],
    "core.v1.Volume": DEFINITIONS["volumes"]["items"],
    "core.v1.VolumeMount": DEFINITIONS["volumeMounts"]["items"],
    "networking.v1.NetworkPolicyPeer": DEFINITIONS["networkPolicyPeers"]["items"],
}


def test_parts_of_a_pod_have_the_keys_of_kubernetes() -> None:
    known = json.loads(Path(programs.path("kubernetes-openapi-1.34")).read_text())["definitions"]
    for kind, ours in KUBERNETES.items():
        theirs = known[f"io.k8s.api.{kind}"]
        assert sorted(ours["properties"]) == sorted(theirs["properties"]), kind
        assert sorted(ours.get("required", [])) == sorted(theirs.get("required", [])), kind
