"""The metrics that are exported: a set, with groups or single metrics added and removed.

`core` is for small dashboards. `standard` is everything that GPUTally's dashboards, rules and bills use, and
nothing else. `full` is every metric.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gputally.declarations import FULL, Group, MetricSet
from gputally.metrics.catalog import CATALOG, GPU_METRICS, Metric

SETS: tuple[str, ...] = tuple(MetricSet)
_ORDER = {one: place for place, one in enumerate(MetricSet)}

Chosen = Mapping[str, Metric]
"""The metrics to export, by name."""

NEEDED_FIELDS = frozenset(
    {
        *("up", "processes", "accounting_mode", "compute_mode", "mig_mode", "persistence_mode"),
        *("gpu_utilization_ratio", "graphics_active_ratio", "sm_active_ratio"),
        *("memory_total_bytes", "memory_used_bytes", "temperature_celsius", "temperature_slowdown_celsius"),
        *("power_watts", "power_limit_watts", "power_enforced_limit_watts", "power_max_limit_watts"),
        *("xid_errors", "xid_last_timestamp_seconds"),
    }
)
"""The fields of `Reading` that the ledger, the attribution or `check` use, and faults on the live page."""


class UnknownNameError(ValueError):
    """Neither a group nor a metric has the name. The text names the nearest one."""


def choose(of: str, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> Chosen:
    """The metrics of a set, with all values of those that are included, without the excluded ones.

    Raises UnknownNameError.
    """
    most = MetricSet(of)
    chosen = {
        one.name: _whole(one) if most is FULL else one for one in CATALOG if _ORDER[one.set] <= _ORDER[most]
    }
    chosen |= {one.name: _whole(one) for one in _named(include)}
    for one in _named(exclude):
        chosen.pop(one.name, None)
    return chosen


def skipped_fields(chosen: Chosen) -> frozenset[str]:
    """The fields of `Reading` that no chosen metric and no other part needs: they need not be read."""
    filling = {one.field for one in GPU_METRICS if one.name in chosen}
    return frozenset(one.field for one in GPU_METRICS) - filling - NEEDED_FIELDS


def _named(names: Iterable[str]) -> list[Metric]:
    found: list[Metric] = []
    for name in names:
        metrics = [one for one in CATALOG if name in (one.name, one.group)]
        if not metrics:
            raise UnknownNameError(_unknown(name, [*Group, *(one.name for one in CATALOG)]))
        found += metrics
    return found


def _unknown(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # only for an error

    # A metric without its prefix, or without _total, is also close.
    near = get_close_matches(name, known, n=1, cutoff=0.5) or [one for one in known if name in one][:1]
    meant = f"; the nearest name is {near[0]}" if near else ""
    return f"there is no group and no metric {name!r}{meant} (groups: {', '.join(Group)})"


def _whole(metric: Metric) -> Metric:
    return replace(metric, usual=()) if metric.usual else metric


EVERYTHING = choose(FULL)
