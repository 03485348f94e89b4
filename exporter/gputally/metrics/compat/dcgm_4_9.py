"""Profile `dcgm-4.9`: the names, base units and labels of dcgm-exporter since 4.9."""

from gputally.metrics.compat import ProfileInput
from gputally.metrics.compat.dcgm import NEW, build
from gputally.metrics.families import Family

ROWS = tuple(one.row for one in NEW)


def families(inputs: ProfileInput) -> list[Family]:
    return build(inputs, NEW)
