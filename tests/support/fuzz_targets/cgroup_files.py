"""/proc/<pid>/cgroup and the names in log directories: an owner or the reason why there is none."""

from pathlib import Path

from gputally.attribution import CgroupOwner
from gputally.attribution.cgroup import parse_cgroup
from gputally.attribution.pod_logs import parse_container_log, parse_link_target, parse_pod_directory
from gputally.model import Unknown
from tools import ROOT

CORPUS = [
    line.rpartition(b"\t")[2] or line
    for line in Path(ROOT / "tests/fixtures/cgroups.tsv").read_bytes().splitlines()
    if not line.startswith(b"#")
] + [
    b"0::/kubepods.slice/kubepods-pod3f0c1e9a_1d2b_4c3d_8e4f_5a6b7c8d9e0f.slice/cri-containerd-%b.scope\n"
    % (b"a" * 64),
    b"12:devices:/docker/%b\n0::/\n" % (b"0" * 64),
    b"ml_train-0_3f0c1e9a-1d2b-4c3d-8e4f-5a6b7c8d9e0f",
    b"train-0_ml_main-%b.log" % (b"a" * 64),
    b"/var/log/pods/ml_train-0_3f0c1e9a-1d2b-4c3d-8e4f-5a6b7c8d9e0f/main/0.log",
]


def one_input(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    found = parse_cgroup(text)
    assert isinstance(found, CgroupOwner | Unknown)
    assert isinstance(parse_cgroup(f"0::{text}\n"), CgroupOwner | Unknown)
    for parse in (parse_pod_directory, parse_container_log, parse_link_target):
        parse(text)
