"""Pods and releases of the chart in a cluster."""

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tools import Failed
from tools.dependencies import programs
from tools.servers.control_plane import ControlPlane
from tools.servers.waiting import wait_until
from tools.test_cluster.images import WORKLOAD

CHART = Path(__file__).parents[2] / "helm/gputally"
WAIT = "import signal; signal.sigwait([signal.SIGTERM])"
"""The program of a pod that only waits."""
SECONDS = 400
"""A limit that only a failure reaches, also on a busy machine."""
TIMEOUT = f"--timeout={SECONDS}s"

T = TypeVar("T")
Object = dict[str, Any]


def until(what: str, condition: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """The first true result of `condition`; failures to reach the cluster do not end the wait."""
    return wait_until(condition, what, seconds, ignore=(Failed, OSError))


def pod(name: str, python: str, *, gpus: int = 0, labels: Mapping[str, str] = {}) -> Object:
    """A pod that runs this Python program."""
    container: Object = {"name": "main", "image": WORKLOAD, "args": ["-c", python]}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [container]},
    }


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of a cluster."""

    plane: ControlPlane
    name: str

    @classmethod
    @contextmanager
    def made(cls, plane: ControlPlane, test: str) -> Iterator["Namespace"]:
        name = f"test-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
        plane.kubectl("create", "namespace", name)
        found = cls(plane, name)
        until("the namespace has its account", lambda: found.kubectl("get", "serviceaccount", "default"))
        try:
            yield found
        finally:
            # The pods' GPUs must be free for the next test; the namespace may be deleted later.
            found.kubectl("delete", "pods", "--all", TIMEOUT)
            plane.kubectl("delete", "namespace", name, "--wait=false")

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return self.plane.kubectl("--namespace", self.name, *arguments, given=given)

    def apply(self, *objects: Object) -> None:
        self.kubectl(
            "apply", "--filename=-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.kubectl("get", kind, name, "--output=json"))
        return found

    def run(self, made: Object) -> Object:
        """The pod, once it is ready."""
        name = made["metadata"]["name"]
        self.apply(made)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={SECONDS}s")
        return self.get("pod", name)

    def printed(self, made: Object) -> str:
        """The output of the pod after it has succeeded."""
        name = made["metadata"]["name"]
        self.apply(made)
        phase = until(f"{name} has ended", lambda: self._phase_at_end(name))
        printed = self.kubectl("logs", name)
        assert phase == "Succeeded", printed
        return printed

    def _phase_at_end(self, name: str) -> str:
        status = self.get("pod", name)["status"]
        phase: str = status["phase"]
        if phase not in {"Succeeded", "Failed"}:
            raise Failed(json.dumps(status))
        return phase

    def install(self, release: str, values: Mapping[str, Any], *, chart: Path = CHART) -> None:
        """Installs or upgrades the chart."""
        self._helm("upgrade", "--install", release, str(chart), "--values=-", given=json.dumps(values))

    def uninstall(self, release: str) -> None:
        self._helm("uninstall", release, "--wait", TIMEOUT)

    def notes(self, release: str) -> str:
        """Helm's notes of the installation."""
        return self._helm("get", "notes", release)

    def test(self, release: str) -> str:
        """The output of `helm test`, which must succeed."""
        return self._helm("test", release, "--logs", TIMEOUT)

    def pods_of(self, release: str) -> Sequence[Object]:
        selector = f"--selector=app.kubernetes.io/instance={release}"
        items: Sequence[Object] = json.loads(self.kubectl("get", "pods", selector, "--output=json"))["items"]
        return items

    def wait_for_exporter(self, release: str) -> None:
        """Waits until all pods have the newest version and are ready."""
        self.kubectl("rollout", "status", f"daemonset/{release}", f"--timeout={SECONDS}s")
        # A DaemonSet of one pod may count as rolled out before that pod exists.
        until(
            "the exporter is ready",
            lambda: all(map(is_ready, self.pods_of(release))) and self.pods_of(release),
        )

    def address(self, service: str) -> str:
        spec = self.get("service", service)["spec"]
        return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def _helm(self, *arguments: str, given: str = "") -> str:
        ran = subprocess.run(
            [programs.path("helm"), "--namespace", self.name, *arguments],
            input=given,
            env=self.plane.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
        return ran.stdout


def is_ready(found: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in found["status"].get("conditions", ())
    )


def node_pids(found: Object) -> list[int]:
    """The pids of a pod's containers on the node, as an exporter with `hostPID` sees them.

    This machine is one namespace further out: its own pid comes first in NSpid.
    """
    containers = [status["containerID"].rpartition("/")[2] for status in found["status"]["containerStatuses"]]
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cgroup = (process / "cgroup").read_text()
            status = (process / "status").read_text()
        except OSError:
            continue
        if any(container in cgroup for container in containers):
            (numbers,) = (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
            pids.append(int(numbers[1]))
    return sorted(pids)
