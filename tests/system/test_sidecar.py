"""A sidecar exits with 0 when the other containers end or on a signal."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.exporter import Exporter
from tools.standin.procfs import FakeProcfs, container_id

SANDBOX = f"0::/../cri-containerd-{container_id(1)}.scope\n"
SIDECAR = ("serve", "--sidecar", "--interval", "200ms")


@pytest.fixture
def pod(tmp_path: Path) -> FakeProcfs:
    """The /proc of a pod that shares its processes."""
    procfs = FakeProcfs(tmp_path / "proc")
    procfs.start(1, SANDBOX, name="pause")
    procfs.start(7, "0::/\n", name="gputally")
    (procfs.root / "self").symlink_to("7")
    return procfs


def arguments(directory: Path, procfs: FakeProcfs) -> tuple[str, ...]:
    return (*SIDECAR, "--sysfs", str(directory), "--procfs", str(procfs.root))


def test_the_sidecar_exits_when_the_other_containers_have_ended(tmp_path: Path, pod: FakeProcfs) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as work:
        # As a process of another container: in the same /proc, in another cgroup.
        (pod.root / str(work.pid)).symlink_to(f"/proc/{work.pid}")
        (pod.root / "7/cgroup").write_text(f"0::/sidecar-{container_id(3)}\n")
        with Exporter(tmp_path / "log", *arguments(tmp_path, pod)) as exporter:
            exporter.next_snapshots(6)  # longer than it takes to look
            work.communicate(b"")
            assert exporter.process.wait(60) == 0
            assert "other containers" in exporter.log.read_text()


def test_without_a_shared_pid_namespace_it_exits_on_a_signal(tmp_path: Path, pod: FakeProcfs) -> None:
    pod.start(1, "0::/\n", name="gputally")
    with Exporter(tmp_path / "log", *arguments(tmp_path, pod)) as exporter:
        exporter.wait_until(
            lambda: "the pod has no shareProcessNamespace" in exporter.log.read_text(), "it says so"
        )
        exporter.stop(signal.SIGTERM)
        assert exporter.process.returncode == 0


def test_the_sidecar_reports_what_it_needs_to_identify_its_pod(tmp_path: Path, pod: FakeProcfs) -> None:
    with Exporter(tmp_path / "log", *arguments(tmp_path, pod)) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "own_pod") == 0, "it has no name")
        assert "GPUTALLY_POD_NAME" in exporter.log.read_text()
    named = {"POD_NAME": "train-0", "POD_NAMESPACE": "team-a"}
    with Exporter(tmp_path / "log", *arguments(tmp_path, pod), environment=named) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "own_pod") == 1, "it has a name")
