"""Who reaches whom through NetworkPolicies, as the API defines them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bundle.chart import Object, Pod


@dataclass(frozen=True, slots=True)
class Peer:
    """What a policy sees of a pod."""

    labels: Mapping[str, str]
    namespace: str
    ports: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: Pod) -> "Peer":
        ports = [port for container in pod.containers for port in container.get("ports", ())]
        namespace = pod.owner["metadata"]["namespace"]
        return cls(pod.labels, namespace, {port["name"]: port["containerPort"] for port in ports})


def reaches(client: Peer, server: Peer, port: str, rendered: Iterable[Object]) -> bool:
    """Whether the policies let one pod connect to a port of another."""
    policies = [made for made in rendered if made["kind"] == "NetworkPolicy"]
    number = server.ports[port]
    leaves = _lets(policies, "Egress", client, server, {number, port})
    return leaves and _lets(policies, "Ingress", server, client, {number, port})


def selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector takes something with these labels."""
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    among = [(rule["key"], rule["operator"], rule["values"]) for rule in selector.get("matchExpressions", ())]
    assert all(operator == "In" for _, operator, _ in among), "write the others when a policy has them"
    return wanted.items() <= labels.items() and all(labels.get(key) in values for key, _, values in among)


def _lets(policies: Iterable[Object], direction: str, held: Peer, other: Peer, port: set[str | int]) -> bool:
    """Whether a pod that policies may hold back is let through to another, or that one to it."""
    about = [
        policy["spec"]
        for policy in policies
        if direction in policy["spec"]["policyTypes"]
        and policy["metadata"]["namespace"] == held.namespace
        and selected(policy["spec"]["podSelector"], held.labels)
    ]
    rules = [rule for spec in about for rule in spec.get(direction.lower(), ())]
    peers = "from" if direction == "Ingress" else "to"
    return not about or any(
        (not rule.get("ports") or any(given["port"] in port for given in rule["ports"]))
        and (not rule.get(peers) or any(_meant(peer, other, held.namespace) for peer in rule[peers]))
        for rule in rules
    )


def _meant(peer: Mapping[str, Any], pod: Peer, namespace: str) -> bool:
    if "namespaceSelector" in peer:
        inside = selected(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace})
    else:
        inside = pod.namespace == namespace
    return inside and selected(peer.get("podSelector", {}), pod.labels)
