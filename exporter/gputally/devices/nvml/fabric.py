"""The NVLink fabric: whether Fabric Manager or IMEX has registered the GPU, and how the fabric is.

Until the registration is completed, CUDA does not start on GPUs behind NVSwitches.
"""

from typing import Any

from gputally.devices import Values
from gputally.devices.nvml.library import SUCCESS, ErrorMeaning, Query
from gputally.model import FABRIC_PROBLEMS, FABRIC_STATES, Labelled, Labels

FILLS = frozenset({"fabric_state", "fabric_status", "fabric_problem", "fabric_clique"})

_FUNCTION = "nvmlDeviceGetGpuFabricInfoV"
_STRUCTS = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")  # the newest first
_COMPLETED = FABRIC_STATES.index("completed")
# The part of the health mask of each problem: shift, width in bits, value without the problem. 0 is "not
# supported".
_HEALTH = dict(zip(FABRIC_PROBLEMS, ((0, 2, 2), (2, 2, 2), (4, 2, 2), (6, 2, 2), (8, 4, 1)), strict=True))


def read_fabric(query: Query) -> Values:
    """Empty for a GPU without a fabric."""
    function = query.library.function(_FUNCTION)
    if function is None or "fabric_state" in query.skipped:
        return {}
    for name in _STRUCTS:
        struct = getattr(query.library.nvml, name, None)  # this pynvml may be older than the struct
        if struct is None or not query.can(_FUNCTION, name):
            continue
        info = struct()
        code = function(query.handle, query.library.nvml.byref(info))
        if code == SUCCESS:
            return _values(info)
        if query.judge(code, "fabric_state", (_FUNCTION, name)) is not ErrorMeaning.UNSUPPORTED:
            break
    return {}


def _values(info: Any) -> Values:
    state = info.state & 0xFF  # one byte in C, four in pynvml
    if state == FABRIC_STATES.index("not_supported"):
        return {}
    values: Values = {"fabric_state": state}
    if problems := _problems(info.healthMask):
        values["fabric_problem"] = problems
    if state == _COMPLETED:
        values["fabric_status"] = int(info.status)
        if info.status == SUCCESS:
            values["fabric_clique"] = {(_uuid(bytes(info.clusterUuid)),): float(info.cliqueId)}
    return values


def _uuid(raw: bytes) -> str:
    # Not by the module uuid: importing it takes 0.2 MiB.
    return "-".join(raw[begin:end].hex() for begin, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16)))


def _problems(mask: int) -> Labelled:
    problems: dict[Labels, float] = {}
    for problem, (shift, width, without) in _HEALTH.items():
        value = mask >> shift & (1 << width) - 1
        if value:
            problems[problem,] = float(value != without)
    return problems
