"""`gputally whose`: the owners of processes."""

import json
import os
from pathlib import Path

from tests.support.command_line import run
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid


def host(directory: Path) -> tuple[str, ...]:
    proc = FakeProcfs(directory / "proc")
    proc.start(41, pod_cgroup(uid(1), container_id(1)))
    proc.start(42, "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n")
    proc.start(43, pod_cgroup(uid(9), container_id(9)))
    (directory / "pods" / f"team-a_train-0_{uid(1)}" / "main").mkdir(parents=True)
    (directory / "containers").mkdir()
    return (
        *("--procfs", str(proc.root), "--pod-logs", str(directory / "pods")),
        *("--container-logs", str(directory / "containers")),
    )


def test_a_pod_a_job_and_an_unknown_process(tmp_path: Path) -> None:
    result = run("whose", "41", "42", "43", "44", *host(tmp_path))
    assert result.returncode == 1, "not all of them are known"
    assert result.stdout.splitlines() == [
        f"41: pod namespace=team-a pod=train-0 container=main pod_uid={uid(1)} "
        f"container_id={container_id(1)}",
        "42: slurm/42 slurm_job=42 slurm_step=0 user=1000",
        f"43: unknown (unknown_pod) pod_uid={uid(9)} container_id={container_id(9)}",
        "44: unknown (exited)",
    ]


def test_json_output(tmp_path: Path) -> None:
    result = run("whose", "41", "--json", *host(tmp_path))
    assert result.returncode == 0
    assert json.loads(result.stdout) == [
        {
            "pid": 41,
            "kind": "pod",
            "namespace": "team-a",
            "pod": "train-0",
            "container": "main",
            "pod_uid": uid(1),
            "container_id": container_id(1),
        }
    ]


def test_a_real_process_of_this_machine() -> None:
    result = run("whose", str(os.getpid()))
    assert result.returncode == 0
    assert result.stdout.startswith(f"{os.getpid()}: ")


def test_an_invalid_pid_is_named() -> None:
    result = run("whose", "0x41")
    assert result.returncode == 2
    assert "'0x41' is not a pid" in result.stderr
    assert len(result.stderr.splitlines()) == 1
