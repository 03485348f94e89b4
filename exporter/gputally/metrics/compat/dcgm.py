"""Profile `dcgm`: the names of dcgm-exporter up to 4.8."""

from gputally.metrics.compat import Scene
from gputally.metrics.compat.dcgm_families import OLD, build
from gputally.metrics.families import Family

ROWS = tuple(column.row for column in OLD)


def families(scene: Scene) -> list[Family]:
    return build(scene, OLD)
