"""The series of the exporters in Prometheus, and what their absence means."""

import pytest

from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING
from gputally.commands.servers import QueryRow
from gputally.commands.verify.prometheus import gpus, labels, pods, sources, targets
from tests.support.fake_servers import Sample, prometheus
from tests.support.texts import missing, numbers

UP = QueryRow({"node": "a"}, 1)
DOWN = QueryRow({"instance": "b:9400"}, 0)


def gpu(node: str, uuid: str, **more: str) -> Sample:
    return {"node": node, "uuid": uuid, **more}, 1


def test_exporters_that_are_up() -> None:
    assert targets(prometheus(), [UP, UP]).level == OK


def test_exporters_that_are_down_are_named_by_node_or_instance() -> None:
    found = targets(prometheus(), [UP, DOWN])
    assert (found.level, numbers(found.text)) == (FAILURE, [1, 2])
    assert "b:9400" in found.text


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("server returned HTTP status 401 Unauthorized", "web.basicAuth.secret"),
        ("tls: failed to verify certificate: x509: unknown authority", "web.tls.secret"),
        ("context deadline exceeded", "networkPolicy.scrapers"),
        ("connect: connection refused", "kubectl get pods"),
    ],
)
def test_the_error_of_the_scrape_determines_the_fix(error: str, fix: str) -> None:
    target = {"labels": {"job": "gputally", "instance": "b:9400"}, "lastError": error}
    other = {"labels": {"job": "other", "instance": "b:9400"}, "lastError": "not of ours"}
    found = targets(prometheus(targets={"activeTargets": [other, target]}), [DOWN])
    assert error in found.text
    assert "not of ours" not in found.text
    assert fix in found.fix


def test_of_many_down_exporters_three_are_named() -> None:
    found = targets(prometheus(), [QueryRow({"node": f"n{number}"}, 0) for number in range(9)])
    assert numbers(found.text) == [9, 9, 6]
    assert "n0; n1; n2;" in found.text
    assert "n3" not in found.text


def test_no_target() -> None:
    found = targets(prometheus(), [])
    assert found.level == FAILURE
    assert "job gputally" in found.text


def test_targets_of_another_job() -> None:
    found = targets(prometheus({"gputally_exporter_info": [({"job": "pods"}, 1)]}), [])
    assert missing(found.text, "job pods", "gputally") == []


def test_each_failing_source_has_a_line_with_its_privilege() -> None:
    down: list[Sample] = [
        ({"source": "cgroup", "node": "b"}, 0),
        ({"source": "cgroup", "node": "a"}, 0),
        ({"source": "nvml", "node": "a"}, 0),
    ]
    first, second = sources(prometheus({"gputally_source_up": down}))
    assert (first.level, missing(first.text, "cgroup", "a, b")) == (FAILURE, [])
    assert first.fix == "privileges.hostPID=true"
    assert "gputally check" in second.fix


def test_sources_that_are_up() -> None:
    (found,) = sources(prometheus({"count(count": [({}, 4)]}))
    assert found.level == OK
    assert "4 sources" in found.text


def test_gpus_on_nodes() -> None:
    (found,) = gpus(prometheus({"gputally_gpu_info": [gpu("a", "x"), gpu("b", "x"), gpu("b", "y")]}))
    assert (found.level, numbers(found.text)) == (OK, [3, 2])


def test_simulated_gpus_are_reported_as_simulated() -> None:
    (found,) = gpus(prometheus({"gputally_gpu_info": [gpu("a", "x", simulated="true"), gpu("a", "y")]}))
    assert numbers(found.text) == [2, 1, 1]
    assert "simulated" in found.text


def test_no_gpu() -> None:
    (found,) = gpus(prometheus())
    assert found.level == FAILURE
    assert "no exporter" in found.text


def test_a_node_without_gpus_and_lost_gpus_are_reported_and_do_not_fail() -> None:
    known: dict[str, list[Sample]] = {
        "gputally_gpu_info": [gpu("a", "x")],
        "gputally_exporter_info": [({"node": "a"}, 1.0), ({"node": "b"}, 1.0)],
        "gputally_gpu_up": [({"node": "a", "gpu": "0"}, 0.0)],
    }
    without, lost = gpus(prometheus(known))
    assert (without.level, lost.level) == (WARNING, WARNING)
    assert without.text.endswith(" b")
    assert missing(lost.text, "lost", "a GPU 0") == []


def test_a_gpu_that_is_scraped_twice_is_reported() -> None:
    (found,) = gpus(prometheus({"gputally_gpu_info": [gpu("a", "x", pod="p"), gpu("a", "x", pod="q")]}))
    assert (found.level, missing(found.text, "x of a")) == (WARNING, [])


def unnamed(*reasons: str) -> list[Sample]:
    return [({"reason": reason}, 2) for reason in reasons]


def test_named_pods() -> None:
    found = pods(prometheus({"gputally_pod_info": [({}, 3)]}))
    assert found.level == OK
    assert "3 pods" in found.text


def test_processes_without_any_pod_fail_with_the_missing_privilege() -> None:
    found = pods(prometheus({"gputally_gpu_unattributed": unnamed("unknown_pod", "pid_namespace")}))
    assert found.level == FAILURE
    assert missing(found.text, "pid_namespace (2 ", "unknown_pod (2 ") == []
    assert missing(found.fix, "privileges.hostPID=true", "privileges.podLogs=true") == []


def test_some_processes_without_a_pod_are_a_warning() -> None:
    found = pods(prometheus({"gputally_pod_info": [({}, 3)], "unattributed": unnamed("permission")}))
    assert found.level == WARNING
    assert missing(found.text, "3 pods", "permission (2 ") == []


def test_reasons_without_a_fix_do_not_fail() -> None:
    found = pods(prometheus({"gputally_pod_info": [({}, 3)], "unattributed": unnamed("exited", "zombie")}))
    assert found.level == OK


def test_processes_of_the_host_do_not_prove_that_pods_are_named() -> None:
    found = pods(prometheus({"gputally_host_processes": [({}, 4)]}))
    assert (found.level, numbers(found.text)) == (NOT_CHECKED, [4])


def test_busy_gpus_without_processes_indicate_a_missing_pid_namespace() -> None:
    found = pods(prometheus({"gputally_gpu_utilization_ratio": [({}, 2)]}))
    assert (found.level, found.fix) == (FAILURE, "privileges.hostPID=true")


def test_idle_gpus_are_not_checked() -> None:
    assert pods(prometheus()).level == NOT_CHECKED


def test_labels_that_the_scrape_replaces() -> None:
    found = labels(prometheus({"exported_pod": [({}, 5)], "exported_namespace": [({}, 5)]}))
    assert found.level == FAILURE
    assert found.text.endswith("exported_pod, exported_namespace")
    assert labels(prometheus()).level == OK


def test_only_series_of_this_cluster_are_queried() -> None:
    asked = prometheus().__class__(prometheus().server, "gpus", "north")
    assert asked.ours == 'job="gpus",cluster="north"'
    assert asked.recorded == '__name__=~".+:gputally_.+",cluster="north"'
