"""Memory at the bounds: what is measured, and what the report says of it."""

from collections.abc import Iterator
from pathlib import Path

from tools.benchmark.bounds import (
    INPUTS,
    Arguments,
    BoundCost,
    Input,
    chart_limit_bytes,
    measure_bounds,
    peak_bytes,
)
from tools.benchmark.report import bounds_section
from tools.benchmark.running import Stage

MIB = 1 << 20


def nothing(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    raise AssertionError("an input without a bound is not measured")
    yield stage, ()


def test_an_input_without_a_constant_has_no_stated_bound(tmp_path: Path) -> None:
    missing = Input("soup", "gputally.model", "MOST_SOUP", "plates", nothing)
    assert measure_bounds(tmp_path, tmp_path, lambda _: None, [missing]) == [
        BoundCost("soup", "gputally.model.MOST_SOUP", "plates", None)
    ]


def test_the_bound_is_that_of_the_exporter() -> None:
    from gputally.attribution.kubelet_grpc import _REPLY_LIMIT_BYTES

    (kubelet,) = (one for one in INPUTS if one.constant == "_REPLY_LIMIT_BYTES")
    assert kubelet.bound == _REPLY_LIMIT_BYTES


def test_the_highest_memory_is_read() -> None:
    assert peak_bytes("VmPeak:\t  900 kB\nVmHWM:\t   26624 kB\nVmRSS:\t   25000 kB\n") == 26 * MIB


def test_the_report_compares_with_the_limit_of_the_chart() -> None:
    limit = chart_limit_bytes()
    text = "\n".join(
        bounds_section(
            [
                BoundCost("pods", "a.A", "pods", 1000, 30 * MIB, 40 * MIB),
                BoundCost("text", "b.B", "bytes", 2000, 30 * MIB, limit),
                BoundCost("soup", "c.C", "plates", None),
            ]
        )
    )
    assert "| pods | 1,000 pods | 30.0 | 40.0 | yes |" in text
    assert f"| text | 2,000 bytes | 30.0 | {limit / MIB:.0f} | **no** |" in text
    assert "| soup | not stated | - | - | - |" in text
