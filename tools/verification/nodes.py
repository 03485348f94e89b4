"""Checks that the exporter runs on the nodes with GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputally.commands import FAILURE, OK, WARNING, Finding, some
from tools.verification.kubectl import Object
from tools.verification.release import labels_of, name_of
from tools.verification.selecting import in_words, node_terms, runs_on, untolerated

_GPUS = ("nvidia.com/", "amd.com/gpu")


def exporter_nodes(daemonset: Object, nodes: Sequence[Object]) -> Iterator[Finding]:
    """Findings about the DaemonSet's pods and about GPU nodes without one."""
    status = daemonset.get("status") or {}
    desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    pod = daemonset["spec"]["template"]["spec"]
    left_out = list(_left_out(pod, nodes))
    if not desired:
        yield from left_out or [_no_node(pod, nodes)]
        return
    yield from left_out
    if ready < desired:
        yield Finding(FAILURE, "exporter pods", f"{ready} of {desired} are ready")
    else:
        yield Finding(OK, "exporter pods", f"on {desired} nodes, all ready")


def _left_out(pod: Mapping[str, Any], nodes: Sequence[Object]) -> Iterator[Finding]:
    """A finding for each reason why the pod does not run on a node with GPUs."""
    unlabelled: dict[str, list[str]] = {}
    tainted: dict[str, list[str]] = {}
    for node in nodes:
        vendor = _vendor(node)
        if not vendor:
            continue
        if not runs_on(pod, labels_of(node), name_of(node)):
            unlabelled.setdefault(_wanted_label(pod, labels_of(node), vendor), []).append(name_of(node))
        for taint in untolerated(pod, node["spec"].get("taints") or ()):
            tainted.setdefault(taint["key"], []).append(name_of(node))
    for label, names in sorted(unlabelled.items()):
        yield Finding(
            FAILURE,
            "gpu nodes",
            f"{some(names)}: GPUs, but no label that the exporter selects",
            f"kubectl label node {names[0]} {label}, or exporter.gpuNodesOnly=false",
        )
    for key, names in sorted(tainted.items()):
        yield Finding(
            FAILURE,
            "gpu nodes",
            f"{some(names)}: GPUs, and the taint {key}, which the exporter does not tolerate",
            f"exporter.tolerations: [{{key: {key}, operator: Exists}}], in addition to the present ones",
        )


def _no_node(pod: Mapping[str, Any], nodes: Sequence[Object]) -> Finding:
    wanted = {in_words(one) for term in node_terms(pod) for one in term.get("matchExpressions") or ()}
    wanted |= {f"{key}={value}" for key, value in (pod.get("nodeSelector") or {}).items()}
    return Finding(
        WARNING if not nodes else FAILURE,
        "gpu nodes",
        f"none of {len(nodes)} nodes has a GPU as a resource or a label that says so",
        "install the GPU operator or node feature discovery; or label by hand, as in "
        f"kubectl label node NODE nvidia.com/gpu.present=true. The exporter looks for {some(wanted, 4)}",
    )


def _vendor(node: Object) -> str:
    """The vendor of the GPUs that a node offers to pods; "" for none."""
    for resource, amount in (node.get("status", {}).get("capacity") or {}).items():
        if resource.startswith(_GPUS) and str(amount) != "0":
            return str(resource.partition(".")[0])
    return ""


def _wanted_label(pod: Mapping[str, Any], labels: Mapping[str, str], vendor: str) -> str:
    """A label for the node with which the pod would run there."""
    for key, value in (pod.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"{key}={value}"
    choices = [term["matchExpressions"][0] for term in node_terms(pod) if term.get("matchExpressions")]
    fitting = [one for one in choices if vendor in one["key"] and one.get("values") == ["true"]]
    chosen = (fitting or choices)[0]
    return f"{chosen['key']}={(chosen.get('values') or ['true'])[0]}"
