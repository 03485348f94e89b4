"""Selectors, affinities and taints, as Kubernetes reads them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.verification.selecting import in_words, runs_on, selects, unmet, untolerated

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def test_an_empty_selector_selects_everything_and_none_selects_nothing() -> None:
    assert selects({}, {})
    assert selects({}, {"a": "x"})
    assert not selects(None, {"a": "x"})


@given(LABELS, LABELS)
def test_all_match_labels_are_required(wanted: dict[str, str], labels: dict[str, str]) -> None:
    assert selects({"matchLabels": wanted}, labels) is (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        (term("a", "In", "x", "y"), ["x"]),
        (term("a", "NotIn", "x", "y"), ["z", None]),
        (term("a", "Exists"), ["x", "z"]),
        (term("a", "DoesNotExist"), [None]),
        (term("n", "Gt", "4"), []),
        (term("a", "Gt", "4"), ["5"]),
        (term("a", "Lt", "5"), ["4"]),
        (term("a", "Near", "5"), []),
    ],
)
def test_match_expressions(expression: dict[str, Any], taken: list[str | None]) -> None:
    selector = {"matchExpressions": [expression]}
    for value in ("x", "z", "4", "5", None):
        expected = value in taken or (expression["operator"] in ("NotIn", "Exists") and value in ("4", "5"))
        assert selects(selector, {} if value is None else {"a": value}) is expected, value


def test_missing_labels_have_the_format_of_kubectl() -> None:
    selector = {
        "matchLabels": {"release": "kps", "a": "x"},
        "matchExpressions": [term("b", "In", "y"), term("c", "In", "y", "z"), term("d", "DoesNotExist")],
    }
    assert unmet(selector, {"a": "x", "d": ""}) == ["release=kps", "b=y", "c in (y, z)", "!d"]
    assert in_words(term("e", "Exists")) == "e"


def pod(*terms: dict[str, Any], **more: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"affinity": affinity if terms else None, **more}


def test_one_term_of_an_affinity_is_enough() -> None:
    either = pod({"matchExpressions": [term("a", "Exists")]}, {"matchExpressions": [term("b", "In", "x")]})
    assert runs_on(either, {"a": "z"})
    assert runs_on(either, {"b": "x"})
    assert not runs_on(either, {"b": "y"})
    assert runs_on(pod(), {})
    # As the scheduler has it: an empty term selects no node.
    assert not runs_on(pod({}), {"a": "z"})


def test_the_node_selector_is_required_as_well() -> None:
    both = pod({"matchExpressions": [term("a", "Exists")]}, nodeSelector={"pool": "gpu"})
    assert not runs_on(both, {"a": "x"})
    assert runs_on(both, {"a": "x", "pool": "gpu"})


def test_a_node_can_be_required_by_name() -> None:
    named = pod({"matchFields": [term("metadata.name", "In", "n1")]})
    assert runs_on(named, {}, "n1")
    assert not runs_on(named, {}, "n2")


TAINT = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "sku", "operator": "Exists"}, True),
        ({"key": "sku", "operator": "Equal", "value": "gpu"}, True),
        ({"key": "sku", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "sku", "value": "cpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "sku", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], *, tolerated: bool) -> None:
    assert untolerated({"tolerations": [toleration]}, [TAINT]) == ([] if tolerated else [TAINT])


def test_taints_that_do_not_affect_a_daemonset() -> None:
    soft = {"key": "a", "effect": "PreferNoSchedule"}
    trouble = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    assert untolerated({}, [soft, trouble]) == []
