"""Names of devices, as plugins and drivers give them, against nodes that have these devices."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.device_ids import is_gpu_device, is_gpu_driver, is_gpu_resource, match_device
from gputally.model import Gpu, MigInstance, MigReading, Reading

A = "GPU-8a56a4bc-e184-a047-2620-be19fdb0913f"
B = "GPU-2f0e12aa-11c0-4a35-9d60-0b6d7c3a1234"
MIG_1 = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
MIG_2 = "MIG-0f5ed9a1-3f0d-5b1a-8d7e-5a3c1b2e4f60"
MIG_3 = "MIG-77aa0000-3f0d-5b1a-8d7e-5a3c1b2e4f61"
AMD = "3fff74a1-0000-1000-80ed-efcd4b5b9b2c"
CLAIM = "5c1e7ba2-7cb2-4a5c-8f5e-97b3a7d0a0c4"


def mig(uuid: str, parent: Gpu, gpu_instance: int, compute_instance: int, profile: str | None) -> MigReading:
    return MigReading(
        instance=MigInstance(uuid, parent.uuid, parent.index, gpu_instance, compute_instance, profile)
    )


FIRST = Gpu(A, 0, "nvidia", "H100", pci_bus_id="00000000:3B:00.0", minor_number=1)
SECOND = Gpu(B, 1, "nvidia", "H100", pci_bus_id="00000000:D8:00.0", minor_number=0)
"""The minor numbers are not the indexes: so it is where the driver found the GPUs in another order."""
NODE = (
    Reading(gpu=FIRST),
    Reading(
        gpu=SECOND,
        mig=(
            mig(MIG_1, SECOND, 7, 0, "1g.10gb"),
            mig(MIG_2, SECOND, 1, 0, "3g.40gb"),
            mig(MIG_3, SECOND, 8, 0, "1g.10gb+me"),
        ),
    ),
)
AMD_NODE = (
    Reading(gpu=Gpu(AMD, 0, "amd", "MI300X", pci_bus_id="0000:c1:00.0", minor_number=0)),
    Reading(gpu=Gpu("other", 1, "amd", "MI300X", pci_bus_id="0001:c1:00.0", minor_number=1)),
)
PARTED = Gpu("GPU-cpx", 0, "amd", "MI300X", pci_bus_id="0000:05:00.0", minor_number=1)
"""The first partition is the card itself, the others are devices of their own."""
PARTED_NODE = (
    Reading(
        gpu=PARTED,
        mig=tuple(
            MigReading(
                instance=MigInstance(
                    f"GPU-cpx-{number}",
                    PARTED.uuid,
                    PARTED.index,
                    number,
                    0,
                    "CPX/NPS4",
                    device_name=f"amdgpu_xcp_{number}" if number else "0000:05:00.0",
                    minor_number=number + 1,
                )
            )
            for number in range(4)
        ),
    ),
    Reading(gpu=Gpu("GPU-spx", 1, "amd", "MI300X", pci_bus_id="0000:26:00.0", minor_number=9)),
)
MIXED_NODE = (
    Reading(gpu=Gpu(A, 0, "nvidia", "T4", minor_number=0)),
    Reading(gpu=Gpu(AMD, 0, "amd", "W7900", minor_number=0)),
)


@pytest.mark.parametrize(
    ("device_id", "device"),
    [
        (A, (0, A)),
        (A.upper(), (0, A)),
        (f"{A}::0", (0, A)),
        (f"{B}::12", (1, B)),
        (f"{A}-3", (0, A)),  # HAMi
        (f"{A}-_-7", (0, A)),  # gpushare
        (MIG_1, (1, MIG_1)),
        (f"{MIG_2}::1", (1, MIG_2)),
        (f"MIG-{B}/7/0", (1, MIG_1)),
        (f"MIG-{B}/1/0::2", (1, MIG_2)),
        ("nvidia0", (1, B)),
        ("nvidia1", (0, A)),
        ("nvidia1/vgpu3", (0, A)),
        ("nvidia0/gi7", (1, MIG_1)),
        ("nvidia0/gi1/vgpu2", (1, MIG_2)),
        ("0", (0, A)),
        ("1::4", (1, B)),
        ("nvidia.com/gpu=0", (0, A)),
        (f"nvidia.com/gpu={B}", (1, B)),
        (f"nvidia.com/mig={MIG_2}", (1, MIG_2)),
    ],
)
def test_names_of_device_plugins(device_id: str, device: tuple[int, str]) -> None:
    assert match_device(device_id, "nvidia.com/gpu", NODE) == device


@pytest.mark.parametrize(
    ("device_id", "device"),
    [
        ("gpu-0", (1, B)),
        ("gpu-1", (0, A)),
        (f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-1", (0, A)),
        ("gpu-0-mig-3g40gb-9-4", (1, MIG_2)),
        ("gpu-0-mig-1g10gb-19-0", (1, MIG_1)),
        ("gpu-0-mig-1g10gb-me-20-2", (1, MIG_3)),
        (f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-0-mig-3g40gb-9-4", (1, MIG_2)),
    ],
)
def test_names_of_nvidias_dra_driver(device_id: str, device: tuple[int, str]) -> None:
    assert match_device(device_id, "gpu.nvidia.com", NODE) == device


@pytest.mark.parametrize(
    ("device_id", "resource", "device"),
    [
        ("0000:c1:00.0", "amd.com/gpu", (0, AMD)),
        ("0000:C1:00.0", "amd.com/gpu", (0, AMD)),
        ("0001:c1:00.0", "amd.com/gpu", (1, "other")),
        ("0000:c1:00.1", "amd.com/gpu", None),
        ("0", "amd.com/gpu", (0, AMD)),
        ("amd.com/gpu=1", "gpu.amd.com", (1, "other")),
        ("gpu-0-128", "gpu.amd.com", (0, AMD)),  # card and render node
        ("gpu-1-129", "gpu.amd.com", (1, "other")),
        ("gpu-2-130", "gpu.amd.com", None),
        (f"k8s.gpu.amd.com/claim={CLAIM}-gpu-1-129", "gpu.amd.com", (1, "other")),
        ("gpu-0", "gpu.amd.com", None),
        ("amdgpu_xcp_30", "amd.com/gpu", None),  # a partition that no reader saw
        ("nvidia0", "amd.com/gpu", None),
    ],
)
def test_names_of_amds_devices(device_id: str, resource: str, device: tuple[int, str] | None) -> None:
    assert match_device(device_id, resource, AMD_NODE) == device


@pytest.mark.parametrize(
    ("device_id", "device"),
    [
        ("0000:05:00.0", (0, "GPU-cpx-0")),
        ("amdgpu_xcp_1", (0, "GPU-cpx-1")),
        ("amdgpu_xcp_3", (0, "GPU-cpx-3")),
        ("amdgpu_xcp_4", None),
        ("0000:26:00.0", (1, "GPU-spx")),
        ("gpu-1-128", (0, "GPU-cpx-0")),
        ("gpu-3-130", (0, "GPU-cpx-2")),
        ("gpu-9-136", (1, "GPU-spx")),
        ("gpu-5-132", None),
    ],
)
def test_names_of_amds_partitions(device_id: str, device: tuple[int, str] | None) -> None:
    assert match_device(device_id, "amd.com/gpu", PARTED_NODE) == device


def test_a_partition_is_not_guessed_where_no_device_of_it_is_known() -> None:
    (parted, _) = PARTED_NODE
    node = [replace(parted, mig=tuple(mig(f"{n}", PARTED, n, 0, None) for n in range(2)))]

    for device_id in ("0000:05:00.0", "amdgpu_xcp_1", "gpu-1-128", "gpu-2-129"):
        assert match_device(device_id, "amd.com/gpu", node) is None


def test_a_dra_name_of_one_vendor_is_not_a_gpu_of_the_other() -> None:
    assert match_device("gpu-0", "gpu.amd.com", MIXED_NODE) is None
    assert match_device("gpu-0-128", "gpu.nvidia.com", MIXED_NODE) is None
    assert match_device("gpu-0-128", "gpu.amd.com", MIXED_NODE) == (0, AMD)


def test_an_intel_gpu_is_found_by_the_pci_address_in_its_dra_name() -> None:
    node = [Reading(gpu=Gpu("arc", 0, "intel", "A770", pci_bus_id="0000:03:00.0"))]

    assert match_device("0000-03-00-0-0x56a0", "gpu.intel.com", node) == (0, "arc")
    assert match_device("0000-04-00-0-0x56a0", "gpu.intel.com", node) is None


@pytest.mark.parametrize(
    "device_id",
    [
        "",
        "GPU-00000000-0000-0000-0000-000000000000",
        "MIG-00000000-0000-0000-0000-000000000000",
        f"MIG-{B}/9/0",
        f"MIG-{A}/7/0",
        "nvidia2",
        "nvidia0/gi3",
        "nvidia1/gi7",
        "nvidia",
        "2",
        "-1",
        "99999999999999999999",
        "²",
        "nvidia" + "9" * 5000,
        "gpu-" + "9" * 5000,
        f"MIG-{B}/{'9' * 5000}/0",
        "all",
        "nvidia.com/gpu=all",
        "nvidia.com/gpu=1:0",
        "gpu-7",
        "gpu-vfio-0",
        "gpu-0-mig-7g80gb-0-0",
        "gpu-0-mig-",
        "0000:5e:00.0",
        "channel-0",
    ],
)
def test_an_unknown_name_matches_no_device(device_id: str) -> None:
    assert match_device(device_id, "nvidia.com/gpu", NODE) is None


@pytest.mark.parametrize("device_id", ["", "2", "nvidia7"])
def test_a_gpu_lost_before_its_uuid_was_read_matches_nothing(device_id: str) -> None:
    lost = Reading(gpu=Gpu("", 2, "nvidia", "", minor_number=7), up=False)

    assert match_device(device_id, "nvidia.com/gpu", [*NODE, lost]) is None


def test_a_dra_name_that_fits_two_mig_devices_matches_neither() -> None:
    twins = (mig(MIG_1, SECOND, 7, 0, "1g.10gb"), mig(MIG_2, SECOND, 8, 0, "1g.10gb"))

    assert match_device("gpu-0-mig-1g10gb-19-0", "gpu.nvidia.com", [Reading(gpu=SECOND, mig=twins)]) is None


def test_a_gpu_instance_with_two_compute_instances_is_not_one_device() -> None:
    halves = (mig(MIG_1, SECOND, 7, 0, None), mig(MIG_2, SECOND, 7, 1, None))
    node = [Reading(gpu=SECOND, mig=halves)]

    assert match_device("nvidia0/gi7", "nvidia.com/gpu", node) is None
    assert match_device(f"MIG-{B}/7/1", "nvidia.com/gpu", node) == (1, MIG_2)


def test_a_device_node_is_not_guessed_where_no_minor_number_is_known() -> None:
    node = [Reading(gpu=Gpu(A, 0, "nvidia", "T4"))]

    assert match_device("nvidia0", "nvidia.com/gpu", node) is None


def test_an_index_is_that_of_the_vendor_of_the_resource() -> None:
    assert match_device("0", "nvidia.com/gpu", MIXED_NODE) == (0, A)
    assert match_device("0", "amd.com/gpu", MIXED_NODE) == (0, AMD)
    assert match_device("amd.com/gpu=0", "example.com/whatever", MIXED_NODE) == (0, AMD)
    assert match_device("0", "example.com/gpu", MIXED_NODE) is None


def test_a_gpu_that_two_readers_report_is_one_device() -> None:
    assert match_device(A, "nvidia.com/gpu", [*NODE, Reading(gpu=FIRST)]) == (0, A)


@given(
    st.text() | st.from_regex(r"\A(GPU|MIG|gpu|nvidia|amd\.com/gpu=)?[-:/0-9a-f.]*\Z"), st.text(max_size=20)
)
def test_any_name_gives_a_device_of_the_node_or_none(device_id: str, resource: str) -> None:
    devices = {(0, A), (1, B), (1, MIG_1), (1, MIG_2), (1, MIG_3)}

    assert match_device(device_id, resource, NODE) in {*devices, None}
    is_gpu_device(resource, device_id)
    is_gpu_driver(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/a100",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "volcano.sh/vgpu-number",
        "aliyun.com/gpu-mem",
    ],
)
def test_resources_that_are_gpus(resource: str) -> None:
    assert is_gpu_resource(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "memory",
        "hugepages-2Mi",
        "ephemeral-storage",
        "nvidia.com/rdma_shared_device_a",
        "nvidia.com/sriov_vf",
        "nvidia.com/hostdev",
        "nvidia.com/mlnxnics",
        "nvidia.com/ib0",
        "amd.com/nic",
        "amd.com/xilinx_u30",
        "gpu.intel.com/i915_monitoring",
        "intel.com/sriov",
        "rdma/hca",
        "gpu",
        "",
    ],
)
def test_resources_that_are_none(resource: str) -> None:
    assert not is_gpu_resource(resource)


def test_a_renamed_resource_is_known_by_its_ids() -> None:
    assert is_gpu_device("example.org/fast", A)
    assert is_gpu_device("example.org/fast", f"{MIG_1}::2")
    assert is_gpu_device("example.org/fast", "nvidia0/vgpu1")
    assert is_gpu_device("example.org/fast", "amdgpu_xcp_3")
    assert not is_gpu_device("example.org/fast", "0000:3b:00.0")
    assert not is_gpu_device("nvidia.com/resibp12s0", "0000:0c:00.1")


@pytest.mark.parametrize(
    ("driver", "gpu"),
    [
        ("gpu.nvidia.com", True),
        ("gpu.amd.com", True),
        ("gpu.intel.com", True),
        ("compute-domain.nvidia.com", False),
        ("dra.net", False),
        ("cpu.example.com", False),
        ("", False),
    ],
)
def test_dra_drivers_of_gpus(driver: str, gpu: bool) -> None:
    assert is_gpu_driver(driver) is gpu
