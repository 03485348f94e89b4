"""kubelet_pods against a real gRPC server whose pods protobuf has encoded."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.kubelet_pods import KubeletPods, parse_pods
from gputally.attribution.kubernetes_pod import AllowedLabels
from gputally.model import PodInfo, Unavailable
from tools.standin.kubelet import kubelet, message

LIST = "/v1alpha1.Pods/ListPods"
UID = "4a163a05-439d-484b-8e53-2968bc15824f"
MAIN, PROXY, SETUP, DEBUG = ("1a" * 32, "2b" * 32, "3c" * 32, "4d" * 32)


@pytest.fixture
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k") / "pods.sock"  # a socket's path may have 107 bytes and no more


def core(kind: str, /, **fields: Any) -> Any:
    return message(f"k8s.io.api.core.v1.{kind}", **fields)


def listing(*pods: Any) -> bytes:
    encoded: bytes = message(
        "v1alpha1.ListPodsResponse", pods=[pod.SerializeToString() for pod in pods]
    ).SerializeToString()
    return encoded


def container(name: str, limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> Any:
    def quantities(amounts: dict[str, str] | None) -> dict[str, Any]:
        return {resource: core("Quantity", string=amount) for resource, amount in (amounts or {}).items()}

    asks = core("ResourceRequirements", limits=quantities(limits), requests=quantities(requests))
    return core("Container", name=name, image="registry.example/x", resources=asks)


def status(name: str, container_id: str) -> Any:
    return core("ContainerStatus", name=name, ready=True, restartCount=3, containerID=container_id)


def owner(kind: str, name: str, controller: bool = True) -> Any:
    return core("OwnerReference", kind=kind, name=name, controller=controller, apiVersion="apps/v1")


def facts(*containers: Any, metadata: dict[str, Any] | None = None, **spec: Any) -> PodInfo:
    """What is known of a pod with these containers and this metadata."""
    pod = core(
        "Pod",
        metadata=core("ObjectMeta", name="train-0", namespace="ml", uid=UID, **(metadata or {})),
        spec=core("PodSpec", containers=containers, **spec),
    )
    (known,) = parse_pods(listing(pod), AllowedLabels())
    return known


def unavailable(source: KubeletPods) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        source.read()
    return caught.value


def test_all_fields_of_a_pod_are_read(socket_path: Path) -> None:
    proxy = container("proxy")
    for claim, request in (("own", "gpu"), ("shared", "")):
        proxy.resources.claims.append(core("ResourceClaim", name=claim, request=request))
    pod = core(
        "Pod",
        metadata=core(
            "ObjectMeta",
            name="train-0",
            namespace="ml",
            uid=UID,
            generation=4,
            labels={"team": "vision", "app": "train", "secret": "x"},
            annotations={"notes": "y", "secret": "z" * 4000},
            ownerReferences=[owner("StatefulSet", "train")],
        ),
        spec=core(
            "PodSpec",
            nodeName="gpu-node-7",
            initContainers=[container("setup")],
            containers=[container("main", limits={"nvidia.com/gpu": "1", "cpu": "4"}), proxy],
            resourceClaims=[
                core("PodResourceClaim", name="own"),
                core("PodResourceClaim", name="shared", resourceClaimName="team-gpus"),
            ],
            ephemeralContainers=[
                core(
                    "EphemeralContainer",
                    ephemeralContainerCommon=container("debug"),
                    targetContainerName="main",
                )
            ],
        ),
        status=core(
            "PodStatus",
            phase="Running",
            startTime=core("Time", seconds=1795003200),
            resourceClaimStatuses=[
                core("PodResourceClaimStatus", name="own", resourceClaimName="train-0-own-x7k2p")
            ],
            initContainerStatuses=[status("setup", f"containerd://{SETUP}")],
            containerStatuses=[status("main", f"cri-o://{MAIN}"), status("proxy", f"docker://{PROXY}")],
            ephemeralContainerStatuses=[status("debug", f"containerd://{DEBUG}")],
        ),
    )
    with kubelet(socket_path, {LIST: listing(pod)}):
        report = KubeletPods(socket_path, allowed=AllowedLabels(["team", "app", "absent"], ["note*"])).read()

    assert report.allocations == ()
    assert report.pods == (
        PodInfo(
            namespace="ml",
            pod="train-0",
            pod_uid=UID,
            containers={SETUP: "setup", MAIN: "main", PROXY: "proxy", DEBUG: "debug"},
            container_names=("main", "proxy", "setup", "debug"),
            node="gpu-node-7",
            workload="StatefulSet/train",
            requested=True,
            labels=(("app", "train"), ("team", "vision"), ("notes", "y")),
            full_name_labels=2,
            phase="Running",
            started_at_seconds=1795003200.0,
            claim_requests=(("train-0-own-x7k2p", "gpu"),),
        ),
    )


def test_a_container_that_is_not_created_yet_has_no_id() -> None:
    pending = core(
        "Pod",
        metadata=core("ObjectMeta", name="train-0", namespace="ml"),
        spec=core("PodSpec", containers=[container("main")]),
        status=core("PodStatus", phase="Pending", containerStatuses=[status("main", "")]),
    )
    (known,) = parse_pods(listing(pending), AllowedLabels())

    assert known.containers == {}
    assert known.container_names == ("main",)


def test_only_allowed_labels_are_kept() -> None:
    assert facts(container("main"), metadata={"labels": {"team": "vision"}}).labels == ()


@pytest.mark.parametrize(
    ("limits", "requests", "asked"),
    [
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, True),
        ({}, {"amd.com/gpu": "2"}, True),
        ({"nvidia.com/mig-1g.5gb": "1"}, {}, True),
        ({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "0"}, False),
        ({"cpu": "1", "memory": "1Gi"}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_gpu_request_is_read_from_the_specification(
    limits: dict[str, str], requests: dict[str, str], asked: bool
) -> None:
    assert facts(container("side"), container("main", limits, requests)).requested is asked


def test_an_init_container_can_have_the_request() -> None:
    gpu = container("setup", {"nvidia.com/gpu": "1"})

    assert facts(container("main"), initContainers=[gpu]).requested is True


def test_a_resource_claim_is_a_request() -> None:
    claims = [core("PodResourceClaim", name="gpu", resourceClaimName="one-gpu")]

    assert facts(container("main"), resourceClaims=claims).requested is True


@pytest.mark.parametrize(
    ("owners", "labels", "workload"),
    [
        ([("ReplicaSet", "web-5d4f8c7b9d")], {"pod-template-hash": "5d4f8c7b9d"}, "Deployment/web"),
        ([("ReplicaSet", "web-5d4f8c7b9d")], {}, "ReplicaSet/web-5d4f8c7b9d"),
        ([("ReplicaSet", "web")], {"pod-template-hash": "5d4f8c7b9d"}, "ReplicaSet/web"),
        ([("Job", "nightly")], {}, "Job/nightly"),
        ([("RayCluster", "ray")], {}, "RayCluster/ray"),
        ([("Node", "gpu-node-7")], {}, "Pod/train-0"),
        ([], {}, "Pod/train-0"),
    ],
)
def test_the_workload_is_the_controller(
    owners: list[tuple[str, str]], labels: dict[str, str], workload: str
) -> None:
    references = [owner(kind, name) for kind, name in owners]
    metadata = {"ownerReferences": references, "labels": labels}

    assert facts(container("main"), metadata=metadata).workload == workload


def test_an_owner_that_is_no_controller_is_not_the_workload() -> None:
    references = [owner("Config", "first", controller=False), owner("Job", "second")]

    assert facts(container("main"), metadata={"ownerReferences": references}).workload == "Job/second"


def test_a_job_of_a_cron_job_is_recognised_by_its_creation_time() -> None:
    job = core("OwnerReference", kind="Job", name="nightly-29384756", controller=True, apiVersion="batch/v1")
    made = core("Time", seconds=29384756 * 60 + 5)
    metadata = {"ownerReferences": [job], "creationTimestamp": made}

    assert facts(container("main"), metadata=metadata).workload == "CronJob/nightly"


@pytest.mark.parametrize("seconds", [-1, 0, 2**62])
def test_an_invalid_time_is_ignored(seconds: int) -> None:
    assert (
        facts(container("main"), metadata={"creationTimestamp": core("Time", seconds=seconds)}).pod_uid == UID
    )


def test_a_static_pod_has_the_uid_of_its_cgroup() -> None:
    hashed = "0123456789abcdef0123456789abcdef"
    annotations = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hashed}

    assert facts(container("main"), metadata={"annotations": annotations}).pod_uid == hashed


def test_the_container_id_before_the_last_restart_is_kept() -> None:
    died = core(
        "ContainerState", terminated=core("ContainerStateTerminated", containerID=f"containerd://{PROXY}")
    )
    restarted = core("ContainerStatus", name="main", containerID=f"containerd://{MAIN}", lastState=died)
    pod = core(
        "Pod",
        metadata=core("ObjectMeta", name="train-0", namespace="ml"),
        status=core("PodStatus", containerStatuses=[restarted]),
    )
    (known,) = parse_pods(listing(pod), AllowedLabels())

    assert known.containers == {MAIN: "main", PROXY: "main"}


def test_a_pod_without_a_name_is_left_out() -> None:
    assert list(parse_pods(listing(core("Pod"), core("Pod")), AllowedLabels())) == []


def test_a_missing_socket_has_the_mount_as_its_fix(socket_path: Path) -> None:
    failure = unavailable(KubeletPods(socket_path))

    assert "no socket" in failure.reason
    assert "hostPath" in failure.fix


def test_a_kubelet_without_the_service_has_an_upgrade_as_its_fix(socket_path: Path) -> None:
    with kubelet(socket_path, {}):
        failure = unavailable(KubeletPods(socket_path))
    assert "UNIMPLEMENTED" in failure.reason
    assert "1.37" in failure.fix


def test_a_reply_other_than_a_list_of_pods_is_unavailable(socket_path: Path) -> None:
    with kubelet(socket_path, {LIST: b"\x0a\x03\xff\xff\xff"}):
        assert "list of pods" in unavailable(KubeletPods(socket_path)).reason


@given(st.data())
def test_a_damaged_reply_is_a_value_error_or_some_pods(data: st.DataObject) -> None:
    pod = core(
        "Pod",
        metadata=core("ObjectMeta", name="a", labels={"b": "c"}, ownerReferences=[owner("Job", "d")]),
        spec=core("PodSpec", containers=[container("main", {"nvidia.com/gpu": "1"})]),
        status=core("PodStatus", containerStatuses=[status("main", f"containerd://{MAIN}")]),
    )
    reply = bytearray(listing(pod))
    for _ in range(data.draw(st.integers(1, 4))):
        reply[data.draw(st.integers(0, len(reply) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        list(parse_pods(bytes(reply), AllowedLabels(labels=["b"])))
