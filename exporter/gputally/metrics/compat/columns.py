"""Rows of another tool that a reading fills, in that tool's units."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gputally.metrics.catalog import GPU_METRICS, Kind, Metric
from gputally.metrics.compat import Row
from gputally.metrics.families import Family
from gputally.model import Labelled, Labels, Reading

OURS = {metric.field: metric.name for metric in reversed(GPU_METRICS)}
"""A field of the reading -> the first metric that it fills."""
ColumnValue = Callable[[Reading], float | None]
Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of the other tool, and its value for a GPU."""

    row: Row
    value: ColumnValue


def gauge(name: str, help: str, field: str, *labels: str, scale: Scale | None = None) -> Column:
    """`labels` pick one value of a field that has several."""
    return Column(Row(name, Kind.GAUGE, help, OURS[field]), _value(field, labels, scale))


def counter(name: str, help: str, field: str, *labels: str, scale: Scale | None = None) -> Column:
    return Column(Row(name, Kind.COUNTER, help, OURS[field]), _value(field, labels, scale))


def column_families(
    columns: Iterable[Column], metrics: Iterable[Metric], readings: Sequence[tuple[Labels, Reading]]
) -> list[Family]:
    """The family of each column. `readings` have the labels of their samples."""
    return [
        Family(
            metric, [(labels, value) for labels, one in readings if (value := column.value(one)) is not None]
        )
        for column, metric in zip(columns, metrics, strict=True)
    ]


def _value(field: str, labels: Labels, scale: Scale | None) -> ColumnValue:
    raw: ColumnValue = _one_of_several(field, labels) if labels else attrgetter(field)
    return _scaled(raw, scale) if scale else raw


def _one_of_several(field: str, labels: Labels) -> ColumnValue:
    def value(reading: Reading) -> float | None:
        values: Labelled | None = getattr(reading, field)
        return None if values is None else values.get(labels)

    return value


def _scaled(raw: ColumnValue, scale: Scale) -> ColumnValue:
    def value(reading: Reading) -> float | None:
        number = raw(reading)
        return None if number is None else scale(number)

    return value


def percent(ratio: float) -> float:
    """Rounded: the ratio is inexact even where the percentage was whole."""
    return round(ratio * 100, 6)


def mebibytes(count: float) -> float:
    return count / (1 << 20)


def megahertz(hertz: float) -> float:
    return hertz / 1_000_000


def microseconds(seconds: float) -> float:
    return round(seconds * 1_000_000)


def nanoseconds(seconds: float) -> float:
    return round(seconds * 1_000_000_000)
