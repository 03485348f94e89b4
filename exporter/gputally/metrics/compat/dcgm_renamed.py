"""Profile `dcgm-4.9`: the names, base units and labels of dcgm-exporter since 4.9."""

from gputally.metrics.compat import Scene
from gputally.metrics.compat.dcgm_families import NEW, build
from gputally.metrics.families import Family

ROWS = tuple(column.row for column in NEW)


def families(scene: Scene) -> list[Family]:
    return build(scene, NEW)
