"""Whatever a tenant chooses, it is charged for its processes, and no other tenant is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.attribution import CgroupOwner, PodReport
from gputally.attribution.cgroup import parse_cgroup
from gputally.attribution.kubernetes_pod import AllowedLabels, pod_info
from gputally.attribution.resolve import index_pods, resolve_owner
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Owner, PodInfo, Snapshot
from tools.standin.procfs import container_id, uid

VICTIM, MALLORY = 1, 2
LABELLED = AllowedLabels(labels=("team", "*"))
CGROUPS = {
    f"/kubepods/burstable/pod{uid(MALLORY)}/{container_id(MALLORY)}": "mallory",
    f"/kubepods/pod{uid(MALLORY)}/runsc-sandbox": "mallory",
    f"/system.slice/cri-containerd-{container_id(MALLORY)}.scope": "mallory",
    "/user.slice/user-1000.slice/user@1000.service": "session/1000",
    f"/system.slice/docker-{container_id(9)}.scope": f"docker/{container_id(9)[:12]}",
    "/system.slice/slurmstepd.scope/job_7": "slurm/7",
    "/lxc/101": "lxc/101",
}
below = st.lists(
    st.sampled_from(
        [
            *("kubepods", f"pod{uid(VICTIM)}", container_id(VICTIM), f"docker-{container_id(VICTIM)}.scope"),
            f"kubepods-pod{uid(VICTIM)}.slice:cri-containerd:{container_id(VICTIM)}",
            *(
                "k8s.io",
                "..",
                "docker",
                "k3s.service",
                "user@0.service",
                "system.slice",
                "step_0",
                "lxc",
                "ns",
            ),
        ]
    ),
    max_size=6,
)
texts = st.text(max_size=12)
names = st.one_of(
    texts, st.sampled_from(["nvidia-cuda-mps", "victim", "team", "example.com/team", "a.b", "a_b"])
)


def reported(name: str, number: int, labels: dict[str, str], container: str) -> PodInfo:
    pod = pod_info(
        {
            "metadata": {"name": name, "namespace": f"of-{name}", "uid": uid(number), "labels": labels},
            "spec": {"containers": [{"name": container}]},
            "status": {
                "containerStatuses": [{"name": container, "containerID": f"cri://{container_id(number)}"}]
            },
        },
        LABELLED,
    )
    assert pod is not None
    return pod


@settings(max_examples=400)
@given(
    st.sampled_from(list(CGROUPS)),
    below,
    names,
    names.filter(bool),
    st.dictionaries(names, texts),
    st.booleans(),
)
def test_names_cgroups_labels_and_containers_of_a_tenant_charge_no_other(
    cgroup: str, below: list[str], process: str, container: str, labels: dict[str, str], uid_known: bool
) -> None:
    victim = reported("victim", VICTIM, {"team": "blue", "a.b": "1"}, "main")
    mallory = reported("mallory", MALLORY, labels, container)
    # A source that knows no UIDs: links of containers without the pods' directories.
    without_uid = PodInfo("of-victim", "victim", containers={container_id(VICTIM): "main"})
    reports = {"kubelet_pods": PodReport((victim, mallory) if uid_known else (without_uid, mallory))}
    found = parse_cgroup(f"0::{'/'.join([cgroup, *below])}\n")
    assert isinstance(found, CgroupOwner)
    owner = resolve_owner(found, process, index_pods(reports))
    assert isinstance(owner, Owner)
    assert (owner.pod or owner.name) == CGROUPS[cgroup]
    snapshot = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=(), pods=(mallory, victim))
    (info,) = (
        family
        for family in build_families(snapshot, read_exporter_facts("1", "host"))
        if family.metric.name == "gputally_pod_info"
    )
    (values,) = (dict(zip(info.metric.labels, values, strict=True)) for values, _ in info.samples[1:])
    assert {name: value for name, value in values.items() if value and name.startswith("label_")} == {
        "label_team": "blue",
        "label_a_b": "1",
    }
