"""The exporter's endpoints, and when it is ready."""

import zlib
from dataclasses import replace

import pytest

from gputally import pages
from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Gpu, Owner, Reading, Snapshot, SourceState, Use
from gputally.pages import Endpoints, readiness
from tests.support.texts import missing, numbers

UP = SourceState(name="nvml", up=True)
DOWN = SourceState(name="nvml", up=False, reason="NVML library not found")


def snapshot(*sources: SourceState, age: float = 0.0, gpus: int = 0) -> Snapshot:
    readings = tuple(Reading(gpu=Gpu(f"GPU-{i}", i, "nvidia", "T4")) for i in range(gpus))
    return Snapshot(taken_at_seconds=1000.0, age_seconds=age, readings=readings, sources=sources)


def test_not_ready_before_the_first_sample() -> None:
    ready, text = readiness(snapshot(), 60)
    assert not ready
    assert "first sample" in text


def test_ready_with_gpus() -> None:
    ready, text = readiness(snapshot(UP, gpus=2), 60)
    assert (ready, numbers(text)) == (True, [2])


def test_ready_without_a_gpu_and_the_reason_is_reported() -> None:
    ready, text = readiness(snapshot(DOWN), 60)
    assert (ready, numbers(text)) == (True, [0])
    assert f"nvml: {DOWN.reason}" in text


def test_not_ready_when_a_source_hangs_for_too_long() -> None:
    hanging = SourceState(name="nvml", up=False, reason="no answer within 4 s")
    ready, text = readiness(snapshot(hanging, age=75.0, gpus=1), 60)
    assert not ready
    assert missing(text, "75 s", f"nvml: {hanging.reason}") == []


def endpoints(metrics_path: str = "/metrics") -> Endpoints:
    return Endpoints(lambda _: [], metrics_path=metrics_path, hostname="node-1", max_age_seconds=60)


class Boot:
    """The clock of the boot, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000
        monkeypatch.setattr(pages, "since_boot_us", lambda: self.seconds * 1_000_000)


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    return Boot(monkeypatch)


def test_when_sampling_stops_its_last_readings_are_served_no_longer_than_the_maximum_age(
    boot: Boot, caplog: pytest.LogCaptureFixture
) -> None:
    served = Endpoints(
        lambda now: list(build_families(now, read_exporter_facts("1", "node-1"))),
        metrics_path="/metrics",
        hostname="node-1",
        max_age_seconds=60,
    )
    on_gpu = replace(snapshot(UP, gpus=2), uses=(Use(0, "GPU-0", Owner("service", "service/a"), 1, 2**30),))
    served.publish(on_gpu)

    def scrape() -> str:
        return served.by_path["/metrics"].respond(False, False).body.decode()

    def ready() -> tuple[int, str]:
        response = served.ready.respond(False, False)
        return response.status, response.body.decode()

    boot.seconds += 60
    fresh = scrape()
    assert missing(fresh, 'gputally_gpu_up{gpu="1",uuid="GPU-1"} 1', "gputally_host_memory_used_bytes{") == []
    assert ready()[0] == 200
    boot.seconds += 1
    stale = scrape()
    assert (
        missing(stale, 'gputally_gpu_up{gpu="0",uuid="GPU-0"} 0', 'gputally_gpu_up{gpu="1",uuid="GPU-1"} 0')
        == []
    )
    assert 'gputally_source_up{source="sampling"} 0' in stale
    assert "gputally_host_memory_used_bytes" not in stale
    status, reason = ready()
    assert (status, missing(reason, "61 s old", "sampling: no sample for 61 s")) == (503, [])
    assert caplog.text.count("no sample for 61 s") == 1
    served.publish(on_gpu)
    assert (
        missing(scrape(), *(line for line in fresh.splitlines() if line.startswith("gputally_gpu_up"))) == []
    )
    assert ready()[0] == 200
    assert "sampling continues" in caplog.text


def test_a_first_sample_that_never_ends_is_reported(boot: Boot, caplog: pytest.LogCaptureFixture) -> None:
    served = endpoints()
    assert "first sample" in served.ready.respond(False, False).body.decode()
    boot.seconds += 61
    assert "sampling: no sample for 61 s" in served.ready.respond(False, False).body.decode()
    assert "no sample for 61 s" in caplog.text


def test_metrics_have_the_format_and_encoding_that_the_client_prefers() -> None:
    metrics = endpoints().by_path["/metrics"]
    plain, packed = metrics.respond(False, False), metrics.respond(True, True)
    assert (plain.status, plain.content_type) == (200, TEXT)
    assert dict(plain.headers) == {"Vary": "Accept, Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    assert packed.content_type == OPENMETRICS
    assert dict(packed.headers)["Content-Encoding"] == "gzip"
    assert zlib.decompress(packed.body, wbits=31) == b"# EOF\n"


def test_metrics_at_the_root_replace_the_landing_page() -> None:
    only = endpoints("/").by_path
    assert list(only) == ["/"]
    assert only["/"].respond(False, False).content_type == TEXT


def test_readiness_follows_the_snapshot() -> None:
    found = endpoints()
    assert found.ready.respond(False, False).status == 503
    found.publish(Snapshot(taken_at_seconds=2e10, age_seconds=0, readings=(), sources=(UP,)))
    assert found.ready.respond(False, False).status == 200
