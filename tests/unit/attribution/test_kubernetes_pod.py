"""From a pod object to PodInfo: names, containers, GPU requests, labels, and the UID that cgroups have."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.kubernetes_pod import AllowedLabels, pod_info
from gputally.model import PodInfo

NOTHING = AllowedLabels()
UID = "c0a6d5b5-6d7e-4a0c-9f7e-6d0e1d1f9a11"


def container_id(digit: str) -> str:
    return digit * 64


def facts(pod: object, allowed: AllowedLabels = NOTHING) -> PodInfo:
    found = pod_info(pod, allowed)
    assert found is not None
    return found


def pod(**parts: Any) -> dict[str, Any]:
    metadata = {"namespace": "team-a", "name": "train-0", "uid": UID, **parts.pop("metadata", {})}
    spec = {"nodeName": "node-1", "containers": [{"name": "main"}], **parts.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **parts}


def asking(resources: dict[str, Any], field: str = "containers") -> dict[str, Any]:
    return pod(spec={field: [{"name": "main", "resources": resources}]})


def test_a_running_pod_has_all_its_containers() -> None:
    running = pod(
        spec={
            "containers": [{"name": "main"}, {"name": "proxy"}],
            "initContainers": [{"name": "fetch"}],
            "ephemeralContainers": [{"name": "debugger-x7k2p"}],
        },
        status={
            "phase": "Running",
            "startTime": "2026-11-18T12:00:00Z",
            "containerStatuses": [
                {"name": "main", "containerID": f"containerd://{container_id('a')}"},
                {"name": "proxy", "containerID": f"cri-o://{container_id('b')}"},
            ],
            "initContainerStatuses": [{"name": "fetch", "containerID": f"docker://{container_id('c')}"}],
            "ephemeralContainerStatuses": [
                {"name": "debugger-x7k2p", "containerID": f"containerd://{container_id('d')}"}
            ],
        },
    )
    assert facts(running) == PodInfo(
        namespace="team-a",
        pod="train-0",
        pod_uid=UID,
        containers={
            container_id("a"): "main",
            container_id("b"): "proxy",
            container_id("c"): "fetch",
            container_id("d"): "debugger-x7k2p",
        },
        container_names=("main", "proxy", "fetch", "debugger-x7k2p"),
        node="node-1",
        workload="Pod/train-0",
        requested=False,
        labels=(),
        phase="Running",
        started_at_seconds=1795003200.0,
    )


def test_the_requests_in_claims_are_known_by_the_names_of_the_claims() -> None:
    claiming = pod(
        spec={
            "containers": [
                {"name": "main", "resources": {"claims": [{"name": "own", "request": "gpu"}]}},
                {"name": "helper", "resources": {"claims": [{"name": "shared", "request": "small"}]}},
                {
                    "name": "whole",
                    "resources": {"claims": [{"name": "shared"}, {"name": "x", "request": "y"}]},
                },
            ],
            "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "one-gpu"},
                {"name": "shared", "resourceClaimName": "team-gpus"},
            ],
        },
        status={"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "train-0-own-x7k2p"}]},
    )
    assert facts(claiming).claim_requests == (("team-gpus", "small"), ("train-0-own-x7k2p", "gpu"))
    assert facts(claiming).requested is True


def test_a_restarted_container_keeps_its_previous_id() -> None:
    restarted = pod(
        status={
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": f"containerd://{container_id('b')}",
                    "lastState": {"terminated": {"containerID": f"containerd://{container_id('a')}"}},
                }
            ]
        }
    )
    assert facts(restarted).containers == {container_id("a"): "main", container_id("b"): "main"}


@pytest.mark.parametrize("said", ["", "containerd://", "containerd://xyz", container_id("a"), None, 7])
def test_an_invalid_container_id_names_no_container(said: object) -> None:
    assert facts(pod(status={"containerStatuses": [{"name": "main", "containerID": said}]})).containers == {}


def test_a_static_pod_has_the_uid_of_its_configuration_as_in_its_cgroup() -> None:
    mirror = pod(
        metadata={
            "name": "etcd-node-1",
            "annotations": {
                "kubernetes.io/config.hash": "7260904bbd08e72e4dff95d9fccd2ee8",
                "kubernetes.io/config.mirror": "7260904bbd08e72e4dff95d9fccd2ee8",
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n", "controller": True}
            ],
        }
    )
    assert (facts(mirror).pod_uid, facts(mirror).workload) == (
        "7260904bbd08e72e4dff95d9fccd2ee8",
        "Pod/etcd-node-1",
    )


def test_a_static_pod_read_from_the_kubelet_has_no_mirror_annotation() -> None:
    annotations = {"kubernetes.io/config.hash": "0" * 32, "kubernetes.io/config.source": "file"}
    assert facts(pod(metadata={"annotations": annotations})).pod_uid == "0" * 32


@pytest.mark.parametrize(
    "annotations",
    [
        {"kubernetes.io/config.hash": "0" * 32},
        {"kubernetes.io/config.hash": "0" * 32, "kubernetes.io/config.source": "api"},
        {"kubernetes.io/config.mirror": "../../etc"},
    ],
)
def test_a_copied_hash_annotation_does_not_replace_the_uid(annotations: dict[str, str]) -> None:
    assert facts(pod(metadata={"annotations": annotations})).pod_uid == UID


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "aliyun.com/gpu-mem",
        "volcano.sh/vgpu-number",
    ],
)
@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_request_for_any_gpu_resource_is_recognised(resource: str, kind: str, field: str) -> None:
    assert facts(asking({kind: {"cpu": "1", resource: "1"}}, field)).requested is True


@pytest.mark.parametrize("zero", ["0", 0, "0.0", "0Gi", "0e3"])
def test_a_request_for_zero_gpus_is_no_request(zero: object) -> None:
    assert facts(asking({"limits": {"nvidia.com/gpu": zero}})).requested is False


@pytest.mark.parametrize("some", ["1", 8, "10", "0.5", "1k", "05", "100m"])
def test_any_other_quantity_is_a_request(some: object) -> None:
    assert facts(asking({"limits": {"nvidia.com/gpu": some}})).requested is True


@pytest.mark.parametrize("resource", ["cpu", "amd.com/xilinx_u30", "rdma/hca", "example.nvidia.com/gpu"])
def test_other_resources_are_not_gpus(resource: str) -> None:
    assert facts(asking({"limits": {resource: "1"}})).requested is False


def test_a_resource_claim_is_a_request() -> None:
    claiming = pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]})
    assert facts(claiming).requested is True


def test_without_a_specification_the_request_is_unknown() -> None:
    assert facts({"metadata": {"namespace": "a", "name": "b"}}).requested is None


LABELLED = {
    "metadata": {
        "labels": {
            "team": "vision",
            "app.kubernetes.io/name": "train",
            "app.kubernetes.io/part-of": "x",
            "z": "1",
        },
        "annotations": {"cost-center": "4711", "team": "from the annotation", "secret": "hunter2"},
    }
}


def test_no_label_is_exported_by_default() -> None:
    assert facts(pod(**LABELLED)).labels == ()


def test_allowed_labels_and_annotations_are_sorted_full_names_first_and_labels_take_precedence() -> None:
    allowed = AllowedLabels(
        labels=("team", "app.kubernetes.io/*", "absent"), annotations=("cost-center", "team")
    )
    assert facts(pod(**LABELLED), allowed).labels == (
        ("cost-center", "4711"),
        ("team", "vision"),
        ("app.kubernetes.io/name", "train"),
        ("app.kubernetes.io/part-of", "x"),
    )


def test_a_tenant_cannot_displace_a_label_that_is_allowed_by_its_full_name() -> None:
    own = {f"a{n:03}": "x" for n in range(500)} | {"team": "vision", "example-com/team": "other"}
    shown = facts(pod(metadata={"labels": own}), AllowedLabels(labels=("*", "team"))).labels
    assert len(shown) == 32
    assert shown[0] == ("team", "vision")


def test_an_asterisk_allows_all_labels_but_no_annotation() -> None:
    assert [name for name, _ in facts(pod(**LABELLED), AllowedLabels(labels=("*",))).labels] == [
        "app.kubernetes.io/name",
        "app.kubernetes.io/part-of",
        "team",
        "z",
    ]


def test_long_annotations_are_truncated_and_the_number_of_labels_is_limited() -> None:
    many = pod(metadata={"annotations": {f"a{n:03}": "x" * 10_000 for n in range(500)}})
    shown = facts(many, AllowedLabels(annotations=("a*",))).labels
    assert len(shown) == 32
    assert {len(value) for _, value in shown} == {256}
    assert shown[0][1].endswith("x…")


@pytest.mark.parametrize(
    "nobody", [None, [], "pod", 3, {}, {"metadata": {"name": "x"}}, {"metadata": {"namespace": "x"}}]
)
def test_an_object_without_identity_is_ignored(nobody: object) -> None:
    assert pod_info(nobody, NOTHING) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def maybe(shape: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(shape, shape, json_values)


names = maybe(st.text(string.ascii_lowercase + string.digits + "-./_é", max_size=12))
quantities = maybe(st.sampled_from(["0", "1", "0.5", "1Gi", "", "-1", 0, 1]))
owners = st.fixed_dictionaries(
    {},
    optional={
        "kind": maybe(st.sampled_from(["ReplicaSet", "Job", "StatefulSet", "Node", "RayCluster"])),
        "name": maybe(st.sampled_from(["a-29999999", "a-hash", "-hash", "a"])),
        "apiVersion": maybe(st.sampled_from(["apps/v1", "batch/v1", "v1", "/"])),
        "controller": maybe(st.booleans()),
    },
)
texts = st.dictionaries(
    st.sampled_from(
        ["pod-template-hash", "notebook-name", "ray.io/cluster", "kubernetes.io/config.mirror", "x"]
    ),
    names,
)
containers = maybe(
    st.lists(
        maybe(
            st.fixed_dictionaries(
                {"name": names},
                optional={
                    "containerID": names | st.just("containerd://" + "a" * 64),
                    "lastState": json_values,
                    "resources": maybe(
                        st.fixed_dictionaries(
                            {
                                "limits": maybe(
                                    st.dictionaries(st.just("nvidia.com/gpu") | names.map(str), quantities)
                                )
                            }
                        )
                    ),
                },
            )
        ),
        max_size=3,
    )
)
pods = st.fixed_dictionaries(
    {
        "metadata": maybe(
            st.fixed_dictionaries(
                {"namespace": names, "name": names},
                optional={
                    "uid": names,
                    "labels": maybe(texts),
                    "annotations": maybe(texts),
                    "ownerReferences": maybe(st.lists(maybe(owners), max_size=2)),
                    "creationTimestamp": maybe(
                        st.sampled_from(["2026-11-16T06:00:00Z", "9999-12-31", "0001-01-01"])
                    ),
                },
            )
        )
    },
    optional={
        "spec": maybe(
            st.fixed_dictionaries(
                {"nodeName": names}, optional={"containers": containers, "resourceClaims": json_values}
            )
        ),
        "status": maybe(st.fixed_dictionaries({}, optional={"containerStatuses": containers})),
    },
)


@given(pod=pods | json_values)
def test_any_json_gives_string_fields_or_no_pod(pod: object) -> None:
    found = pod_info(pod, AllowedLabels(labels=("*",), annotations=("*",)))
    if found is None:
        return
    assert found.namespace
    assert found.pod
    assert found.workload.count("/") >= 1
    strings = (found.pod_uid, found.node, found.workload, *found.container_names)
    assert all(isinstance(value, str) for value in strings)
    assert all(len(key) == 64 and name for key, name in found.containers.items())
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in found.labels)
    assert found.requested in (True, False, None)
