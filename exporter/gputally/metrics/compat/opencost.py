"""Profile `opencost`: the metrics that OpenCost queries, for every pod on a GPU of any vendor.

It averages DCGM_FI_PROF_GR_ENGINE_ACTIVE, a share of 0 to 1, by container, pod and namespace, and takes the
GPU of a container from the labels of DCGM_FI_DEV_DEC_UTIL. Both are families of the profile `dcgm`, here
without the samples that have no pod: with that profile on, this one is not needed.
"""

from gputally.metrics.compat import ProfileInput
from gputally.metrics.compat.dcgm import OLD, OLD_LABELS, build
from gputally.metrics.families import Family

_NAMES = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_DEC_UTIL")
_SPELLINGS = tuple(one for one in OLD if one.row.name in _NAMES)
_POD = OLD_LABELS.index("pod")

ROWS = tuple(one.row for one in _SPELLINGS)


def families(inputs: ProfileInput) -> list[Family]:
    found = build(inputs, _SPELLINGS)
    of_pods = (Family(one.metric, [sample for sample in one.samples if sample[0][_POD]]) for one in found)
    return [family for family in of_pods if family.samples]
