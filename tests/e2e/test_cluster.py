"""The cluster of the end-to-end tests works as a cluster and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.e2e.conftest import Keeper
from tests.e2e.driver import Driver, on_a_gpu
from tests.e2e.kubernetes import TIMEOUT, WAIT, Namespace, node_pids, pod, until
from tests.support.worlds import play, world
from tools import ROOT, Failed
from tools.standin.kubelet import message
from tools.test_cluster import audit, device_plugin, layout, preflight, record
from tools.test_cluster import cluster as test_cluster
from tools.test_cluster.cluster import Cluster

pytestmark = pytest.mark.timeout(900)

SERVER = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"
GPUS = ("GPU-00000000-0000-4000-8000-000000000001", "GPU-00000000-0000-4000-8000-000000000002")


def scrape_until(namespace: Namespace, wanted: str) -> str:
    """What the exporter shows, through its Service, once that is in it."""

    def ask() -> str:
        with urllib.request.urlopen(f"http://{namespace.address('gputally')}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text if wanted in text else ""

    return until(f"the exporter shows {wanted}", ask)


def service(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]},
    }


def test_a_pod_reaches_a_service_by_its_name(namespace: Namespace) -> None:
    namespace.run(pod("web", SERVER, labels={"app": "web"}))
    namespace.apply(service("web"))
    ask = f"""
import socket, time, urllib.request
for attempt in range(200):
    try:
        status = urllib.request.urlopen("http://web/", timeout=5).status
        break
    except OSError as error:  # the node takes a moment to hear of a new Service
        print(error, flush=True)
        time.sleep(0.5)
print(socket.gethostbyname("web.{namespace.name}.svc.cluster.local"), status)
"""

    address, status = namespace.printed(pod("client", ask)).splitlines()[-1].split()

    assert address == namespace.get("service", "web")["spec"]["clusterIP"]
    assert status == "200"
    # From this machine, too, and into the container by way of the kubelet.
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
        assert answer.status == 200
    assert namespace.kubectl("exec", "web", "--", "python", "-c", "print(6 * 7)") == "42\n"


def test_a_claim_gets_a_volume_that_any_user_may_write_to(namespace: Namespace, cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}},
    }
    writer = pod(
        "writer", "import os; open('/data/file', 'w').write('x'); print(os.getuid(), os.listdir('/data'))"
    )
    writer["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    writer["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    namespace.apply(claim)

    assert namespace.printed(writer) == "1000 ['file']\n"
    volume = namespace.get("persistentvolumeclaim", "data")["spec"]["volumeName"]

    namespace.kubectl("delete", "pod/writer", "persistentvolumeclaim/data")
    until(
        "the volume is gone",
        lambda: volume not in cluster.plane.kubectl("get", "persistentvolumes", "--output=name"),
    )
    until("its directory is gone", lambda: not (cluster.place.volumes / volume).exists())


@pytest.fixture(params=["whole", "time-sliced"])
def offered(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[list[str]]:
    devices = list(GPUS) if request.param == "whole" else device_plugin.time_sliced(GPUS, 2)
    with device_plugin.offering(cluster.place.device_plugins, devices):
        until("the node has the GPUs", lambda: allocatable(cluster) == len(devices))
        yield devices


def allocatable(cluster: Cluster) -> int:
    node = cluster.plane.api(f"/api/v1/nodes/{layout.NODE_NAME}")
    return int(node["status"]["allocatable"].get(device_plugin.RESOURCE, 0))


def held(cluster: Cluster, namespace: Namespace) -> dict[str, list[str]]:
    """Pod -> devices, as the kubelet tells on its own socket."""
    with grpc.insecure_channel(
        f"unix:{cluster.place.pod_resources}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/v1.PodResourcesLister/List")
        answer = message("v1.ListPodResourcesResponse")
        answer.ParseFromString(ask(b"", timeout=10, wait_for_ready=True))
    return {
        found.name: [
            device
            for container in found.containers
            for kind in container.devices
            for device in kind.device_ids
        ]
        for found in answer.pod_resources
        if found.namespace == namespace.name
    }


def test_the_kubelet_reports_which_pod_holds_which_gpu(
    namespace: Namespace, cluster: Cluster, offered: list[str]
) -> None:
    shown = "import os, signal; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); "
    namespace.run(pod("train", shown + "signal.sigwait([signal.SIGTERM])", gpus=1))
    namespace.run(pod("idle", WAIT))

    devices = held(cluster, namespace)

    assert devices["idle"] == []
    (device,) = devices["train"]
    assert device in offered
    visible = until("it has printed", lambda: namespace.kubectl("logs", "train"))
    assert visible.strip() == device_plugin.uuid_of(device)


def test_devices_are_offered_again_after_the_kubelet_was_killed(
    namespace: Namespace, cluster: Cluster
) -> None:
    with device_plugin.offering(cluster.place.device_plugins, GPUS):
        until("the node has the GPUs", lambda: allocatable(cluster) == len(GPUS))
        killed = cluster.host_pid("kubelet")
        os.kill(killed, signal.SIGKILL)
        until("another kubelet runs", lambda: cluster.host_pid("kubelet") != killed)

        namespace.run(pod("train", WAIT, gpus=1))

        (device,) = held(cluster, namespace)["train"]
        assert device in GPUS


def test_the_chart_serves_simulated_gpus_from_an_image_of_this_source(namespace: Namespace) -> None:
    digest = """
import hashlib, pathlib, gputally
directory, digest = pathlib.Path(gputally.__file__).parent, hashlib.sha256()
for file in sorted(directory.rglob("*.py")):
    digest.update(bytes(file.relative_to(directory)) + file.read_bytes())
print(digest.hexdigest())
"""
    namespace.install("gputally", {"exporter": {"reader": "simulated"}})
    namespace.wait_for_exporter("gputally")

    text = scrape_until(namespace, "gputally_gpu_info{")
    inside = namespace.kubectl("exec", "daemonset/gputally", "--", "python", "-c", digest)

    assert 'simulated="true"' in text
    source = {**os.environ, "PYTHONPATH": str(ROOT / "exporter")}
    here = subprocess.run(
        [sys.executable, "-c", digest], env=source, capture_output=True, text=True, check=True
    )
    assert inside == here.stdout
    namespace.uninstall("gputally")


def test_the_exporter_names_the_pod_of_a_process_that_the_driver_lists(
    namespace: Namespace, cluster: Cluster
) -> None:
    """The driver's stand-in is mounted as a driver would be; its process is a real one of a real pod."""
    driver = Driver.installed(cluster, "of-one-pod")
    (gpu,) = world("h100", gpus=1)
    uuid = gpu.gpu.uuid
    with device_plugin.offering(cluster.place.device_plugins, [uuid]):
        until("the node has the GPU", lambda: allocatable(cluster) == 1)
        trainer = namespace.run(pod("train", WAIT, gpus=1))
        (pid,) = node_pids(trainer)
        play(driver.scenario, (replace(gpu, processes=(on_a_gpu(pid),)),))

        namespace.install("gputally", driver.values())
        namespace.wait_for_exporter("gputally")

        wanted = f'uuid="{uuid}",namespace="{namespace.name}",pod="train",container="main"}} 1'
        text = scrape_until(namespace, wanted)
        (info,) = (line for line in text.splitlines() if line.startswith("gputally_pod_info{"))
        assert f'pod_uid="{trainer["metadata"]["uid"]}"' in info
        assert 'requested="true"' in info
        namespace.uninstall("gputally")


def test_the_stack_runs_on_its_own_volumes_and_passes_helm_test(
    namespace: Namespace, cluster: Cluster
) -> None:
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "grafana-login"},
        "stringData": {"admin-user": "admin", "admin-password": "for-tests-only"},
    }
    namespace.apply(login)
    stack = {"enabled": True, "grafana": {"admin": {"secret": "grafana-login"}}}
    namespace.install("gputally", {"exporter": {"reader": "simulated"}, "stack": stack})
    namespace.wait_for_exporter("gputally")
    for part in ("prometheus", "alertmanager", "grafana"):
        namespace.kubectl("rollout", "status", f"statefulset/gputally-{part}", TIMEOUT)

    namespace.test("gputally")

    query = urllib.parse.urlencode({"query": "count by (node) (gputally_gpu_info)"})
    url = f"http://{namespace.address('gputally-prometheus')}/api/v1/query?{query}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        (counted,) = json.load(answer)["data"]["result"]
    assert (counted["metric"], counted["value"][1]) == ({"node": layout.NODE_NAME}, "8")
    asked = audit.asked(cluster.place.directory, namespace.name, "gputally-prometheus")
    assert [each for each in asked if each.refused] == []
    # What it lists with an older API server, this one tells with the watch.
    assert ("watch", "pods") in {(each.verb, each.resource) for each in asked}
    namespace.uninstall("gputally")


def test_status_shows_what_runs_and_how_to_connect(cluster: Cluster) -> None:
    ran = subprocess.run([ROOT / "tools/cluster", "status"], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    for program in cluster.programs():
        assert re.search(rf"^{program['name']} +runs\b", ran.stdout, re.MULTILINE)
    assert f"node {layout.NODE_NAME}            is ready\n" in ran.stdout
    assert ran.stdout.endswith(f"export KUBECONFIG={cluster.plane.kubeconfig}\n")


def test_a_second_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=rf"already running, in {cluster.place.directory}: .*down"):
        test_cluster.up(tmp_path / "second", print)

    assert not (tmp_path / "second").exists()


# Places of a node that this machine itself does not have.
PLACES = (
    "/run/containerd",
    "/run/gputally-cluster.json",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/gputally",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


def traces() -> dict[str, list[str]]:
    """All of this machine that a cluster could leave something in."""

    def shown(*what: str) -> list[dict[str, str]]:
        ran = subprocess.run(["ip", "-json", *what], capture_output=True, text=True, check=True)
        found: list[dict[str, str]] = json.loads(ran.stdout or "[]")
        return found

    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "links": sorted(link["ifname"] for link in shown("link")),
        "routes": sorted(route["dst"] for route in shown("route")),
        "network namespaces": sorted(space["name"] for space in shown("netns")),
        "mounts": sorted(line.split()[4] for line in mounts),
        "cgroups": sorted(map(str, preflight.CGROUPS.glob(f"**/{layout.CGROUP}"))),
        "places": [place for place in PLACES if Path(place).exists()],
    }


def of_the_cluster(directory: Path) -> list[str]:
    """Processes that have to do with the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


def left(before: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is there now and was not before."""
    return {kind: new for kind, now in traces().items() if (new := sorted(set(now) - set(before[kind])))}


@pytest.fixture
def before(keeper: Keeper) -> dict[str, list[str]]:
    test_cluster.down(keeper.directory, keeper.say)
    return traces()


def test_nothing_is_left_after_down(keeper: Keeper, before: dict[str, list[str]]) -> None:
    started = test_cluster.up(keeper.directory, keeper.say, with_images=False)
    assert started.node_is_ready()
    assert left(before).keys() == {"links", "routes", "cgroups", "places"}

    test_cluster.down(keeper.directory, keeper.say)

    assert left(before) == {}
    assert of_the_cluster(keeper.directory) == []
    assert not keeper.directory.exists()


def test_nothing_is_left_after_the_cluster_was_killed(keeper: Keeper, before: dict[str, list[str]]) -> None:
    test_cluster.up(keeper.directory, keeper.say, with_images=False)
    os.kill(record.holders()[0], signal.SIGKILL)
    until("all its processes are gone", lambda: not of_the_cluster(keeper.directory))
    assert record.running() is None

    test_cluster.down(keeper.directory, keeper.say)

    assert left(before) == {}
    assert not keeper.directory.exists()


def test_nothing_is_left_of_a_start_that_was_killed(keeper: Keeper, before: dict[str, list[str]]) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "tools.test_cluster.command",
        "up",
        f"--directory={keeper.directory}",
    ]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL
    ) as starting:
        until("it starts", record.holders)
        starting.kill()
    # It goes on running although its parent has ended.
    assert record.running() == keeper.directory

    test_cluster.down(keeper.directory, keeper.say)

    assert left(before) == {}
    assert of_the_cluster(keeper.directory) == []
