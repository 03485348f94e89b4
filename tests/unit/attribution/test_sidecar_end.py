"""When a sidecar ends: once the other containers of its pod have, and not before they began."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.attribution.sidecar import others_run, sees_containers, watch_containers
from tools.standin.procfs import FakeProcfs, container_id

OWN = "0::/\n"
SANDBOX = f"0::/../cri-containerd-{container_id(1)}.scope\n"
MAIN = f"0::/../cri-containerd-{container_id(2)}.scope\n"


@pytest.fixture
def pod(tmp_path: Path) -> FakeProcfs:
    """A pod that shares its processes: the sandbox, and a sidecar with a shell in it."""
    procfs = FakeProcfs(tmp_path)
    procfs.start(1, SANDBOX, name="pause")
    procfs.start(20, OWN, name="gputally")
    procfs.start(21, OWN, name="sh")
    (tmp_path / "self").symlink_to("20")
    (tmp_path / "uptime").touch()
    return procfs


class Looks(threading.Event):
    """A stop that never comes before these things have happened, one at each look."""

    def __init__(self, *happenings: Callable[[], None]) -> None:
        super().__init__()
        self.left = list(happenings)

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        if self.left:
            self.left.pop(0)()
        else:
            self.set()
        return self.is_set()


def test_the_sandbox_and_its_own_processes_do_not_count_as_containers(pod: FakeProcfs) -> None:
    assert not others_run(pod.root)
    pod.start(30, MAIN)
    assert others_run(pod.root)


def test_the_sidecar_ends_when_all_other_containers_have_ended(pod: FakeProcfs) -> None:
    pod.start(30, MAIN)
    pod.start(31, MAIN)
    ended = threading.Event()
    watch = Looks(lambda: pod.end(30), lambda: pod.end(31))
    watch_containers(pod.root, ended.set, watch)
    assert ended.is_set()
    assert not watch.is_set()


def test_the_sidecar_waits_for_a_container_that_has_not_started(pod: FakeProcfs) -> None:
    ended = threading.Event()
    watch = Looks(lambda: None, lambda: pod.start(30, MAIN), lambda: None)
    watch_containers(pod.root, ended.set, watch)
    assert not ended.is_set()


def test_a_pod_without_a_shared_pid_namespace_is_reported(tmp_path: Path, pod: FakeProcfs) -> None:
    assert sees_containers(pod.root)
    pod.start(1, OWN, name="gputally")
    assert not sees_containers(pod.root)
    assert not sees_containers(tmp_path / "nowhere")
