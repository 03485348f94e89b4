"""GPU nodes that have no exporter, and what they lack."""

from typing import Any

from gputally.commands import FAILURE, OK, WARNING, Finding
from tests.support.texts import numbers
from tools.verification.nodes import exporter_nodes


def daemonset(desired: int, ready: int = 0, *keys: str, **pod: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]} for key in keys]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"template": {"spec": {"affinity": {"nodeAffinity": required if terms else {}}, **pod}}}
    return {"spec": spec, "status": {"desiredNumberScheduled": desired, "numberReady": ready}}


def node(name: str, labels: dict[str, str] | None = None, **capacity: str) -> dict[str, Any]:
    amounts = {key.replace("_", ".", 1).replace("_", "/"): amount for key, amount in capacity.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {},
        "status": {"capacity": {"cpu": "8", **amounts}},
    }


def look(made: dict[str, Any], *nodes: dict[str, Any]) -> list[Finding]:
    return list(exporter_nodes(made, nodes))


def test_ready_pods_are_ok() -> None:
    (found,) = look(daemonset(2, 2, "a"), node("n1", {"a": "true"}, nvidia_com_gpu="8"), node("cpu"))
    assert (found.level, numbers(found.text)) == (OK, [2])


def test_the_fix_is_the_label_of_the_vendor() -> None:
    made = daemonset(0, 0, "x", "nvidia.com/gpu.present", "feature/amd-gpu")
    first, second = look(made, node("n1", nvidia_com_gpu="8"), node("n2", amd_com_gpu="8"))
    assert {first.fix.partition(",")[0], second.fix.partition(",")[0]} == {
        "kubectl label node n1 nvidia.com/gpu.present=true",
        "kubectl label node n2 feature/amd-gpu=true",
    }


def test_without_a_label_of_the_vendor_the_first_one_is_used() -> None:
    (found,) = look(daemonset(0, 0, "x", "y"), node("n1", nvidia_com_gpu="8"))
    assert "kubectl label node n1 x=true" in found.fix


def test_the_node_selector_takes_precedence() -> None:
    made = daemonset(0, 0, "x", nodeSelector={"pool": "gpu"})
    (found,) = look(made, node("n1", {"x": "true"}, nvidia_com_gpu="8"))
    assert "kubectl label node n1 pool=gpu" in found.fix


def test_nodes_with_the_same_problem_share_a_line() -> None:
    (found, _) = look(daemonset(1, 1, "x"), *(node(f"n{number}", nvidia_com_gpu="1") for number in range(7)))
    assert found.text.startswith("n0, n1, n2, n3, n4 and 2 more: ")


def test_nodes_without_gpus_are_not_reported() -> None:
    (found,) = look(daemonset(1, 1, "x"), node("n1", nvidia_com_gpu="0"), node("n2"))
    assert found.level == OK


def test_without_a_gpu_node_the_labels_are_listed() -> None:
    (found,) = look(daemonset(0, 0, "x", nodeSelector={"pool": "gpu"}), node("n1"), node("n2"))
    assert (found.level, "none of 2 nodes" in found.text) == (FAILURE, True)
    assert found.fix.endswith("looks for pool=gpu, x=true")


def test_a_cluster_scaled_to_zero_does_not_fail() -> None:
    (found,) = look(daemonset(0, 0, "x"))
    assert found.level == WARNING
