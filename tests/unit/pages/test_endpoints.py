"""The exporter's endpoints, and when it is ready."""

import zlib

from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.model import Gpu, Reading, Snapshot, SourceState
from gputally.pages import Endpoints, readiness

UP = SourceState(name="nvml", up=True)
DOWN = SourceState(name="nvml", up=False, reason="NVML library not found")


def snapshot(*sources: SourceState, age: float = 0.0, gpus: int = 0) -> Snapshot:
    readings = tuple(Reading(gpu=Gpu(f"GPU-{i}", i, "nvidia", "T4")) for i in range(gpus))
    return Snapshot(taken_at_seconds=1000.0, age_seconds=age, readings=readings, sources=sources)


def test_not_ready_before_the_first_sample() -> None:
    assert readiness(snapshot(), 1000.0, 60) == (False, "not ready: the first sample is not finished")


def test_ready_with_gpus() -> None:
    assert readiness(snapshot(UP, gpus=2), 1001.0, 60) == (True, "ready: 2 GPUs")


def test_ready_without_a_gpu_but_it_says_why() -> None:
    assert readiness(snapshot(DOWN), 1001.0, 60) == (True, "ready: 0 GPUs (nvml: NVML library not found)")


def test_not_ready_when_the_sampler_stands_still() -> None:
    assert readiness(snapshot(UP, gpus=1), 1061.5, 60) == (False, "not ready: the readings are 62 s old")


def test_not_ready_when_a_source_hangs_for_long() -> None:
    hanging = SourceState(name="nvml", up=False, reason="no answer within 4 s")
    ready, text = readiness(snapshot(hanging, age=75.0, gpus=1), 1001.0, 60)
    assert (ready, text) == (False, "not ready: the readings are 76 s old (nvml: no answer within 4 s)")


def test_a_clock_that_was_set_back_does_not_make_readings_old() -> None:
    assert readiness(snapshot(UP), 10.0, 60)[0]


def endpoints(metrics_path: str = "/metrics") -> Endpoints:
    return Endpoints(lambda _: [], metrics_path=metrics_path, hostname="node-1", max_age_seconds=60)


def test_metrics_come_in_the_format_and_encoding_that_the_client_prefers() -> None:
    metrics = endpoints().by_path["/metrics"]
    plain, packed = metrics.respond(False, False), metrics.respond(True, True)
    assert (plain.status, plain.content_type) == (200, TEXT)
    assert dict(plain.headers) == {"Vary": "Accept, Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    assert packed.content_type == OPENMETRICS
    assert dict(packed.headers)["Content-Encoding"] == "gzip"
    assert zlib.decompress(packed.body, wbits=31) == b"# EOF\n"


def test_the_landing_page_may_run_no_script() -> None:
    landing = endpoints().by_path["/"].respond(False, False)
    assert landing.content_type == "text/html; charset=utf-8"
    headers = dict(landing.headers)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_metrics_at_the_root_replace_the_landing_page() -> None:
    only = endpoints("/").by_path
    assert list(only) == ["/"]
    assert only["/"].respond(False, False).content_type == TEXT


def test_readiness_follows_the_snapshot() -> None:
    found = endpoints()
    assert found.ready.respond(False, False).status == 503
    found.publish(Snapshot(taken_at_seconds=2e10, age_seconds=0, readings=(), sources=(UP,)))
    assert found.ready.respond(False, False).status == 200
