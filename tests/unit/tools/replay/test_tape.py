"""What is stored of a scrape, read back by protobuf itself."""

import math
import struct
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.families import Family
from tools.replay.tape import Tape, encode_series, snappy, with_target

AT_MS = 1_794_700_800_000
SOURCE_UP = Metric("gputally_source_up", Kind.GAUGE, Scope.SOURCE, "up", "Whether it works.")
SNAPSHOT_AGE = Metric("gputally_snapshot_age_seconds", Kind.GAUGE, Scope.EXPORTER, "age_seconds", "Its age.")
STALE = bytes.fromhex("020000000000f07f")

Samples = list[tuple[int, float]]


def write_request() -> Any:
    """The message of https://prometheus.io/docs/specs/prw/remote_write_spec/."""
    file = descriptor_pb2.FileDescriptorProto(name="write.proto", package="test", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message, fields in {
        "Label": [("name", field.TYPE_STRING, ""), ("value", field.TYPE_STRING, "")],
        "Sample": [("value", field.TYPE_DOUBLE, ""), ("timestamp", field.TYPE_INT64, "")],
        "TimeSeries": [("labels", field.TYPE_MESSAGE, "Label"), ("samples", field.TYPE_MESSAGE, "Sample")],
        "WriteRequest": [("timeseries", field.TYPE_MESSAGE, "TimeSeries")],
    }.items():
        added = file.message_type.add(name=message)
        for number, (name, kind, of) in enumerate(fields, 1):
            label = field.LABEL_REPEATED if of else field.LABEL_OPTIONAL
            added.field.add(
                name=name, number=number, type=kind, label=label, type_name=f".test.{of}" if of else None
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.WriteRequest"))()


def stored(tape: Tape, **target: str) -> dict[str, Samples]:
    """name and labels -> (milliseconds, value)."""
    request = write_request()
    request.ParseFromString(
        b"".join(encode_series(with_target(labels, target), samples) for labels, samples in tape.take())
    )
    found: dict[str, Samples] = {}
    for series in request.timeseries:
        names = [label.name for label in series.labels]
        assert names == sorted(names), "remote write wants labels in order"
        labels = {label.name: label.value for label in series.labels}
        name = " ".join([labels.pop("__name__"), *(f"{k}={v}" for k, v in labels.items())])
        found[name] = [(sample.timestamp, sample.value) for sample in series.samples]
    return found


def sources_up(**sources: float) -> list[Family]:
    return [Family(SOURCE_UP, [((name,), up) for name, up in sources.items()])]


def is_stale(value: float) -> bool:
    return struct.pack("<d", value) == STALE


def test_every_scrape_adds_a_sample_with_its_time() -> None:
    tape = Tape(0.004)
    tape.scrape(sources_up(nvml=1), AT_MS)
    tape.scrape(sources_up(nvml=0), AT_MS + 15_000)
    assert stored(tape)["gputally_source_up source=nvml"] == [(AT_MS, 1), (AT_MS + 15_000, 0)]


@given(st.floats(allow_nan=False), st.integers(min_value=2**35, max_value=2**42 - 1))
def test_a_value_is_stored_unchanged(value: float, at_ms: int) -> None:
    tape = Tape(0.004)
    tape.scrape([Family(SNAPSHOT_AGE, [((), value)])], at_ms)
    assert stored(tape)["gputally_snapshot_age_seconds"] == [(at_ms, value)]


def test_a_time_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="60000 ms since 1970"):
        Tape(0.004).miss(60_000)


def test_a_missing_series_is_marked_as_stale_once() -> None:
    tape = Tape(0.004)
    for number, scrape in enumerate(
        [sources_up(nvml=1, cgroup=1), sources_up(cgroup=1), sources_up(cgroup=1)]
    ):
        tape.scrape(scrape, AT_MS + number)
    (_, first), (at_ms, last) = stored(tape)["gputally_source_up source=nvml"]
    assert (first, at_ms) == (1, AT_MS + 1)
    assert is_stale(last)


def test_a_missing_family_is_marked_as_stale() -> None:
    tape = Tape(0.004)
    tape.scrape([*sources_up(nvml=1), Family(SNAPSHOT_AGE, [((), 3.0)])], AT_MS)
    tape.scrape(sources_up(nvml=1), AT_MS + 1)
    assert is_stale(stored(tape)["gputally_snapshot_age_seconds"][-1][1])


def test_a_target_that_does_not_respond_is_down_and_all_its_series_are_stale() -> None:
    tape = Tape(0.004)
    tape.scrape(sources_up(nvml=1), AT_MS)
    tape.take()
    tape.miss(AT_MS + 1)
    tape.miss(AT_MS + 2)
    found = stored(tape)
    assert found["up"] == [(AT_MS + 1, 0), (AT_MS + 2, 0)]
    assert found["scrape_samples_scraped"] == [(AT_MS + 1, 0), (AT_MS + 2, 0)]
    ((at_ms, value),) = found["gputally_source_up source=nvml"]
    assert at_ms == AT_MS + 1
    assert math.isnan(value)


def test_the_metrics_of_a_scrape_are_those_of_prometheus() -> None:
    tape = Tape(0.004)
    tape.scrape(sources_up(nvml=1, cgroup=1), AT_MS)
    tape.scrape(sources_up(nvml=1, ledger=1), AT_MS + 1)
    found = stored(tape, job="gputally")
    assert {
        name: [value for _, value in samples] for name, samples in found.items() if "source" not in name
    } == {
        "up job=gputally": [1, 1],
        "scrape_duration_seconds job=gputally": [0.004, 0.004],
        "scrape_samples_scraped job=gputally": [2, 2],
        "scrape_samples_post_metric_relabeling job=gputally": [2, 2],
        "scrape_series_added job=gputally": [2, 1],
    }


def test_written_samples_are_not_written_again() -> None:
    tape = Tape(0.004)
    tape.scrape(sources_up(nvml=1), AT_MS)
    tape.take()
    tape.scrape(sources_up(nvml=1), AT_MS + 1)
    found = stored(tape)
    assert found["gputally_source_up source=nvml"] == [(AT_MS + 1, 1)]
    assert found["scrape_series_added"] == [(AT_MS + 1, 0)]


@pytest.mark.parametrize(
    ("scraped", "wanted"),
    [
        ((("pod", "a"),), {"pod": "a", "node": "n1"}),
        ((("node", "other"),), {"node": "other"}),
        ((("node", ""),), {}),
        ((("pod", ""),), {"node": "n1"}),
    ],
)
def test_labels_of_the_exporter_take_precedence_and_empty_ones_are_omitted(
    scraped: tuple[tuple[str, str], ...], wanted: dict[str, str]
) -> None:
    assert with_target(scraped, {"node": "n1", "zone": ""}) == wanted


def test_a_message_is_one_literal_of_snappy() -> None:
    assert b"".join(snappy([b"ab", b"c" * 300])) == b"\xae\x02\xfc\x2d\x01\x00\x00ab" + b"c" * 300
