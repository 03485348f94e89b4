"""Profile `dcgm-4.9`: the names, base units and labels of dcgm-exporter since 4.9."""

from gputally.metrics.compat import Options
from gputally.metrics.compat.dcgm_families import NEW, build
from gputally.metrics.families import Family
from gputally.model import Snapshot

ROWS = tuple(column.row for column in NEW)


def families(snapshot: Snapshot, options: Options) -> list[Family]:
    return build(snapshot, options, NEW)
