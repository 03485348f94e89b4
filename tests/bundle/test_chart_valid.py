"""The rendered objects are valid, for every preset and every pair of options."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.bundle import chart, kubernetes_schemas
from tests.bundle.chart import CLUSTER_SCOPED, Object, merged, objects, pods, render
from tests.bundle.chart_combinations import (
    CASES,
    EXTRA,
    FEW_CASES,
    REFUSED,
    SWITCHES,
    Case,
    of_options,
)
from tests.bundle.pairwise import Options

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
few_cases = pytest.mark.parametrize("case", FEW_CASES.values(), ids=FEW_CASES)

CONFIGMAP_LIMIT = 1024 * 1024
# 53 characters, Helm's limit. It does not contain the chart's name, so the chart appends it.
LONG_NAME = "a-release-with-the-longest-name-that-helm-still-takes"
LONG_NAMESPACE = "gpu-monitoring-of-this-release"
# A label of a StatefulSet's pods contains its name and a hash.
NAME_LENGTHS = {"StatefulSet": 52, "CronJob": 52}
STANDARD_LABELS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
SELECTOR_LABELS = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
OPENSHIFT_CONSOLE = "openshift-config-managed"


def ours(rendered: list[Object]) -> list[Object]:
    """Without `extraObjects`."""
    return [made for made in rendered if made["metadata"].get("labels") != EXTRA]


def identity(made: Object) -> tuple[str, str, str, str]:
    group, _, _ = made["apiVersion"].rpartition("/")
    return group, made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"]


def label_values(rendered: list[Object]) -> Iterator[str]:
    for made in rendered:
        yield from made["metadata"].get("labels", {}).values()
    for pod in pods(rendered):
        yield from pod.labels.values()


def has_teams_receiver(made: Object) -> bool:
    """Whether it has a receiver for Microsoft Teams, which the older operator does not support."""
    receivers = made["spec"]["receivers"] if made["kind"] == "AlertmanagerConfig" else []
    return any("msteamsv2Configs" in receiver for receiver in receivers)


def test_there_is_a_preset_for_each_platform() -> None:
    platforms = {"gke", "eks", "aks", "k3s", "openshift", "amd", "argo", "minimal", "gpu-operator"}
    assert platforms <= chart.PRESETS.keys()


def test_every_boolean_value_occurs_as_true_and_false_in_the_combinations() -> None:
    defaults = booleans(yaml.safe_load((chart.CHART / "values.yaml").read_text()))
    switched = [booleans(values) for options in SWITCHES.values() for values in options.values()]
    assert [
        name
        for name, default in defaults.items()
        if not any(s.get(name, default) != default for s in switched)
    ] == []


def booleans(values: Mapping[str, Any], above: str = "") -> dict[str, bool]:
    """Path -> value of all booleans."""
    found: dict[str, bool] = {}
    for key, value in values.items():
        if isinstance(value, bool):
            found[above + key] = value
        elif isinstance(value, Mapping):
            found |= booleans(value, f"{above}{key}.")
    return found


@every_case
def test_helm_lint_finds_nothing(case: Case) -> None:
    assert chart.lint(**case.arguments) == ""


@pytest.mark.parametrize("cluster", kubernetes_schemas.CLUSTERS)
def test_every_kind_and_field_is_in_the_schemas_of_the_cluster(cluster: str) -> None:
    rendered = [made for case in CASES.values() for made in render(**case.arguments)]
    if cluster == "1.25":
        rendered = [made for made in rendered if not has_teams_receiver(made)]
    assert kubernetes_schemas.faults(rendered, cluster) == []


@pytest.mark.parametrize("cluster", kubernetes_schemas.CLUSTERS)
@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        (lambda made: made["spec"].update(updateStrategi={}), "'updateStrategi' not allowed"),
        (lambda made: made["metadata"].update(label={}), "'label' not allowed"),
        (lambda made: made["spec"].update(minReadySeconds="5"), "got string, want integer"),
        (lambda made: made["spec"].update(revisionHistoryLimit=None), "got null, want integer"),
        (lambda made: made["spec"].pop("selector"), "missing property 'selector'"),
        (lambda made: made.update(kind="DemonSet"), "could not find schema for DemonSet"),
    ],
)
def test_a_fault_is_found(cluster: str, spoil: Callable[[Object], None], reported: str) -> None:
    (made,) = yaml.safe_load_all(yaml.safe_dump_all(objects("DaemonSet")))
    spoil(made)
    (fault,) = kubernetes_schemas.faults([made], cluster)
    assert reported in fault


def on_an_upgrade(case: Case) -> list[str]:
    """The flags of an upgrade in a cluster that knows all kinds of the rendered objects."""
    known = sorted({made["apiVersion"] for made in render(**case.arguments)})
    return ["--is-upgrade", *(f"--api-versions={version}" for version in known)]


@every_case
def test_helm_4_renders_the_same_objects_as_helm_3_in_any_cluster(case: Case) -> None:
    rendered = render(**case.arguments)
    again = render(**case.arguments, helm="helm-4", arguments=on_an_upgrade(case))
    old, new = ({identity(made): made for made in found} for found in (rendered, again))
    assert [made for made in old.keys() | new.keys() if old.get(made) != new.get(made)] == []


@every_case
def test_the_rendered_text_is_deterministic_and_independent_of_the_cluster(case: Case) -> None:
    assert chart.text(**case.arguments, arguments=on_an_upgrade(case)) == chart.text(**case.arguments)


@every_case
def test_config_maps_and_the_release_are_small_enough(case: Case) -> None:
    for made in objects("ConfigMap", **case.arguments):
        size = sum(len(key) + len(value.encode()) for key, value in made.get("data", {}).items())
        assert size < CONFIGMAP_LIMIT, made["metadata"]["name"]
    assert chart.stored_size(**case.arguments) < CONFIGMAP_LIMIT


@few_cases
@pytest.mark.parametrize("name", ["gputally", LONG_NAME])
def test_names_are_unique_and_short_enough(case: Case, name: str) -> None:
    rendered = render(**case.arguments, name=name)
    twice = [made for made, count in Counter(map(identity, rendered)).items() if count > 1]
    assert twice == []
    for made in rendered:
        kind, own_name = made["kind"], made["metadata"]["name"]
        limit = 253 if kind in CLUSTER_SCOPED else NAME_LENGTHS.get(kind, 63)
        assert len(own_name) <= limit, (kind, own_name)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", own_name), (kind, own_name)
    for value in label_values(rendered):
        assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value), value


@few_cases
def test_every_object_has_the_right_namespace(case: Case) -> None:
    expected = case.given.get("namespaceOverride") or LONG_NAMESPACE
    named = {*case.named, OPENSHIFT_CONSOLE}
    for made in ours(render(**case.arguments, namespace=LONG_NAMESPACE)):
        namespace = made["metadata"].get("namespace")
        if made["kind"] in CLUSTER_SCOPED:
            assert namespace is None, identity(made)
        else:
            assert namespace == expected or namespace in named, identity(made)


@few_cases
def test_with_namespace_override_no_object_refers_to_the_releases_namespace(case: Case) -> None:
    elsewhere = {**case.values, "namespaceOverride": "somewhere-else"}
    shown = chart.text(elsewhere, files=case.files, namespace="namespace-of-the-release")
    assert "namespace-of-the-release" not in shown


@few_cases
def test_two_releases_do_not_collide(case: Case) -> None:
    if case.given.get("fullnameOverride"):
        return  # both releases have the same name
    one, beside, elsewhere = (
        {
            identity(made)
            for made in ours(render(**case.arguments, name=name, namespace=namespace))
            if made["metadata"]["name"] not in case.named
        }
        # Of these the other tests have renders, too.
        for name, namespace in (
            ("gputally", "monitoring"),
            (LONG_NAME, "monitoring"),
            ("gputally", LONG_NAMESPACE),
        )
    )
    assert one & beside == set()
    if not case.given.get("namespaceOverride"):
        # With namespaceOverride both releases are in one namespace.
        assert {made for made in one & elsewhere if made[2] not in case.named} == set()


@every_case
def test_every_object_has_the_standard_labels(case: Case) -> None:
    for made in ours(render(**case.arguments)):
        labels = made["metadata"]["labels"]
        assert labels.keys() >= STANDARD_LABELS | case.given.get("commonLabels", {}).keys(), identity(made)
        assert (
            made["metadata"].get("annotations", {}).keys() >= case.given.get("commonAnnotations", {}).keys()
        )
        assert labels["app.kubernetes.io/instance"] == "gputally"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


@every_case
def test_selectors_contain_no_label_that_an_upgrade_changes(case: Case) -> None:
    for made in ours(render(**case.arguments)):
        if made["kind"] in {"DaemonSet", "Deployment", "StatefulSet"}:
            assert made["spec"]["selector"] == {
                "matchLabels": {name: made["metadata"]["labels"][name] for name in SELECTOR_LABELS}
            }


@pytest.mark.parametrize("together", REFUSED, ids=lambda options: " ".join(map("=".join, sorted(options))))
def test_options_that_the_combinations_leave_out_are_refused(together: Options) -> None:
    something = {"dashboards": {"configMaps": {"enabled": True}}}
    line = chart.refusal(merged(something, of_options(dict(together))))
    assert line.startswith(f"{REFUSED[together]}: ")
