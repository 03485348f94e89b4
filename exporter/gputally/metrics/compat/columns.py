"""How a reading fills a row of another tool, in that tool's unit."""

from collections.abc import Callable
from dataclasses import dataclass

from gputally.metrics.catalog import GPU_METRICS, Kind
from gputally.metrics.compat import Row
from gputally.model import Reading

OURS = {metric.field: metric.name for metric in GPU_METRICS}
"""A field of the reading -> the metric that it fills."""
Value = Callable[[Reading], float | None]
Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of the other tool, and its value for a GPU."""

    row: Row
    value: Value


def gauge(name: str, help: str, field: str, *labels: str, scale: Scale | None = None) -> Column:
    """`labels` pick one value of a field that has several."""
    return Column(Row(name, Kind.GAUGE, help, OURS[field]), _value(field, labels, scale))


def counter(name: str, help: str, field: str, *labels: str, scale: Scale | None = None) -> Column:
    return Column(Row(name, Kind.COUNTER, help, OURS[field]), _value(field, labels, scale))


def _value(field: str, labels: tuple[str, ...], scale: Scale | None) -> Value:
    def value(reading: Reading) -> float | None:
        raw = getattr(reading, field)
        if labels and raw is not None:
            raw = raw.get(labels)
        if raw is None:
            return None
        number: float = raw if scale is None else scale(raw)
        return number

    return value


def percent(ratio: float) -> float:
    """Rounded, because a whole percent is not whole any more once it was divided by 100."""
    return round(ratio * 100, 6)


def mebibytes(count: float) -> float:
    return count / (1 << 20)


def megahertz(hertz: float) -> float:
    return hertz / 1_000_000


def microseconds(seconds: float) -> float:
    return round(seconds * 1_000_000)
