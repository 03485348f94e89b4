"""Every known form of /proc/<pid>/cgroup, and many generated ones."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.attribution import CgroupOwner
from gputally.attribution.cgroup import Trust, parse_cgroup, trust_of
from gputally.model import UNKNOWN_REASONS, Unknown

LINES = Path(__file__).parents[2] / "fixtures" / "cgroups.tsv"

UID = "9493223b-520e-4a97-a45f-359dcf967006"
OTHER_UID = "51b64565-2b17-4d46-83ac-22e398f2f7fb"
ID = "25d057a4c6c9555f2a0eb106e8896968c28f1c44aca4754174851aca7f89ad26"
OTHER_ID = "65d752a38e1db784d521f48c3f1956f4f9a74ebb923377144f253f3aca9fa028"
POD = f"/kubepods/burstable/pod{UID}/{ID}"


def known_lines() -> list[dict[str, str]]:
    with LINES.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", known_lines(), ids=lambda row: f"{row['group'][0]}: {row['env']}")
def test_a_known_line_names_its_pod_container_and_job(row: dict[str, str]) -> None:
    owner = parse_cgroup(row["line"] + "\n")
    found = (
        owner.pod_uid,
        owner.container_id,
        owner.slurm_job if isinstance(owner, CgroupOwner) else "",
    )
    assert found == (row["pod_uid"], row["container_id"], row["slurm_job"])
    assert not row["pod_uid"] or (
        isinstance(owner, CgroupOwner) and owner.kind == "pod" and not owner.own_pod
    )


def test_every_line_of_the_fixture_is_parsed() -> None:
    rows = known_lines()
    assert len(rows) > 140
    assert all(row["line"].count(":") >= 2 and None not in row.values() for row in rows)
    assert sum(bool(row["pod_uid"]) for row in rows) > 60


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        # Containers of Kubernetes whose path has no pod: the id is the way to the pod.
        (f"/system.slice/cri-containerd-{ID}.scope", CgroupOwner("pod", container_id=ID)),
        (f"/system.slice/crio-{ID}.scope", CgroupOwner("pod", container_id=ID)),
        (f"/system.slice:cri-containerd:{ID}", CgroupOwner("pod", container_id=ID)),
        (f"/k8s.io/{ID}", CgroupOwner("pod", container_id=ID)),
        (f"/kubepods/burstable/gold/{ID}", CgroupOwner("pod", container_id=ID)),
        (f"/../../system.slice/crio-{ID}.scope", CgroupOwner("pod", container_id=ID)),
        # The reader's own pod.
        (f"/../cri-containerd-{ID}.scope", CgroupOwner("pod", container_id=ID, own_pod=True)),
        (f"/../crio-{ID}.scope/container", CgroupOwner("pod", container_id=ID, own_pod=True)),
        (f"/../{ID}", CgroupOwner("pod", container_id=ID, own_pod=True)),
        (f"/../docker-{ID}.scope", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        # Containers of others.
        (f"/docker/{ID}", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        (f"/docker/{ID}/docker/{OTHER_ID}/init.scope", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        (f"/system.slice/docker-{ID}.scope", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        ("/docker/buildkit/t4967jvf8rbufklrhkicskyes", CgroupOwner("docker", name="buildkit")),
        (f"/machine.slice/libpod-{ID}.scope", CgroupOwner("podman", container_id=ID, name=ID[:12])),
        (f"/containerd/{ID}", CgroupOwner("containerd", container_id=ID, name=ID[:12])),
        (f"/default/{ID}", CgroupOwner("containerd", container_id=ID, name=ID[:12])),
        (f"/ecs/bd5dac18533047b7/{ID}", CgroupOwner("container", container_id=ID, name=ID[:12])),
        (f"/system.slice/gpu-{ID}.scope", CgroupOwner("container", container_id=ID, name=ID[:12])),
        ("/lxc.payload.first/system.slice/ssh.service", CgroupOwner("lxc", name="first")),
        ("/lxc/101/ns/init.scope", CgroupOwner("lxc", name="101")),
        ("/lxc.payload/c1", CgroupOwner("lxc", name="c1")),
        # Slurm.
        (
            "/slurm/uid_1000/job_42/step_0/task_1",
            CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="0", user="1000"),
        ),
        (
            "/slurm_node1/uid_1000/job_42/step_batch",
            CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="batch", user="1000"),
        ),
        ("/slurm/uid_7/job_42", CgroupOwner("slurm", name="42", slurm_job="42", user="7")),
        (
            "/system.slice/slurmstepd.scope/job_42/step_batch/user/task_0",
            CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="batch"),
        ),
        (
            "/system.slice/node1_slurmstepd.scope/job_42/step_extern/user",
            CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="extern"),
        ),
        ("/system.slice/slurmstepd.scope/system", CgroupOwner("service", name="slurmstepd.scope")),
        ("/system.slice/slurmd.service", CgroupOwner("service", name="slurmd.service")),
        # Services and people.
        ("/system.slice/ollama.service", CgroupOwner("service", name="ollama.service")),
        ("/system.slice/a.service/b.service/deeper", CgroupOwner("service", name="a.service")),
        ("/system.slice/system-vllm.slice/vllm@70b.service", CgroupOwner("service", name="vllm@70b.service")),
        ("/system.slice/run-r1f5c.scope", CgroupOwner("service", name="run-r1f5c.scope")),
        ("/user.slice/user-1000.slice/session-3.scope", CgroupOwner("session", name="1000", user="1000")),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
            CgroupOwner("session", name="1000", user="1000"),
        ),
        ("/../../user@33.service/init.scope", CgroupOwner("session", name="33", user="33")),
        # No owner.
        ("/", CgroupOwner("process")),
        ("/init.scope", CgroupOwner("process")),
        ("/..", CgroupOwner("process")),
        ("/../../..", CgroupOwner("process")),
        ("/user.slice", CgroupOwner("process")),
        ("/system/apid", CgroupOwner("process")),
        ("/podruntime/kubelet", CgroupOwner("process")),
    ],
)
def test_a_path_outside_of_pods_has_its_kind(path: str, owner: CgroupOwner) -> None:
    assert parse_cgroup(f"0::{path}\n") == owner
    assert parse_cgroup(f"0::{path}") == owner
    assert parse_cgroup(f"4:memory:{path}\n3:cpu,cpuacct:{path}\n0::/\n") == owner


def test_a_path_needs_no_leading_slash() -> None:
    for path in (
        f"pod{UID}/{ID}",
        f"docker/{ID}",
        f"k8s.io/{ID}",
        "lxc/first",
        "slurm/uid_1/job_2",
        "kubepods",
    ):
        assert parse_cgroup(f"0::{path}\n") == parse_cgroup(f"0::/{path}\n") != CgroupOwner("process")


@pytest.mark.parametrize(
    "path",
    [
        "/kubepods",
        "/kubepods.slice/kubepods-burstable.slice",
        f"/kubepods.slice/kubepods-gold-pod{UID}.slice",
        f"/kubepods/pod{UID}-decoy",
        f"/kubepods/xpod{UID}",
        f"/kubepods.slice/cri-containerd-pod{UID}.scope",
        f"/kubepods/pod{UID.upper()}",
        f"/kubepods/pod{UID[:-1]}",
        f"/kubepods/pod{UID}0",
        f"/kubepods/pod{UID} ",
    ],
)
def test_an_unknown_path_of_the_kubelet_is_neither_a_pod_nor_the_host(path: str) -> None:
    assert parse_cgroup(f"0::{path}\n") == Unknown("unreadable")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "garbage",
        "0:/\n",
        "0::\n",
        "x::/\n",
        "-1::/\n",
        f"0::{POD}\n\n4:memory:{POD}\n",
        f"0::{POD}\nno hierarchy\n",
        "²::/system.slice/a.service\n",
        "12 (python) S 1 1 1\n",
    ],
)
def test_other_text_than_a_cgroup_file_is_unreadable(text: str) -> None:
    assert parse_cgroup(text) == Unknown("unreadable")


def lines(*paths: str, unified: str = "") -> str:
    legacy = [f"{number}:controller{number}:{path}" for number, path in enumerate(paths, 1)]
    return "\n".join([*reversed(legacy), *([f"0::{unified}"] if unified else []), ""])


def test_one_hierarchy_that_names_the_pod_is_enough() -> None:
    node = f"/system.slice/docker-{OTHER_ID}.scope"
    inside = Trust(nodes=(node,))
    assert parse_cgroup(lines("/", node, f"{node}/kubelet{POD}", node), inside) == CgroupOwner("pod", UID, ID)
    assert parse_cgroup(lines("/", POD, unified="/system.slice/containerd.service")) == CgroupOwner(
        "pod", UID, ID
    )
    assert parse_cgroup(lines("/", f"/docker/{OTHER_ID}", unified=POD)) == CgroupOwner("pod", UID, ID)


def test_the_same_pod_below_other_roots_is_one_pod() -> None:
    # RKE on RancherOS: the hierarchies start at different places.
    text = lines(POD, f"/docker/{OTHER_ID}{POD}", f"/system.slice/x.service{POD}")
    assert parse_cgroup(text) == CgroupOwner("pod", UID, ID)


def test_two_pods_are_ambiguous() -> None:
    other = f"/kubepods/pod{OTHER_UID}/{OTHER_ID}"
    assert parse_cgroup(lines(POD, POD, other)) == Unknown("ambiguous_pod")
    assert parse_cgroup(lines(POD, unified=other)) == Unknown("ambiguous_pod")


def test_two_containers_of_kubernetes_without_a_pod_are_ambiguous() -> None:
    text = lines(f"/system.slice/crio-{ID}.scope", f"/system.slice/crio-{OTHER_ID}.scope")
    assert parse_cgroup(text) == Unknown("ambiguous_pod")


def test_two_containers_of_one_pod_leave_the_container_unknown() -> None:
    text = lines(POD, f"/kubepods/burstable/pod{UID}/{OTHER_ID}")
    assert parse_cgroup(text) == CgroupOwner("pod", UID, "")
    assert parse_cgroup(lines(POD, f"/kubepods/burstable/pod{UID}")) == CgroupOwner("pod", UID, ID)


def test_the_unified_line_does_not_override_a_legacy_one() -> None:
    container = f"/docker/{ID}"
    service = "/system.slice/containerd.service"
    docker = CgroupOwner("docker", container_id=ID, name=ID[:12])
    assert parse_cgroup(lines("/", container, unified=service)) == docker
    assert parse_cgroup(lines("/", service, unified=f"/docker/{ID}")) == CgroupOwner(
        "service", name="containerd.service"
    )
    # When the others say nothing, it does not win over them.
    assert parse_cgroup(lines("/", "/", unified=service)) == CgroupOwner("service", name="containerd.service")


def test_the_most_specific_legacy_line_is_used() -> None:
    # Slurm on cgroup v1 leaves systemd's hierarchy alone.
    text = lines("/system.slice/slurmd.service", "/slurm/uid_1000/job_42/step_0", "/", unified="/")
    assert parse_cgroup(text) == CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="0", user="1000")
    text = lines("/user.slice/user-0.slice/session-1.scope", f"/docker/{ID}")
    assert parse_cgroup(text) == CgroupOwner("docker", container_id=ID, name=ID[:12])


def test_an_unknown_path_of_the_kubelet_is_not_hidden_by_a_service() -> None:
    text = lines("/system.slice/kubelet.service", "/kubepods/besteffort/gold")
    assert parse_cgroup(text) == Unknown("unreadable")
    assert parse_cgroup(lines("/kubepods/besteffort/gold", POD)) == CgroupOwner("pod", UID, ID)


hexadecimal = "0123456789abcdef"
container_ids = st.text(hexadecimal, min_size=64, max_size=64)
uids = st.uuids().map(str)
static_uids = st.text(hexadecimal, min_size=32, max_size=32)
fragments = st.one_of(
    st.sampled_from(
        [
            *"/:.-_\n",
            *("..", "0::/", "4:memory:/", "pod", "kubepods", "kubepods-", ".slice", ".scope", ".service"),
            *(
                "burstable",
                "besteffort-",
                "cri-containerd-",
                ":cri-containerd:",
                "crio-",
                "docker-",
                "docker/",
            ),
            *("libpod-", "lxc/", "slurm/uid_1/job_2", "slurmstepd.scope/job_3", "user-1.slice", "\\x2d"),
            *("k8s.io/", " (deleted)", "kubelet-kubepods-burstable-pod"),
        ]
    ),
    uids,
    uids.map(lambda uid: uid.replace("-", "_")),
    static_uids,
    container_ids,
    st.text(max_size=4),
)
texts = st.one_of(st.text(), st.lists(fragments, max_size=25).map("".join))


@given(texts, st.booleans())
def test_any_text_is_parsed_without_an_invented_pod(text: str, as_line: bool) -> None:
    text = f"0::/{text}" if as_line else text
    owner = parse_cgroup(text)
    if isinstance(owner, Unknown):
        assert owner.reason in UNKNOWN_REASONS
        return
    assert owner.container_id in text
    plain = text.replace("_", "-").replace("\\x2d", "-")
    assert not owner.pod_uid or re.search(rf"[/:-]pod{owner.pod_uid}(\.slice)?([/:\n]|$| \(deleted\))", plain)
    assert owner.kind == "pod" or not (owner.pod_uid or owner.own_pod)


@st.composite
def pod_paths(draw: st.DrawFn) -> tuple[str, str, str]:
    """A path as some kubelet, runtime and node would make it, with its pod and container."""
    uid, container = draw(st.one_of(uids, static_uids)), draw(container_ids)
    qos = draw(st.sampled_from(["", "burstable", "besteffort"]))
    node = draw(container_ids)
    root = draw(
        st.sampled_from(
            [
                "",
                "/../..",
                "/system.slice/k3s.service",
                "/system.slice/snap.microk8s.daemon-containerd.service",
                "/cluster.slice/cluster-gpu.slice",
            ]
        )
    )
    runtime = draw(st.sampled_from(["cri-containerd-", "crio-", "docker-"]))
    name = f"kubepods-{qos}-pod" if qos else "kubepods-pod"
    escaped = uid.replace("-", draw(st.sampled_from(["_", "-", "\\x2d"])))
    path = draw(
        st.sampled_from(
            [
                f"{root}/kubepods{f'/{qos}' if qos else ''}/pod{uid}/{container}",
                f"{root}/kubepods.slice/{name}{escaped}.slice/{runtime}{container}.scope",
                f"{root}/kubelet.slice/kubelet-{name}{escaped}.slice/{runtime}{container}.scope",
                f"{root}/system.slice/containerd.service/{name}{escaped}.slice:cri-containerd:{container}",
            ]
        )
    )
    inner = draw(
        st.sampled_from(
            [
                "",
                "/container",
                "/sensor.falcon",
                f"/docker/{node}",
                f"/kubelet/kubepods/pod{OTHER_UID}/{node}",
                "/system.slice/ssh.service",
                "/system.slice/slurmstepd.scope/job_1/step_0",
                " (deleted)",
            ]
        )
    )
    return path + inner, uid, container


# Owners that can make cgroups of any name below their own, and their cgroups.
OUTER = {
    "/user.slice/user-1000.slice/user@1000.service": CgroupOwner("session", name="1000", user="1000"),
    "/user.slice/user-1000.slice/session-3.scope": CgroupOwner("session", name="1000", user="1000"),
    "/../../../../user.slice/user-1000.slice/user@1000.service/app.slice": CgroupOwner(
        "session", name="1000", user="1000"
    ),
    "/user/alice/0": CgroupOwner("session", name="alice", user="alice"),
    f"/kubepods.slice/kubepods-pod{UID}.slice/cri-containerd-{ID}.scope": CgroupOwner("pod", UID, ID),
    POD: CgroupOwner("pod", UID, ID),
    f"/kubepods/burstable/pod{UID}": CgroupOwner("pod", UID),
    f"/kubepods/pod{UID}/runsc-sandbox": CgroupOwner("pod", UID),
    f"/../../kubepods-besteffort-pod{UID}.slice/crio-{ID}.scope": CgroupOwner("pod", UID, ID),
    f"/../{ID}": CgroupOwner("pod", container_id=ID, own_pod=True),
    f"/k8s.io/{ID}": CgroupOwner("pod", container_id=ID),
    f"/system.slice/docker-{ID}.scope": CgroupOwner("docker", container_id=ID, name=ID[:12]),
    f"/docker/{ID}": CgroupOwner("docker", container_id=ID, name=ID[:12]),
    f"/machine.slice/libpod-{ID}.scope/container": CgroupOwner("podman", container_id=ID, name=ID[:12]),
    "/lxc.payload.first": CgroupOwner("lxc", name="first"),
    "/lxc/101/ns": CgroupOwner("lxc", name="101"),
    "/machine.slice/systemd-nspawn@web.service/payload": CgroupOwner(
        "service", name="systemd-nspawn@web.service"
    ),
    "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt": CgroupOwner(
        "service", name="machine-qemu\\x2d1\\x2dvm.scope"
    ),
    "/system.slice/jupyter-alice.service": CgroupOwner("service", name="jupyter-alice.service"),
    "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0": CgroupOwner(
        "slurm", name="7", slurm_job="7", slurm_step="0"
    ),
    "/slurm/uid_1000/job_7/step_0": CgroupOwner(
        "slurm", name="7", slurm_job="7", slurm_step="0", user="1000"
    ),
}
levels = st.one_of(
    st.sampled_from(
        [
            *(
                f"kubepods/pod{OTHER_UID}",
                "kubepods.slice",
                "kubelet.slice",
                "k8s.io",
                "docker",
                "moby",
                "payload",
            ),
            f"kubepods-besteffort-pod{OTHER_UID.replace('-', '_')}.slice:cri-containerd:{OTHER_ID}",
            *("slurm/uid_0/job_46/step_0", "slurmstepd.scope/job_46", "lxc/other", "lxc.payload.other"),
            *("user.slice/user-0.slice", "user@0.service", "user/root/0", "nvidia-mps.service", "init.scope"),
            *("k3s.service", "containerd.service", "..", "ecs/" + "a" * 32 + "/" + "a" * 32 + "-1"),
            *(f"docker-{OTHER_ID}.scope", f"cri-containerd-{OTHER_ID}.scope", OTHER_ID, f"crio-{OTHER_ID}"),
        ]
    ),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=20),
)


@settings(max_examples=400)
@given(st.sampled_from(list(OUTER)), st.lists(levels, min_size=1, max_size=5), st.booleans())
def test_whatever_cgroups_an_owner_makes_below_its_own_it_stays_the_owner(
    cgroup: str, below: list[str], unified: bool
) -> None:
    path = "/".join([cgroup, *below])
    found = parse_cgroup(f"0::{path}\n" if unified else lines(path, path, unified="/"))
    assert isinstance(found, CgroupOwner)
    # Of the pod of a virtual machine or gVisor the next level is taken for its container: it is the same pod.
    expected = OUTER[cgroup]
    container_id = (
        found.container_id if expected.pod_uid and not expected.container_id else expected.container_id
    )
    step = found.slurm_step if expected.slurm_job else ""
    assert found == replace(expected, container_id=container_id, slurm_step=step)


NODE = f"/system.slice/docker-{OTHER_ID}.scope"
NESTED_POD = (
    f"{NODE}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice/{ID}"
)
EXPORTER_POD = f"{NODE}/kubelet/kubepods/besteffort/pod{'e' * 32}/{'e' * 64}"


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(EXPORTER_POD, id="in a pod"),
        pytest.param(f"{NODE}/system.slice/gputally.service", id="as a service"),
    ],
)
def test_an_exporter_inside_of_a_node_that_is_a_container_names_the_pods_of_this_node(own: str) -> None:
    trust = trust_of(f"4:memory:{own}\n0::/\n")
    assert parse_cgroup(f"0::{NESTED_POD}\n", trust) == CgroupOwner("pod", UID, ID)
    # What is in the same container and no pod is the container's, and other containers keep what is theirs.
    assert parse_cgroup(f"0::{NODE}/system.slice/ollama.service\n", trust) == CgroupOwner(
        "docker", container_id=OTHER_ID, name=OTHER_ID[:12]
    )
    other = f"/docker/{ID}"
    assert parse_cgroup(f"0::{other}/kubepods/pod{UID}/{OTHER_ID}\n", trust) == CgroupOwner(
        "docker", container_id=ID, name=ID[:12]
    )


@pytest.mark.parametrize(
    "own",
    [
        f"0::/kubepods/burstable/pod{'e' * 32}/{'e' * 64}\n",
        f"0::{NODE}\n",
        "0::/system.slice/gputally.service\n",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/gputally.service\n",
        "0::/\n",
        "",
    ],
)
def test_elsewhere_an_exporter_believes_only_outermost_owners(own: str) -> None:
    assert trust_of(own) == Trust()


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (NESTED_POD, CgroupOwner("pod", UID, ID)),
        (f"/user.slice/user-1000.slice/user@1000.service/k3s.service{POD}", CgroupOwner("pod", UID, ID)),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope",
            CgroupOwner("docker", container_id=ID, name=ID[:12]),
        ),
        (f"/lxc/101/ns/docker/{ID}", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        (f"{POD}/docker/{OTHER_ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}", CgroupOwner("pod", UID, ID)),
        (
            "/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_46",
            CgroupOwner("session", name="1000", user="1000"),
        ),
    ],
)
def test_nested_pods_and_containers_count_where_that_is_set(path: str, owner: CgroupOwner) -> None:
    assert parse_cgroup(f"0::{path}\n", Trust(nested=True)) == owner


@given(pod_paths(), st.booleans())
def test_the_outermost_pod_and_its_first_container_are_the_owner(
    made: tuple[str, str, str], hybrid: bool
) -> None:
    path, uid, container = made
    text = lines("/", path, path, unified="/system.slice/containerd.service") if hybrid else f"0::{path}\n"
    assert parse_cgroup(text) == CgroupOwner("pod", uid, container)


@given(pod_paths(), st.sampled_from("0af-x_"))
def test_a_uid_with_a_suffix_is_no_pod(made: tuple[str, str, str], attached: str) -> None:
    path, uid, _ = made
    written = next(form for sep in ("-", "_", "\\x2d") if (form := f"pod{uid.replace('-', sep)}") in path)
    owner = parse_cgroup(f"0::{path.replace(written, written + attached, 1)}\n")
    assert owner.pod_uid in ("", OTHER_UID)
