"""The check of one pod: sampled, used and charged."""

from gputally.commands import FAILURE, NOT_CHECKED, OK
from gputally.commands.servers import PrometheusApi, RemoteServer
from gputally.commands.verify.pod import PodLoad, verify_pod
from tests.support.fake_servers import Sample, prometheus

LOAD = PodLoad("nlp", "train-.+", 0.5, 1800)
SEEN: dict[str, list[Sample]] = {"gputally_pod_info": [({}, 1)]}
CHARGED: dict[str, list[Sample]] = {
    "gputally_pod_held_seconds_total": [({}, 60)],
    "gputally_pod_energy_joules_total": [({}, 9000)],
}


def levels(queries: dict[str, list[Sample]]) -> list[str]:
    return [one.level for one in verify_pod(prometheus(queries), LOAD)]


def test_a_pod_is_queried_by_namespace_and_name_over_the_window() -> None:
    assert LOAD.series("x") == 'x{namespace="nlp",pod=~"train-.+"}[1800s]'


def test_a_pod_with_enough_use() -> None:
    assert levels({**SEEN, **CHARGED, "gputally_pod_sm_utilization": [({}, 0.9)]}) == [OK, OK, OK, OK]


def test_a_pod_with_too_little_use() -> None:
    assert levels({**SEEN, **CHARGED, "gputally_pod_sm_utilization": [({}, 0.49)]}) == [OK, FAILURE, OK, OK]


def test_without_process_samples_the_utilisation_of_the_gpu_is_used() -> None:
    assert levels({**SEEN, **CHARGED, "gputally_gpu_utilization_ratio": [({}, 0.8)]}) == [OK, OK, OK, OK]
    assert levels({**SEEN, **CHARGED}) == [OK, NOT_CHECKED, OK, OK]


def test_a_pod_without_a_charge() -> None:
    assert levels({**SEEN, "gputally_pod_sm_utilization": [({}, 0.9)]}) == [OK, OK, FAILURE, FAILURE]


def test_a_pod_without_series() -> None:
    assert levels({}) == [FAILURE, NOT_CHECKED, NOT_CHECKED, NOT_CHECKED]


def test_an_unreachable_prometheus() -> None:
    (found,) = verify_pod(PrometheusApi(RemoteServer("http://127.0.0.1:1"), ""), LOAD)
    assert (found.level, found.subject) == (FAILURE, "prometheus")
