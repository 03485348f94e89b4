"""The exporter's endpoints, and when it is ready."""

import zlib

from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.model import Gpu, Reading, Snapshot, SourceState
from gputally.pages import Endpoints, readiness
from tests.support.texts import missing, numbers

UP = SourceState(name="nvml", up=True)
DOWN = SourceState(name="nvml", up=False, reason="NVML library not found")


def snapshot(*sources: SourceState, age: float = 0.0, gpus: int = 0) -> Snapshot:
    readings = tuple(Reading(gpu=Gpu(f"GPU-{i}", i, "nvidia", "T4")) for i in range(gpus))
    return Snapshot(taken_at_seconds=1000.0, age_seconds=age, readings=readings, sources=sources)


def test_not_ready_before_the_first_sample() -> None:
    ready, text = readiness(snapshot(), 1000.0, 60)
    assert not ready
    assert "first sample" in text


def test_ready_with_gpus() -> None:
    ready, text = readiness(snapshot(UP, gpus=2), 1001.0, 60)
    assert (ready, numbers(text)) == (True, [2])


def test_ready_without_a_gpu_and_the_reason_is_reported() -> None:
    ready, text = readiness(snapshot(DOWN), 1001.0, 60)
    assert (ready, numbers(text)) == (True, [0])
    assert f"nvml: {DOWN.reason}" in text


def test_not_ready_when_sampling_has_stopped() -> None:
    ready, text = readiness(snapshot(UP, gpus=1), 1061.5, 60)
    assert (ready, numbers(text)) == (False, [62])


def test_not_ready_when_a_source_hangs_for_too_long() -> None:
    hanging = SourceState(name="nvml", up=False, reason="no answer within 4 s")
    ready, text = readiness(snapshot(hanging, age=75.0, gpus=1), 1001.0, 60)
    assert not ready
    assert missing(text, "76 s", f"nvml: {hanging.reason}") == []


def test_readings_are_not_stale_after_the_clock_was_set_back() -> None:
    assert readiness(snapshot(UP), 10.0, 60)[0]


def endpoints(metrics_path: str = "/metrics") -> Endpoints:
    return Endpoints(lambda _: [], metrics_path=metrics_path, hostname="node-1", max_age_seconds=60)


def test_metrics_have_the_format_and_encoding_that_the_client_prefers() -> None:
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
