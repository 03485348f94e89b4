"""The two text formats, judged by prometheus_client's parsers."""

import gzip
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.exposition import (
    SNAPSHOTS_KEPT,
    Exposition,
    LabelBlocks,
    render_openmetrics,
    render_text,
)
from gputally.metrics.families import Family, build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import PodInfo, Snapshot
from tests.support.snapshots import simulated
from tests.support.text_format import check_openmetrics, check_text

GAUGE = Metric("gputally_gpu_x_watts", Kind.GAUGE, Scope.GPU, "x", 'A "quoted" \\ help\nin two lines.')
COUNTER = Metric("gputally_gpu_y_joules_total", Kind.COUNTER, Scope.GPU, "y", "Energy.")
INFO = Metric("gputally_gpu_info", Kind.INFO, Scope.GPU, "info", "Who.", ("model",))

label_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20)
numbers = st.one_of(
    st.integers(0, 2**53), st.floats(allow_nan=False, allow_infinity=False, min_value=-1e18, max_value=1e18)
)


def snapshot(taken_at: float = 0) -> Snapshot:
    return Snapshot(taken_at_seconds=taken_at, age_seconds=0, readings=(), sources=())


@given(label_text, label_text, numbers)
def test_any_label_and_number_can_be_parsed_from_the_text_format(gpu: str, uuid: str, value: float) -> None:
    (family,) = parse_text(render_text([Family(GAUGE, [((gpu, uuid), value)])]).decode())
    assert (family.name, family.type, family.documentation) == (GAUGE.name, "gauge", GAUGE.help)
    assert [(s.labels, s.value) for s in family.samples] == [({"gpu": gpu, "uuid": uuid}, value)]


@given(label_text, label_text, numbers)
def test_any_label_and_number_can_be_parsed_from_openmetrics(gpu: str, uuid: str, value: float) -> None:
    (family,) = parse_openmetrics(render_openmetrics([Family(GAUGE, [((gpu, uuid), value)])]).decode())
    assert (family.name, family.type, family.unit) == (GAUGE.name, "gauge", "watts")
    assert family.documentation == GAUGE.help
    assert [(s.labels, s.value) for s in family.samples] == [({"gpu": gpu, "uuid": uuid}, value)]


def changed(one: Any, text: Callable[[str], str], number: Callable[[float], float]) -> Any:
    """The same with every text and number replaced, in all its dataclasses and containers."""
    if isinstance(one, str):
        return text(one)
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        return number(one)
    if is_dataclass(one) and not isinstance(one, type):
        kept = {"kind", "parent_index", "gpu_index", "index", "pid"}  # what tells families and series apart
        values = {each.name: getattr(one, each.name) for each in fields(one) if each.init}
        return type(one)(
            **{name: each if name in kept else changed(each, text, number) for name, each in values.items()}
        )
    if isinstance(one, tuple):
        return tuple(changed(each, text, number) for each in one)
    if isinstance(one, Mapping):
        return {changed(key, text, number): changed(each, text, number) for key, each in one.items()}
    return one


HOSTILE = '\0\n\r"\\{}=,# \ud800\x1b\x85\u2028\U0001f600# EOF\n'
hostile_texts = st.text(st.characters() | st.sampled_from(HOSTILE), max_size=12)
any_number = st.floats() | st.integers(-(2**200), 2**200)
counter_number = st.floats(min_value=0, allow_nan=False) | st.integers(0, 2**200)
everywhere = settings(max_examples=15, deadline=None)


def whole(text: str, number: float) -> list[Family]:
    labels = (("team", "ml"), ("app.kubernetes.io/name", "x"))
    pods = tuple(PodInfo("u", "ml", f"train-{one}", labels=labels) for one in range(2))
    taken = changed(
        replace(simulated(), pods=pods, node_labels=labels), lambda each: text + each, lambda _: number
    )
    return build_families(taken, read_exporter_facts("1", text))


@everywhere
@given(hostile_texts, any_number)
@example(HOSTILE, 10**400)
@example("\0", float("nan"))
@example("\ud800", float("-inf"))
def test_no_text_or_number_of_a_snapshot_makes_the_text_format_invalid(text: str, number: float) -> None:
    try:
        families = whole(text, number)
    except OverflowError:
        assert abs(number) > 2**1000
        families = [Family(GAUGE, [((text, ""), number)])]
    check_text(render_text(families))


@everywhere
@given(hostile_texts, counter_number)
@example(HOSTILE, float("inf"))
def test_no_text_or_number_of_a_snapshot_makes_openmetrics_invalid(text: str, number: float) -> None:
    check_openmetrics(render_openmetrics(whole(text, number)))


def test_the_text_format_byte_for_byte() -> None:
    families = [Family(COUNTER, [(("0", "GPU-a"), 1.5), (("1", "GPU-b"), 2.0)])]
    assert render_text(families).decode() == (
        "# HELP gputally_gpu_y_joules_total Energy.\n"
        "# TYPE gputally_gpu_y_joules_total counter\n"
        'gputally_gpu_y_joules_total{gpu="0",uuid="GPU-a"} 1.5\n'
        'gputally_gpu_y_joules_total{gpu="1",uuid="GPU-b"} 2\n'
    )


def test_openmetrics_byte_for_byte() -> None:
    families = [Family(INFO, [(("0", "GPU-a", "H100"), 1)]), Family(COUNTER, [(("0", "GPU-a"), True)])]
    assert render_openmetrics(families).decode() == (
        "# TYPE gputally_gpu info\n"
        "# HELP gputally_gpu Who.\n"
        'gputally_gpu_info{gpu="0",uuid="GPU-a",model="H100"} 1\n'
        "# TYPE gputally_gpu_y_joules counter\n"
        "# UNIT gputally_gpu_y_joules joules\n"
        "# HELP gputally_gpu_y_joules Energy.\n"
        'gputally_gpu_y_joules_total{gpu="0",uuid="GPU-a"} 1\n'
        "# EOF\n"
    )


@pytest.mark.parametrize("render", [render_text, render_openmetrics])
@pytest.mark.parametrize("labels", [(), ("0",), ("0", "GPU-a", "more")])
def test_a_sample_with_wrong_labels_is_refused(
    render: Callable[[list[Family]], bytes], labels: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"'gpu', 'uuid'"):
        render([Family(GAUGE, [(labels, 1)])])


def test_equal_numbers_of_different_types_have_one_text() -> None:
    families = [Family(GAUGE, [(("0", str(value)), value) for value in (-0.0, 0, 0.0, False, True, 1.0, 1)])]
    assert re.findall(r" (\S+)$", render_text(families).decode(), re.MULTILINE)[-7:] == list("0000111")


class CountingFamilies:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, snapshot: Snapshot) -> list[Family]:
        self.calls += 1
        return [Family(GAUGE, [(("0", "GPU-a"), snapshot.taken_at_seconds)])]


def test_each_format_is_rendered_once_per_snapshot() -> None:
    families = CountingFamilies()
    exposition = Exposition(families, snapshot())
    threads = [
        threading.Thread(target=exposition.body, kwargs={"openmetrics": False, "gzipped": False})
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert families.calls == 1


def variants() -> Iterator[tuple[bool, bool]]:
    yield from ((om, gz) for om in (False, True) for gz in (False, True))


def test_gzip_contains_the_same_bytes() -> None:
    exposition = Exposition(CountingFamilies(), snapshot(7))
    for openmetrics in (False, True):
        plain = exposition.body(openmetrics=openmetrics, gzipped=False)
        assert gzip.decompress(exposition.body(openmetrics=openmetrics, gzipped=True)) == plain
        assert b" 7\n" in plain


def test_a_new_snapshot_is_rendered_in_the_formats_that_were_requested_before() -> None:
    families = CountingFamilies()
    exposition = Exposition(families, snapshot())
    exposition.body(openmetrics=True, gzipped=False)
    exposition.publish(snapshot(1))
    assert families.calls == 2
    assert b" 1\n" in exposition.body(openmetrics=True, gzipped=False)
    assert families.calls == 2, "it was ready"
    exposition.publish(snapshot(2))
    exposition.publish(snapshot(3))
    assert families.calls == 3, "snapshot 2 was not requested, so snapshot 3 is rendered on request only"
    for openmetrics, gzipped in variants():
        body = exposition.body(openmetrics=openmetrics, gzipped=gzipped)
        assert b" 3\n" in (gzip.decompress(body) if gzipped else body)


def test_label_blocks_are_cached_for_a_limited_number_of_snapshots() -> None:
    blocks = LabelBlocks()
    first = weakref.ref(blocks.of(("gpu",)))
    for _ in range(SNAPSHOTS_KEPT):
        assert blocks.of(("gpu",)) is first()
        blocks.next_snapshot()
    for _ in range(SNAPSHOTS_KEPT):
        blocks.of(("gpu",))
        blocks.next_snapshot()
    blocks.of(("gpu",))
    assert first() is None


def test_a_label_block_in_use_is_built_once() -> None:
    blocks = LabelBlocks()
    first = blocks.of(("gpu",))[("7",)]
    for _ in range(3 * SNAPSHOTS_KEPT):
        blocks.next_snapshot()
        assert blocks.of(("gpu",))[("7",)] is first


@pytest.mark.parametrize(
    ("name", "kind", "openmetrics_type", "unit"),
    [
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Kind.COUNTER, "unknown", ""),
        ("my_gpu_process_energy_joules", Kind.COUNTER, "unknown", "joules"),
        ("nvidia_smi_retired_bytes_total", Kind.GAUGE, "gauge", ""),
        ("nvidia_smi_gpu_info", Kind.GAUGE, "gauge", ""),
        ("CM_PURPLEPILL_GPU_MEMORY_FREE_MIB", Kind.GAUGE, "gauge", ""),
    ],
)
def test_names_that_openmetrics_does_not_allow_are_exported_unchanged(
    name: str, kind: Kind, openmetrics_type: str, unit: str
) -> None:
    families = [Family(Metric(name, kind, Scope.EXPORTER, "", "Theirs."), [((), 1.5)])]
    (strict,) = parse_openmetrics(render_openmetrics(families).decode())
    assert (strict.type, strict.unit, strict.samples[0].name) == (openmetrics_type, unit, name)
    assert f"# TYPE {name} {kind}\n{name} 1.5\n" in render_text(families).decode()
