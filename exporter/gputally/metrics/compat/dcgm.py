"""Profile `dcgm`: the names of dcgm-exporter up to 4.8."""

from gputally.metrics.compat import Options
from gputally.metrics.compat.dcgm_families import OLD, build
from gputally.metrics.families import Family
from gputally.model import Snapshot

ROWS = tuple(column.row for column in OLD)


def families(snapshot: Snapshot, options: Options) -> list[Family]:
    return build(snapshot, options, OLD)
