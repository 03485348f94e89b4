"""What dcgm-exporter writes, version by version, of the node that `node` describes."""

from gputally.model import (
    Charge,
    Gpu,
    MigInstance,
    MigReading,
    Owner,
    Reading,
    Snapshot,
    Unknown,
    Use,
)

TRAIN = "GPU-2b399198-c670-a848-173b-d3400051a200"
SHARED = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
SLICED = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
SLICES = ("MIG-11111111-c670-a848-173b-000000000001", "MIG-11111111-c670-a848-173b-000000000002")

# 1.x, /run/prometheus/dcgm.prom: GPU after GPU, so that the families are mixed.
OLD = f"""\
dcgm_gpu_info{{gpu="0",uuid="{TRAIN}",gpu_type="Tesla V100-SXM2-16GB"}} 1
# HELP dcgm_sm_clock SM clock frequency (in MHz).
# TYPE dcgm_sm_clock gauge
dcgm_sm_clock{{gpu="0",uuid="{TRAIN}"}} 1312
# HELP dcgm_low_util_violation Throttling duration due to low utilization (in us).
# TYPE dcgm_low_util_violation counter
dcgm_low_util_violation{{gpu="0",uuid="{TRAIN}"}} 0
dcgm_gpu_info{{gpu="1",uuid="{SHARED}",gpu_type="Tesla V100-SXM2-16GB"}} 1
dcgm_sm_clock{{gpu="1",uuid="{SHARED}"}} 135
dcgm_low_util_violation{{gpu="1",uuid="{SHARED}"}} 43
"""

# 2.x and 3.x, in Kubernetes mode: who has no request has the labels, and nothing in them.
EMPTY = 'container="",namespace="",pod=""'
NEW = f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="{TRAIN}",device="nvidia0",modelName="Tesla V100-SXM2-16GB",\
Hostname="node-1",DCGM_FI_DRIVER_VERSION="535.154.05",{EMPTY}}} 1312
DCGM_FI_DEV_SM_CLOCK{{gpu="1",UUID="{SHARED}",device="nvidia1",modelName="Tesla V100-SXM2-16GB",\
Hostname="node-1",DCGM_FI_DRIVER_VERSION="535.154.05",{EMPTY}}} 135
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{TRAIN}",device="nvidia0",modelName="Tesla V100-SXM2-16GB",\
Hostname="node-1",container="web",namespace="shop",pod="web-7"}} 302.206000
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active (in %).
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="2",UUID="{SLICED}",device="nvidia2",modelName="A100",\
GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="node-1"}} 0.500000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="2",UUID="{SLICED}",device="nvidia2",modelName="A100",\
GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",Hostname="node-1"}} 0.000000
"""

# 4.x: pci_bus_id, hostname, the new names; NVLink's samples have labels of their own.
NEWEST = f"""\
# HELP DCGM_FI_DEV_FB_CAPACITY_BYTES Total framebuffer memory (in bytes).
# TYPE DCGM_FI_DEV_FB_CAPACITY_BYTES gauge
DCGM_FI_DEV_FB_CAPACITY_BYTES{{gpu="0",UUID="{TRAIN}",pci_bus_id="00000000:07:00.0",device="nvidia0",\
modelName="NVIDIA H100 80GB HBM3",hostname="node-1",DCGM_FI_SYSTEM_DRIVER_VERSION="580.95.05"}} 8.5e+10
# HELP DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES Bytes sent over the link.
# TYPE DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES counter
DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES{{nvlink="3",gpu="0",gpu_uuid="{TRAIN}",pci_bus_id="00000000:07:00.0",\
device="nvidia0",model_name="NVIDIA H100 80GB HBM3",hostname="node-1"}} 12
# HELP DCGM_FI_DEV_CPU_UTIL_TOTAL Total CPU utilization.
# TYPE DCGM_FI_DEV_CPU_UTIL_TOTAL gauge
DCGM_FI_DEV_CPU_UTIL_TOTAL{{cpu="0",hostname="node-1"}} 0.25
"""

# What a collector that speaks OpenMetrics makes of it.
OPENMETRICS = f"""\
# TYPE DCGM_FI_DEV_ENERGY_joules counter
# UNIT DCGM_FI_DEV_ENERGY_joules joules
# HELP DCGM_FI_DEV_ENERGY_joules Energy since boot.
DCGM_FI_DEV_ENERGY_joules_total{{gpu="0",UUID="{TRAIN}"}} 4.5e6 1731753600.125 \
# {{trace_id="a",gpu="1"}} 0.5 1731753599.5
DCGM_FI_DEV_ENERGY_joules_created{{gpu="0",UUID="{TRAIN}"}} 1.7e9 1731753600.125
# TYPE node info
node_info{{UUID="{TRAIN}"}} 1
# EOF
"""


def pod(name: str, container: str = "main", namespace: str = "ml") -> Owner:
    return Owner("pod", namespace=namespace, pod=name, container=container)


def use(index: int, uuid: str, owner: Owner | Unknown, processes: int = 1) -> Use:
    return Use(index, uuid, owner, processes)


def gpu(index: int, uuid: str, *slices: str, vendor: str = "nvidia") -> Reading:
    mig = tuple(
        MigReading(instance=MigInstance(one, uuid, index, gpu_instance_id, 0))
        for gpu_instance_id, one in enumerate(slices, 1)
    )
    return Reading(gpu=Gpu(uuid, index, vendor, "H100"), mig=mig)


def snapshot(*uses: Use, readings: tuple[Reading, ...] = (), charges: tuple[Charge, ...] = ()) -> Snapshot:
    gpus = readings or (gpu(0, TRAIN), gpu(1, SHARED), gpu(2, SLICED, *SLICES))
    return Snapshot(
        taken_at_seconds=1.0, age_seconds=0.0, readings=gpus, sources=(), uses=uses, charges=charges
    )


def node() -> Snapshot:
    """One pod on the first GPU, two on the second, one on the first slice of the third."""
    return snapshot(
        use(0, TRAIN, pod("train-0")),
        use(1, SHARED, pod("chat-1")),
        use(1, SHARED, pod("chat-2")),
        use(2, SLICES[0], pod("notebook")),
    )
