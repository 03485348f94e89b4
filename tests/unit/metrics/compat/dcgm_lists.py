"""Lists of dcgm-exporter's metrics."""

from gputally.metrics.catalog import Kind

# The rows of etc/default-counters.csv, dcgm-exporter 4.5.3-4.8.2, that are on.
DEFAULT = """
gauge DEV_SM_CLOCK DEV_MEM_CLOCK DEV_MEMORY_TEMP DEV_GPU_TEMP DEV_POWER_USAGE
counter DEV_TOTAL_ENERGY_CONSUMPTION DEV_PCIE_REPLAY_COUNTER
gauge DEV_GPU_UTIL DEV_MEM_COPY_UTIL DEV_ENC_UTIL DEV_DEC_UTIL DEV_XID_ERRORS
gauge DEV_FB_FREE DEV_FB_USED DEV_FB_RESERVED
counter DEV_NVLINK_BANDWIDTH_TOTAL
counter DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_CORRECTABLE_REMAPPED_ROWS
gauge DEV_ROW_REMAP_FAILURE
gauge PROF_GR_ENGINE_ACTIVE PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES
"""


def listed(text: str) -> dict[str, Kind]:
    lines = (line.split() for line in text.strip().splitlines())
    return {f"DCGM_FI_{name}": Kind(kind) for kind, *names in lines for name in names}
