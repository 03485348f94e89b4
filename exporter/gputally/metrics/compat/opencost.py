"""Profile `opencost`: what OpenCost asks Prometheus about GPUs, for every pod on a GPU of any vendor.

It averages DCGM_FI_PROF_GR_ENGINE_ACTIVE, a share of 0 to 1, by container, pod and namespace, and learns
which card a container has from the labels of DCGM_FI_DEV_DEC_UTIL. Both are the families of the profile
`dcgm`, without the samples that are of no pod: whoever has that profile on needs this one no more.
"""

from gputally.metrics.compat import Scene
from gputally.metrics.compat.dcgm_families import OLD, OLD_LABELS, build
from gputally.metrics.families import Family

_NAMES = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_DEC_UTIL")
_COLUMNS = tuple(column for column in OLD if column.row.name in _NAMES)
_POD = OLD_LABELS.index("pod")

ROWS = tuple(column.row for column in _COLUMNS)


def families(scene: Scene) -> list[Family]:
    found = build(scene, _COLUMNS)
    of_pods = (Family(one.metric, [sample for sample in one.samples if sample[0][_POD]]) for one in found)
    return [family for family in of_pods if family.samples]
