"""The watch on the API server, over real HTTP: what it learns, and what it survives."""

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from gputally.attribution import kubernetes, kubernetes_api
from gputally.attribution.kubernetes import Kubernetes
from gputally.model import PodInfo, Unavailable
from tests.unit.attribution.fake_kubernetes import FakeKubernetes, pod, serving, write_kubeconfig
from tools.servers.waiting import wait_until


@pytest.fixture
def cluster() -> FakeKubernetes:
    return FakeKubernetes()


@pytest.fixture
def kubeconfig(cluster: FakeKubernetes, tmp_path: Path) -> Iterator[Path]:
    with serving(cluster) as port:
        yield write_kubeconfig(tmp_path / "kubeconfig", port)


@pytest.fixture
def watching(kubeconfig: Path) -> Iterator[Kubernetes]:
    source = source_of(kubeconfig)
    yield source
    source.close()


def source_of(
    kubeconfig: Path, node: str = "node-1", first_wait: float = 100.0, overdue: float = 0.0
) -> Kubernetes:
    return Kubernetes(
        node,
        pod_labels=["team"],
        pod_annotations=["cost-center"],
        kubeconfig=kubeconfig,
        first_wait_seconds=first_wait,
        longest_pause_seconds=0.6,
        overdue_seconds=overdue,
    )


def names(source: Kubernetes) -> set[str]:
    return {facts.pod for facts in source.read().pods}


def only(source: Kubernetes) -> PodInfo:
    (facts,) = source.read().pods
    return facts


def refusal(source: Kubernetes) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        source.read()
    return caught.value


def test_the_first_read_has_the_existing_pods(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    cluster.put(pod("train", labels={"team": "vision", "other": "x"}, annotations={"cost-center": "4711"}))
    facts = only(watching)
    assert (facts.namespace, facts.pod, facts.pod_uid, facts.node) == (
        "team-a",
        "train",
        "uid-of-train",
        "node-1",
    )
    assert facts.labels == (("cost-center", "4711"), ("team", "vision"))
    assert facts.container_names == ("main",)
    assert watching.read().allocations == ()
    assert watching.stale is None


def test_added_changed_and_deleted_pods_are_followed(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    first, second = pod("first"), pod("second")
    cluster.put(first)
    assert names(watching) == {"first"}
    cluster.put(second)
    wait_until(lambda: names(watching) == {"first", "second"})
    cluster.put(pod("first", labels={"team": "speech"}))
    wait_until(
        lambda: ("team", "speech") in {label for facts in watching.read().pods for label in facts.labels}
    )
    cluster.delete(second)
    wait_until(lambda: names(watching) == {"first"})
    assert len(cluster.asked("list")) == 1


def test_a_pod_replaced_by_one_of_the_same_name_is_another_pod(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    old = pod("db-0", uid="old")
    cluster.put(old)
    assert only(watching).pod_uid == "old"
    cluster.delete(old)
    cluster.put(pod("db-0", uid="new"))
    wait_until(lambda: [facts.pod_uid for facts in watching.read().pods] == ["new"])


def test_pods_of_other_nodes_are_dropped(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    cluster.put(pod("ours"))
    cluster.put(pod("listed-elsewhere", node="node-2"))
    assert names(watching) == {"ours"}
    cluster.put(pod("watched-elsewhere", node="node-2"))
    cluster.put(pod("ours-too"))
    wait_until(lambda: names(watching) == {"ours", "ours-too"})


def test_a_long_list_is_read_in_pages(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    for number in range(7):
        cluster.put(pod(f"p{number}"))
    cluster.set(page_size=3)
    assert names(watching) == {f"p{number}" for number in range(7)}
    lists = cluster.asked("list")
    assert [query.get("continue") for query in lists] == [None, "3", "6"]
    assert lists[0]["resourceVersion"] == "0"  # from the API server's memory
    assert lists[0]["limit"] == "100"


def test_an_interrupted_watch_continues_at_its_resource_version(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    cluster.put(pod("before"))
    assert names(watching) == {"before"}
    wait_until(lambda: len(cluster.asked("watch")) == 1)
    cluster.put(pod("during"))
    wait_until(lambda: names(watching) == {"before", "during"})
    cluster.cut()
    cluster.put(pod("after"))
    wait_until(lambda: names(watching) == {"before", "during", "after"})
    assert len(cluster.asked("list")) == 1
    assert cluster.asked("watch")[-1]["resourceVersion"] == "102"


def test_a_bookmark_advances_the_resource_version(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    cluster.put(pod("a"))
    assert names(watching) == {"a"}
    wait_until(lambda: len(cluster.asked("watch")) == 1)
    cluster.bookmark()
    cluster.put(pod("b"))
    wait_until(lambda: names(watching) == {"a", "b"})
    cluster.bookmark()
    cluster.say(json.dumps({"type": "SOMETHING_NEW", "object": None}).encode())
    cluster.put(pod("c"))
    wait_until(lambda: names(watching) == {"a", "b", "c"})
    assert cluster.asked("watch")[0]["allowWatchBookmarks"] == "true"
    cluster.bookmark()
    bookmarked = str(cluster.version)

    def went_on_from_the_bookmark() -> bool:
        cluster.cut()
        return cluster.asked("watch")[-1]["resourceVersion"] == bookmarked

    wait_until(went_on_from_the_bookmark)
    assert len(cluster.asked("list")) == 1


def test_pods_are_listed_again_after_410_gone(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    gone = pod("gone")
    cluster.put(gone)
    assert names(watching) == {"gone"}
    wait_until(lambda: len(cluster.asked("watch")) == 1)
    with cluster.changed:
        # All happens while there is no watch: the event itself is no longer available.
        cluster.cut()
        cluster.delete(gone)
        cluster.put(pod("new"))
        cluster.oldest = cluster.version
        cluster.events.clear()
    wait_until(lambda: names(watching) == {"new"})
    assert [query["resourceVersion"] for query in cluster.asked("list")] == ["0", ""]
    wait_until(lambda: watching.stale is None)


def test_410_as_the_status_of_the_watch_lists_pods_again(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    cluster.put(pod("a"))
    cluster.set(statuses={"watch": (410, "Gone")})
    assert names(watching) == {"a"}
    wait_until(lambda: len(cluster.asked("list")) >= 2)
    cluster.set(statuses={})
    wait_until(lambda: watching.stale is None)


def test_another_error_of_the_watch_is_reported_and_the_pods_are_kept(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    cluster.put(pod("a"))
    cluster.set(watch_statuses=[{"code": 500, "message": "etcdserver: leader changed"}] * 3)
    seen = []
    assert names(watching) == {"a"}

    def all_errors_are_over() -> bool:
        seen.append(watching.stale)
        return not cluster.watch_statuses and watching.stale is None

    wait_until(all_errors_are_over)
    assert "etcdserver: leader changed" in {str(t) for t in seen if t}.pop()
    assert names(watching) == {"a"}
    assert len(cluster.asked("list")) == 1


@pytest.mark.parametrize("garbage", [b"<html>no</html>", b"[1]", b'{"type":', b"\xff\xfe", b"[" * 200_000])
def test_a_malformed_event_leads_to_a_new_list(
    cluster: FakeKubernetes, watching: Kubernetes, garbage: bytes
) -> None:
    cluster.put(pod("a"))
    assert names(watching) == {"a"}
    wait_until(lambda: len(cluster.asked("watch")) == 1)
    cluster.say(garbage)
    wait_until(lambda: len(cluster.asked("list")) == 2)
    cluster.put(pod("b"))
    wait_until(lambda: names(watching) == {"a", "b"})


@pytest.mark.parametrize("body", [b"<html>login</html>", b"{}", b'{"metadata": 3, "items": 4}', b""])
def test_a_malformed_list_does_not_count_as_an_empty_node(
    cluster: FakeKubernetes, watching: Kubernetes, body: bytes
) -> None:
    cluster.put(pod("a"))
    cluster.set(list_bodies=[body])
    assert refusal(watching).reason
    wait_until(lambda: watching._report is not None)
    assert names(watching) == {"a"}


def test_malformed_pods_are_ignored(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    body: object = {"metadata": {"resourceVersion": "100"}, "items": [None, 3, {"metadata": []}, pod("a")]}
    cluster.set(list_bodies=[json.dumps(body).encode()])
    assert names(watching) == {"a"}
    cluster.say(json.dumps({"type": "DELETED", "object": ["?"]}).encode())
    cluster.say(json.dumps({"type": "ADDED"}).encode())
    cluster.put(pod("b"))
    wait_until(lambda: names(watching) == {"a", "b"})
    assert len(cluster.asked("list")) == 1


def test_without_permission_the_fix_has_the_rbac_rule(cluster: FakeKubernetes, watching: Kubernetes) -> None:
    message = 'pods is forbidden: User "system:serviceaccount:gpu:gputally" cannot list resource "pods"'
    cluster.set(statuses={"list": (403, message)})
    refused = refusal(watching)
    assert "list pods" in refused.reason
    assert message in refused.reason
    assert 'apiGroups: [""], resources: [pods], verbs: [list, watch]' in refused.fix
    cluster.put(pod("a"))
    cluster.set(statuses={})
    wait_until(lambda: watching._report is not None)
    assert names(watching) == {"a"}


def test_with_list_but_without_watch_the_pods_are_listed_repeatedly(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    cluster.put(pod("a"))
    cluster.set(statuses={"watch": (403, "cannot watch")})
    assert names(watching) == {"a"}
    cluster.put(pod("b"))
    wait_until(lambda: names(watching) == {"a", "b"})
    stale = watching.stale
    assert stale is not None
    assert "watch pods" in stale[0]
    assert "verbs: [list, watch]" in stale[1]


def test_rejected_credentials_are_read_again(
    cluster: FakeKubernetes, watching: Kubernetes, kubeconfig: Path
) -> None:
    cluster.put(pod("a"))
    cluster.set(token="rotated")
    refused = refusal(watching)
    assert "401" in refused.reason
    assert "token" in refused.fix
    kubeconfig.write_text(kubeconfig.read_text().replace("let-me-in", "rotated"))
    wait_until(lambda: watching._report is not None)
    assert names(watching) == {"a"}


def test_a_server_that_starts_slowly_does_not_block_the_read(
    cluster: FakeKubernetes, kubeconfig: Path
) -> None:
    cluster.set(hold_lists=True)
    cluster.put(pod("a"))
    source = source_of(kubeconfig, first_wait=0.0)
    try:
        assert "not answered yet" in refusal(source).reason
        wait_until(lambda: len(cluster.asked("list")) == 1)
        assert "not answered yet" in refusal(source).reason
        cluster.set(hold_lists=False)
        wait_until(lambda: source._report is not None)
        assert names(source) == {"a"}
    finally:
        source.close()


def test_a_server_that_stops_and_starts_again(cluster: FakeKubernetes, tmp_path: Path) -> None:
    cluster.put(pod("a"))
    with serving(cluster) as port:
        source = source_of(write_kubeconfig(tmp_path / "kubeconfig", port))
        assert names(source) == {"a"}
    try:
        wait_until(lambda: source.stale is not None and "not reachable" in source.stale[0])
        assert source.stale is not None
        assert f"127.0.0.1:{port}" in source.stale[0]
        assert "API server" in source.stale[1]
        assert names(source) == {"a"}, "what was known stays known"
        cluster.put(pod("b"))
        with serving(cluster, port):
            wait_until(lambda: names(source) == {"a", "b"})
            wait_until(lambda: source.stale is None)
    finally:
        source.close()


@pytest.mark.parametrize("may_get_nodes", [True, False])
def test_node_labels_are_read_if_permitted_and_pods_in_either_case(
    cluster: FakeKubernetes, kubeconfig: Path, may_get_nodes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put(pod("a"))
    cluster.node_labels = {"zone": "z1", "secret": "x"}
    if not may_get_nodes:
        cluster.set(statuses={"get nodes": (403, "no")})
    source = Kubernetes("node-1", node_labels=["zone"], kubeconfig=kubeconfig, first_wait_seconds=100.0)
    try:
        assert names(source) == {"a"}
        assert source.read().node_labels == ((("zone", "z1"),) if may_get_nodes else ())
        assert ("resources: [nodes], verbs: [get]" in caplog.text) is not may_get_nodes
    finally:
        source.close()


def test_a_short_interruption_is_not_reported(cluster: FakeKubernetes, kubeconfig: Path) -> None:
    cluster.put(pod("a"))
    cluster.set(statuses={"watch": (503, "shutting down")})
    source = source_of(kubeconfig, overdue=60.0)
    try:
        assert names(source) == {"a"}
        wait_until(lambda: len(cluster.asked("watch")) >= 2)
        assert source.stale is None
    finally:
        source.close()


class CountedPauses(threading.Event):
    """The event that ends a pause between two watches; it counts the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return super().wait(timeout)


def test_a_proxy_that_ends_each_watch_at_once_is_not_flooded_with_requests(
    cluster: FakeKubernetes, watching: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "_SHORTEST_WATCH_SECONDS", 3600.0)  # on a busy machine too: at once
    watching._stop = pauses = CountedPauses()
    cluster.put(pod("a"))
    cluster.set(end_watches_at_once=True)
    assert names(watching) == {"a"}
    wait_until(lambda: len(cluster.asked("watch")) >= 3)
    watches, paused = len(cluster.asked("watch")), len(pauses.seconds)
    assert watches - 1 <= paused, "each watch but the first comes after a pause"
    assert min(pauses.seconds) >= 0.25
    cluster.set(end_watches_at_once=False)
    cluster.put(pod("b"))
    wait_until(lambda: names(watching) == {"a", "b"})


def test_a_node_without_pods_suggests_a_wrong_node_name(watching: Kubernetes) -> None:
    assert watching.read().pods == ()
    stale = watching.stale
    assert stale is not None
    assert "node-1" in stale[0]
    assert "kubectl get nodes" in stale[1]


def test_without_a_node_name_no_request_is_sent(cluster: FakeKubernetes, kubeconfig: Path) -> None:
    source = source_of(kubeconfig, node="")
    assert "NODE_NAME" in refusal(source).fix
    source.close()
    assert cluster.asked("list") == []


@pytest.mark.parametrize("content", [None, "", "}{", "- 1", "clusters: 3", "current-context: x"])
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    source = source_of(file)
    try:
        refused = refusal(source)
        assert "no cluster is configured" in refused.reason
        assert "kubeconfig" in refused.fix
    finally:
        source.close()


def test_closing_ends_an_open_watch(cluster: FakeKubernetes, kubeconfig: Path) -> None:
    cluster.put(pod("a"))
    source = source_of(kubeconfig)
    source.read()
    wait_until(lambda: len(cluster.asked("watch")) == 1)
    thread = source._thread
    assert thread is not None
    source.close()
    wait_until(lambda: not thread.is_alive())
    assert "closed" in refusal(source).reason
    source.close()


def test_closing_does_not_wait_for_a_server_that_does_not_respond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api, "_LIST_SECONDS", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = source_of(write_kubeconfig(tmp_path / "kubeconfig", silent.getsockname()[1]), first_wait=0.0)
        assert "not answered yet" in refusal(source).reason
        connection, _ = silent.accept()
        with connection:
            source.close()
            assert source._thread is not None
            assert source._thread.is_alive(), "it waits for the server still"


def test_closing_before_the_first_read(kubeconfig: Path) -> None:
    source_of(kubeconfig).close()


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kubelet mounts the token; the cluster's address is in the environment."""
    from kubernetes.config import incluster_config

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path


def in_cluster() -> Kubernetes:
    return Kubernetes("node-1", first_wait_seconds=100.0, longest_pause_seconds=0.6, overdue_seconds=0.0)


def test_in_a_cluster_without_a_token_the_reason_is_reported(service_account: Path) -> None:
    source = in_cluster()
    try:
        refused = refusal(source)
        assert "token" in refused.reason
        assert "token" in refused.fix
    finally:
        source.close()


def test_in_a_cluster_the_token_of_the_service_account_is_used_and_renewed(
    cluster: FakeKubernetes, service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(service_account / "ca.crt")
    (service_account / "token").write_text("let-me-in")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    cluster.put(pod("a"))
    with serving(cluster, tls=tls) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        source = in_cluster()
        assert names(source) == {"a"}
        wait_until(lambda: len(cluster.asked("watch")) == 1)
        cluster.set(token="renewed")
        cluster.cut()
        wait_until(lambda: source.stale is not None and "401" in source.stale[0])
        (service_account / "token").write_text("renewed")
        cluster.put(pod("b"))
        wait_until(lambda: names(source) == {"a", "b"})
        wait_until(lambda: source.stale is None)
        thread = source._thread
        assert thread is not None
        source.close()
        wait_until(lambda: not thread.is_alive())


def test_a_server_with_a_certificate_of_another_authority_is_refused(
    cluster: FakeKubernetes, service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trustme.CA().cert_pem.write_to_path(service_account / "ca.crt")
    (service_account / "token").write_text("let-me-in")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    with serving(cluster, tls=tls) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        source = in_cluster()
        refused = refusal(source)
        source.close()
    assert "certificate" in refused.reason.lower()
    assert "certificates" in refused.fix
    assert cluster.requests == []


def test_concurrent_readers_get_consistent_pods_while_pods_change(
    cluster: FakeKubernetes, watching: Kubernetes
) -> None:
    cluster.put(pod("steady"))
    watching.read()
    torn = []

    def read_on() -> None:
        for _ in range(300):
            if "steady" not in names(watching):
                torn.append(1)

    readers = [threading.Thread(target=read_on) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(100):
        passing = pod(f"passing-{number}")
        cluster.put(passing)
        cluster.delete(passing)
    for reader in readers:
        reader.join()
    wait_until(lambda: names(watching) == {"steady"})
    assert torn == []


def test_the_client_is_imported_only_when_it_reads() -> None:
    program = (
        "import sys; from gputally.attribution.kubernetes import Kubernetes; Kubernetes('node-1').close();"
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
