"""Kubernetes selectors: labels, and nodes for pods."""

from collections.abc import Mapping, Sequence
from typing import Any

KubernetesLabels = Mapping[str, str]
_KEPT_AWAY = ("NoSchedule", "NoExecute")
# Taints of nodes with problems, which the DaemonSet controller tolerates for its pods.
_OF_TROUBLE = "node.kubernetes.io/"


def selects(selector: Mapping[str, Any] | None, labels: KubernetesLabels) -> bool:
    """As a LabelSelector: an empty one selects everything, None selects nothing."""
    if selector is None:
        return False
    return not unmet(selector, labels)


def unmet(selector: Mapping[str, Any], labels: KubernetesLabels) -> list[str]:
    """The requirements of the selector that the labels do not meet, as text."""
    wanted = selector.get("matchLabels") or {}
    lacking = [f"{key}={value}" for key, value in sorted(wanted.items()) if labels.get(key) != value]
    return lacking + [
        in_words(expression)
        for expression in selector.get("matchExpressions") or ()
        if not _meets(expression, labels)
    ]


def in_words(expression: Mapping[str, Any]) -> str:
    """The selector as kubectl prints it."""
    key, values = expression["key"], ", ".join(expression.get("values") or ())
    match expression["operator"]:
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case "In" if len(expression["values"]) == 1:
            return f"{key}={values}"
        case operator:
            return f"{key} {operator.lower()} ({values})"


def runs_on(pod: Mapping[str, Any], labels: KubernetesLabels, name: str = "") -> bool:
    """Whether the node selector and the affinity of a pod admit a node with these labels."""
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    terms = node_terms(pod)
    return not terms or any(_term_holds(term, labels, name) for term in terms)


def node_terms(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The terms, of which a node has to match one."""
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: Sequence[Mapping[str, Any]] = required.get("nodeSelectorTerms") or ()
    return terms


def untolerated(pod: Mapping[str, Any], taints: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The taints of a node that a DaemonSet's pod does not tolerate."""
    return [
        taint
        for taint in taints
        if taint["effect"] in _KEPT_AWAY
        and not taint["key"].startswith(_OF_TROUBLE)
        and not any(_tolerates(one, taint) for one in pod.get("tolerations") or ())
    ]


def _term_holds(term: Mapping[str, Any], labels: KubernetesLabels, name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return (
        bool(expressions or fields)
        and all(_meets(one, labels) for one in expressions)
        and all(_meets(one, {"metadata.name": name}) for one in fields)
    )


def _meets(expression: Mapping[str, Any], labels: KubernetesLabels) -> bool:
    value = labels.get(expression["key"])
    values = list(expression.get("values") or [])
    match expression["operator"]:
        case "In" | "NotIn" as operator:
            return (value in values) is (operator == "In")
        case "Exists" | "DoesNotExist" as operator:
            return (value is not None) is (operator == "Exists")
        case "Gt" | "Lt" as operator if value is not None and value.isdigit():
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
