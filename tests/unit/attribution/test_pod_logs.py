"""Names of pods from the kubelet's log directories, as real nodes have them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import pod_logs as module
from gputally.attribution.pod_logs import (
    PodLogs,
    parse_container_log,
    parse_link_target,
    parse_pod_directory,
)
from gputally.model import Owner, PodInfo, Unavailable

UID_A = "4a163a05-439d-484b-8e53-2968bc15824f"
UID_B = "dde1244b-5bb5-4297-b544-85f3bc0d80bf"
STATIC = "57585a0305e4e46df816ebab263926f3"
ID_1 = "cde6dfaf5007ed65aad2d6aed72af91b0f3d95813492f773286e29ae145d20f4"
ID_2 = "acb62391578595ec849d87d8556369cee7f935f0425097fd5f870df0e8aabd3c"
ID_3 = "e58a24d4a722c99712cff74ef69d93311089584eb32617b3890e0dcb996133f1"


def pod_directory(namespace: str, pod: str, uid: str) -> Owner:
    return Owner("pod", namespace=namespace, pod=pod, pod_uid=uid)


def container_log(namespace: str, pod: str, container: str, container_id: str) -> Owner:
    return Owner("pod", namespace=namespace, pod=pod, container=container, container_id=container_id)


class Node:
    """A node's /var/log below `root`."""

    def __init__(self, root: Path) -> None:
        self.pods = root / "pods"
        self.containers = root / "containers"
        self.pods.mkdir()
        self.containers.mkdir()

    def run(self, namespace: str, pod: str, uid: str, container: str, container_id: str = "") -> None:
        """What the kubelet leaves when it starts a container."""
        directory = self.pods / f"{namespace}_{pod}_{uid}" / container
        directory.mkdir(parents=True)
        (directory / "0.log").write_text("secret\n")
        if container_id:
            name = f"{pod}_{namespace}_{container}-{container_id}"[:251] + ".log"
            # As on the node: absolute, and so dangling wherever the directory is mounted elsewhere.
            (self.containers / name).symlink_to(f"/var/log/pods/{directory.parent.name}/{container}/0.log")

    def settle(self) -> None:
        """As if nothing had changed for long."""
        for directory in (self.containers, self.pods, *self.pods.iterdir()):
            os.utime(directory, (1_700_000_000, 1_700_000_000), follow_symlinks=False)

    def source(self) -> PodLogs:
        return PodLogs(self.pods, self.containers)

    def facts(self) -> tuple[PodInfo, ...]:
        return self.source().read().pods


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


PLATFORMS = {
    "k3s": (
        [
            ("kube-system", "coredns-7b98449c4-xk2lp", UID_A, "coredns", ID_1),
            ("kube-system", "svclb-traefik-4ea1c2cd-b9x2n", UID_B, "lb-tcp-80", ID_2),
            ("kube-system", "svclb-traefik-4ea1c2cd-b9x2n", UID_B, "lb-tcp-443", ID_3),
        ],
        (
            PodInfo(
                "kube-system",
                "coredns-7b98449c4-xk2lp",
                UID_A,
                containers={ID_1: "coredns"},
                container_names=("coredns",),
            ),
            PodInfo(
                "kube-system",
                "svclb-traefik-4ea1c2cd-b9x2n",
                UID_B,
                containers={ID_2: "lb-tcp-80", ID_3: "lb-tcp-443"},
                container_names=("lb-tcp-443", "lb-tcp-80"),
            ),
        ),
    ),
    "gke": (
        [
            ("kube-system", "kube-proxy-gke-ml-gpu-pool-5f1e7b0c-x3vd", STATIC, "kube-proxy", ID_1),
            ("ml", "train-0", UID_A, "trainer", ID_2),
        ],
        (
            PodInfo(
                "kube-system",
                "kube-proxy-gke-ml-gpu-pool-5f1e7b0c-x3vd",
                STATIC,
                containers={ID_1: "kube-proxy"},
                container_names=("kube-proxy",),
            ),
            PodInfo("ml", "train-0", UID_A, containers={ID_2: "trainer"}, container_names=("trainer",)),
        ),
    ),
    "aks": (
        [
            (
                "gpu-resources",
                "nvidia-device-plugin-daemonset-8xk4z",
                UID_B,
                "nvidia-device-plugin-ctr",
                ID_1,
            ),
            ("default", "samples-tf-mnist-demo-smnr6", UID_A, "samples-tf-mnist-demo", ID_2),
        ],
        (
            PodInfo(
                "default",
                "samples-tf-mnist-demo-smnr6",
                UID_A,
                containers={ID_2: "samples-tf-mnist-demo"},
                container_names=("samples-tf-mnist-demo",),
            ),
            PodInfo(
                "gpu-resources",
                "nvidia-device-plugin-daemonset-8xk4z",
                UID_B,
                containers={ID_1: "nvidia-device-plugin-ctr"},
                container_names=("nvidia-device-plugin-ctr",),
            ),
        ),
    ),
    "eks, with an init container that is done": (
        [
            ("kube-system", "aws-node-2qk7p", UID_B, "aws-vpc-cni-init", ""),
            ("kube-system", "aws-node-2qk7p", UID_B, "aws-node", ID_1),
            ("kube-system", "aws-node-2qk7p", UID_B, "aws-eks-nodeagent", ID_2),
        ],
        (
            PodInfo(
                "kube-system",
                "aws-node-2qk7p",
                UID_B,
                containers={ID_1: "aws-node", ID_2: "aws-eks-nodeagent"},
                container_names=("aws-eks-nodeagent", "aws-node", "aws-vpc-cni-init"),
            ),
        ),
    ),
    "openshift, a static pod with dots in its name": (
        [
            ("openshift-etcd", "etcd-ip-10-0-1-5.ec2.internal", STATIC, "etcdctl", ID_1),
            ("openshift-etcd", "etcd-ip-10-0-1-5.ec2.internal", STATIC, "etcd", ID_2),
        ],
        (
            PodInfo(
                "openshift-etcd",
                "etcd-ip-10-0-1-5.ec2.internal",
                STATIC,
                containers={ID_1: "etcdctl", ID_2: "etcd"},
                container_names=("etcd", "etcdctl"),
            ),
        ),
    ),
    "kind": (
        [
            (
                "kube-system",
                "kube-controller-manager-kind-control-plane",
                STATIC,
                "kube-controller-manager",
                ID_3,
            )
        ],
        (
            PodInfo(
                "kube-system",
                "kube-controller-manager-kind-control-plane",
                STATIC,
                containers={ID_3: "kube-controller-manager"},
                container_names=("kube-controller-manager",),
            ),
        ),
    ),
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_pods_of_a_node(node: Node, platform: str) -> None:
    running, expected = PLATFORMS[platform]
    for container in running:
        node.run(*container)
    assert node.facts() == expected


def test_pod_directories_alone_give_names_but_no_container_ids(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    node.run("ml", "train-0", UID_A, "logger", ID_2)
    source = PodLogs(node.pods, node.containers / "missing")
    assert source.read().pods == (
        PodInfo("ml", "train-0", UID_A, containers={}, container_names=("logger", "trainer")),
    )


def test_links_alone_give_names_ids_and_uids_but_an_incomplete_list_of_containers(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    source = PodLogs(node.pods / "missing", node.containers)
    assert source.read().pods == (PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}),)


def test_a_pod_replaced_by_one_of_the_same_name_leaves_both(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    node.run("ml", "train-0", UID_B, "trainer", ID_2)
    assert node.facts() == (
        PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}, container_names=("trainer",)),
        PodInfo("ml", "train-0", UID_B, containers={ID_2: "trainer"}, container_names=("trainer",)),
    )


def test_a_log_file_that_is_not_a_link_belongs_to_the_only_pod_of_its_name(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer")
    (node.containers / f"train-0_ml_trainer-{ID_1}.log").touch()
    assert node.facts() == (
        PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}, container_names=("trainer",)),
    )


def test_a_log_file_that_is_not_a_link_belongs_to_neither_of_two_pods(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer")
    node.run("ml", "train-0", UID_B, "trainer")
    (node.containers / f"train-0_ml_trainer-{ID_1}.log").symlink_to("/var/lib/docker/containers/x/x-json.log")
    assert node.facts() == (
        PodInfo("ml", "train-0", "", containers={ID_1: "trainer"}),
        PodInfo("ml", "train-0", UID_A, containers={}, container_names=("trainer",)),
        PodInfo("ml", "train-0", UID_B, containers={}, container_names=("trainer",)),
    )


def test_a_link_that_contradicts_its_name_is_ignored(node: Node) -> None:
    log = node.containers / f"train-0_ml_trainer-{ID_1}.log"
    log.symlink_to(f"/var/log/pods/other_train-0_{UID_A}/trainer/0.log")
    assert node.facts() == ()


def test_a_link_with_a_truncated_id_is_ignored_and_not_matched_to_another_container(
    node: Node,
) -> None:
    pod = "p" * 170
    node.run("ml", pod, UID_A, "t" * 40, ID_1)  # of the id, 36 digits are left
    node.run("ml", pod, UID_A, "a", ID_2)  # fits
    assert PodLogs(node.pods / "missing", node.containers).read().pods == (
        PodInfo("ml", pod, UID_A, containers={ID_2: "a"}),
    )
    assert node.facts() == (
        PodInfo("ml", pod, UID_A, containers={ID_2: "a"}, container_names=("a", "t" * 40)),
    )


def test_directories_of_old_kubelets_and_other_entries_are_ignored(node: Node) -> None:
    (node.pods / UID_A / "trainer").mkdir(parents=True)
    (node.pods / "lost+found").mkdir()
    (node.pods / f"ml_file_{UID_A}").touch()
    (node.containers / "README").touch()
    (node.containers / "directory").mkdir()
    node.run("ml", "train-0", UID_B, "trainer")
    (node.pods / f"ml_train-0_{UID_B}" / "stray-file").touch()
    (node.pods / f"ml_train-0_{UID_B}" / "Not A Container").mkdir()
    assert node.facts() == (PodInfo("ml", "train-0", UID_B, containers={}, container_names=("trainer",)),)


def test_new_pods_and_containers_are_found_and_deleted_pods_are_forgotten(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    node.settle()
    source = node.source()
    source.read()
    node.run("ml", "train-1", UID_B, "trainer", ID_2)
    (node.pods / f"ml_train-0_{UID_A}" / "debugger").mkdir()
    assert source.read().pods == (
        PodInfo(
            "ml", "train-0", UID_A, containers={ID_1: "trainer"}, container_names=("debugger", "trainer")
        ),
        PodInfo("ml", "train-1", UID_B, containers={ID_2: "trainer"}, container_names=("trainer",)),
    )
    (node.pods / f"ml_train-0_{UID_A}").rename(node.pods.parent / "gone")
    (node.containers / f"train-0_ml_trainer-{ID_1}.log").unlink()
    assert source.read().pods == (
        PodInfo("ml", "train-1", UID_B, containers={ID_2: "trainer"}, container_names=("trainer",)),
    )


def test_unchanged_directories_are_not_listed_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(500):
        uid = f"00000000-0000-4000-8000-{number:012}"
        node.run("ml", f"train-{number}", uid, "trainer", f"{number:064x}")
    node.settle()
    source = node.source()
    first = source.read()
    assert len(first.pods) == 500

    def must_not_list(*_: object) -> None:
        raise AssertionError("a directory was listed again")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", must_not_list)
        patch.setattr(os, "listdir", must_not_list)
        assert source.read() is first


def test_a_change_within_one_clock_tick_is_noticed(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer")
    directory = node.pods / f"ml_train-0_{UID_A}"
    source = node.source()
    source.read()
    before = directory.stat()
    (directory / "second").mkdir()
    os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.read().pods[0].container_names == ("second", "trainer")


def test_a_directory_replaced_by_one_of_the_same_mtime_is_listed_again(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer")
    node.settle()
    source = node.source()
    source.read()
    directory = node.pods / f"ml_train-0_{UID_A}"
    directory.rename(node.pods.parent / "old")
    (directory / "other").mkdir(parents=True)
    node.settle()
    assert source.read().pods[0].container_names == ("other",)


def test_a_pod_deleted_during_the_listing_is_omitted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run("ml", "leaves", UID_A, "trainer")
    node.run("ml", "stays", UID_B, "trainer")
    listed = module._PodsDirectory._pod_directories

    def list_then_delete(directory: module._PodsDirectory, descriptor: int) -> dict[str, Owner]:
        found = listed(directory, descriptor)
        (node.pods / f"ml_leaves_{UID_A}").rename(node.pods.parent / "gone")
        return found

    monkeypatch.setattr(module._PodsDirectory, "_pod_directories", list_then_delete)
    assert [pod.pod for pod in node.facts()] == ["stays"]


def test_a_pod_deleted_between_stat_and_listing_is_omitted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.run("ml", "leaves", UID_A, "trainer")
    really_open = os.open

    def delete_then_open(name: str | Path, flags: int, *, dir_fd: int | None = None) -> int:
        if name == f"ml_leaves_{UID_A}":
            (node.pods / name).rename(node.pods.parent / "gone")
        return really_open(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", delete_then_open)
    assert node.facts() == ()


def test_a_link_deleted_while_it_is_read_is_omitted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)

    def gone(*_: object, **__: object) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "readlink", gone)
    assert node.facts() == (PodInfo("ml", "train-0", UID_A, containers={}, container_names=("trainer",)),)


def test_an_inaccessible_pod_directory_still_names_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    really_open = os.open

    def denied_below(name: str | Path, flags: int, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise PermissionError(13, "Permission denied")
        return really_open(name, flags)

    monkeypatch.setattr(os, "open", denied_below)
    assert node.facts() == (PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}),)


def test_nothing_outside_the_directory_is_read(node: Node, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "stolen").mkdir(parents=True)
    (node.pods / f"ml_linked_{UID_A}").symlink_to(outside)
    node.run("ml", "train-0", UID_B, "trainer")
    (node.pods / f"ml_train-0_{UID_B}" / "escape").symlink_to(outside)
    assert node.facts() == (PodInfo("ml", "train-0", UID_B, containers={}, container_names=("trainer",)),)


def test_a_directory_replaced_by_a_link_after_the_listing_is_not_followed(node: Node, tmp_path: Path) -> None:
    node.run("ml", "train-0", UID_A, "trainer")
    node.settle()
    source = node.source()
    source.read()
    outside = tmp_path / "outside"
    (outside / "stolen").mkdir(parents=True)
    directory = node.pods / f"ml_train-0_{UID_A}"
    directory.rename(tmp_path / "old")
    directory.symlink_to(outside)
    os.utime(node.pods, (1_700_000_000, 1_700_000_000))  # the directory looks unchanged
    assert source.read().pods == (PodInfo("ml", "train-0", UID_A),)


def test_malformed_names_are_ignored(node: Node) -> None:
    hostile = [
        b"ml_evil\n_" + UID_A.encode(),
        b"ml_..\\.._" + UID_A.encode(),
        b"ml_a..b_" + UID_A.encode(),
        b"ml_\xff\xfe_" + UID_A.encode(),
        b"ml_pod\xe2\x80\xae_" + UID_A.encode(),
        b"_" * 200,
        b'ml_"} 1_' + UID_A.encode(),
    ]
    for name in map(os.fsdecode, hostile):
        (node.pods / name).mkdir()
        (node.containers / name).symlink_to("/etc")
    (node.containers / f"a_b_c-{ID_1}.log\n").touch()
    (node.containers / f"a_b_c-{ID_1}.log").symlink_to(os.fsdecode(b"\xff/\n/../.."))
    assert node.facts() == (PodInfo("b", "a", "", containers={ID_1: "c"}),)


def test_ten_thousand_malformed_entries_hide_no_pod(node: Node) -> None:
    for number in range(10_000):
        (node.containers / f"rubbish-{number}_").touch()
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    assert node.facts() == (
        PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}, container_names=("trainer",)),
    )


def test_without_both_directories_the_fix_names_the_mount(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        PodLogs(tmp_path / "pods", tmp_path / "containers").read()
    assert f"{tmp_path}/pods" in caught.value.reason
    assert f"{tmp_path}/containers" in caught.value.reason
    assert "/var/log/pods" in caught.value.fix
    assert "read-only" in caught.value.fix


def test_directories_that_appear_later_are_read(tmp_path: Path) -> None:
    source = PodLogs(tmp_path / "pods", tmp_path / "containers")
    with pytest.raises(Unavailable):
        source.read()
    Node(tmp_path).run("ml", "train-0", UID_A, "trainer", ID_1)
    assert source.read().pods == (
        PodInfo("ml", "train-0", UID_A, containers={ID_1: "trainer"}, container_names=("trainer",)),
    )


def test_empty_directories_are_a_node_without_pods(node: Node) -> None:
    assert node.facts() == ()


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As SELinux does it, to root as well."""

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        yield


@pytest.mark.usefixtures("denied")
def test_without_permission_the_directory_the_group_and_selinux_are_named(node: Node) -> None:
    with pytest.raises(Unavailable) as caught:
        node.facts()
    assert caught.value.reason == f"no permission to list {node.pods}"
    assert "container_logreader_t" in caught.value.fix
    assert "group" in caught.value.fix


def test_a_file_in_place_of_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="Not a directory"):
        PodLogs(tmp_path / "file", tmp_path / "file").read()


def test_no_file_descriptor_is_left_open(node: Node) -> None:
    node.run("ml", "train-0", UID_A, "trainer", ID_1)
    source = node.source()
    source.read()
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(20):
        source.read()
    source.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"ml_train-0_{UID_A}", pod_directory("ml", "train-0", UID_A)),
        (f"kube-system_etcd-a.b.c_{STATIC}", pod_directory("kube-system", "etcd-a.b.c", STATIC)),
        (f"{'n' * 63}_p_{UID_A}", pod_directory("n" * 63, "p", UID_A)),
        (f"{'n' * 64}_p_{UID_A}", None),
        (f"ml_{'p' * 254}_{UID_A}", None),
        (UID_A, None),
        (f"train-0_{UID_A}", None),
        (f"ml_train-0_{UID_A}_", None),
        (f"ml_train-0_{UID_A}\n", None),
        (f"ml__{UID_A}", None),
        (f"_train-0_{UID_A}", None),
        (f"a.b_train-0_{UID_A}", None),
        (f"ml_-train_{UID_A}", None),
        (f"ml_.._{UID_A}", None),
        (f"ml_train-0_{UID_A[:-1]}", None),
        (f"ml_train-0_{STATIC}0", None),
        (f"ml_train-0_{ID_1}", None),
        ("ml_train-0_", None),
        ("", None),
    ],
)
def test_the_name_of_a_pod_directory(name: str, expected: Owner | None) -> None:
    assert parse_pod_directory(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"train-0_ml_trainer-{ID_1}.log", container_log("ml", "train-0", "trainer", ID_1)),
        (f"a.b_ml_c-d-{ID_1}.log", container_log("ml", "a.b", "c-d", ID_1)),
        (f"train-0_ml_trainer-{ID_1[:-1]}.log", None),
        (f"train-0_ml_trainer-{ID_1}0.log", None),
        (f"train-0_ml_trainer-{ID_1}.log\n", None),
        (f"train-0_ml_trainer-{ID_1}.lo", None),
        (f"train-0_ml_trainer-{ID_1}", None),
        (f"train-0_ml_trainer_{ID_1}.log", None),
        (f"train-0_ml_trainer-{ID_1.upper()}.log", None),
        (f"train-0_ml_-{ID_1}.log", None),
        (f"ml_trainer-{ID_1}.log", None),
        (f"a_b_c_d-{ID_1}.log", None),
        (f"-{ID_1}.log", None),
        (".log", None),
        ("", None),
    ],
)
def test_the_name_of_a_container_log(name: str, expected: Owner | None) -> None:
    assert parse_container_log(name) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"/var/log/pods/ml_p_{UID_A}/c/0.log", (pod_directory("ml", "p", UID_A), "c")),
        (f"/elsewhere/ml_p_{UID_A}/c/12.log", (pod_directory("ml", "p", UID_A), "c")),
        (f"/var/log/pods/{UID_A}/c_0.log", None),
        (f"ml_p_{UID_A}/c/0.log", None),
        (f"/var/log/pods/ml_p_{UID_A}/../0.log", None),
        ("/var/lib/docker/containers/abc/abc-json.log", None),
        ("", None),
    ],
)
def test_the_target_of_a_link(target: str, expected: tuple[Owner, str] | None) -> None:
    assert parse_link_target(target) == expected


pieces = st.sampled_from(
    ["_", "-", ".", "/", ".log", "ml", "train-0", "\n", "é", UID_A, STATIC, ID_1, ID_2[:30]]
)
noise = st.one_of(st.text(max_size=300), st.lists(pieces, max_size=12).map("".join))


@given(noise)
def test_parsed_parts_of_any_name_occur_in_it(name: str) -> None:
    """Reading a name backwards gives the name again: nothing is made up, nothing is left over."""
    directory = parse_pod_directory(name)
    if directory is not None:
        assert f"{directory.namespace}_{directory.pod}_{directory.pod_uid}" == name.lower()
    log = parse_container_log(name)
    if log is not None:
        assert f"{log.pod}_{log.namespace}_{log.container}-{log.container_id}.log" == name
    target = parse_link_target(name)
    if target is not None:
        pod, container = target
        assert f"/{pod.namespace}_{pod.pod}_{pod.pod_uid}/{container}/" in name.lower()


labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(
    labels,
    st.lists(labels, min_size=1, max_size=4).map(".".join),
    labels,
    st.uuids(),
    st.binary(min_size=32, max_size=32),
)
def test_every_name_that_a_kubelet_can_write_is_parsed(
    namespace: str, pod: str, container: str, uid: object, container_id: bytes
) -> None:
    directory = f"{namespace}_{pod}_{uid}"
    assert parse_pod_directory(directory) == pod_directory(namespace, pod, str(uid))
    assert parse_link_target(f"/var/log/pods/{directory}/{container}/0.log") == (
        pod_directory(namespace, pod, str(uid)),
        container,
    )
    assert parse_container_log(f"{pod}_{namespace}_{container}-{container_id.hex()}.log") == container_log(
        namespace, pod, container, container_id.hex()
    )


@given(st.integers(1, 64), labels)
def test_a_truncated_id_is_never_completed(lost: int, container: str) -> None:
    assert parse_container_log(f"p_ml_{container}-{ID_1[:-lost]}.log") is None
