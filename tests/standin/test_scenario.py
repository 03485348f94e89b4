"""The writer: readings become a file that says what changed, in NVML's units."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    Gpu,
    MigInstance,
    MigReading,
    Process,
    ProcessSample,
    Reading,
    state_set,
)
from tests.standin.real_pynvml import nvml
from tools.servers.waiting import wait_until
from tools.standin.raw import raw_gpu
from tools.standin.scenario import (
    Fault,
    FaultKind,
    Frame,
    environment,
    preload,
    scenario_text,
    write_scenario,
)

GPU = Gpu(
    uuid="GPU-5fd4f087",
    index=0,
    vendor="nvidia",
    model="NVIDIA H100 80GB HBM3",
    pci_bus_id="00000000:19:00.0",
    driver_version="570.86.15",
    cuda_version="12.8",
    compute_capability="9.0",
)
PLAIN = Reading(gpu=GPU, power_watts=345.12, gpu_utilization_ratio=0.87)


def after(text: str, heading: str) -> list[str]:
    """The lines that follow the heading."""
    return text.partition(f"\n{heading}\n")[2].splitlines()


def test_every_field_in_the_units_of_the_driver() -> None:
    reading = Reading(
        gpu=GPU,
        gpu_utilization_ratio=0.29,
        memory_utilization_ratio=0.57,
        encoder_utilization_ratio=0.0,
        decoder_utilization_ratio=1.0,
        memory_total_bytes=85520809984,
        memory_used_bytes=1,
        memory_free_bytes=2,
        memory_reserved_bytes=3,
        bar1_total_bytes=137438953472,
        power_watts=345.1235,
        power_limit_watts=700.0,
        energy_millijoules=123456789012345,
        temperature_celsius=61.0,
        temperature_margin_celsius=-3.0,
        clock_hertz={("sm",): 1_980_000_000.0},
        clock_application_hertz={("memory",): 2_619_000_000.0},
        fan_speed_ratio={("0",): 0.3, ("1",): 0.35},
        performance_state=2,
        throttle_active={("sw_power_cap",): 1.0, ("gpu_idle",): 0.0, ("hw_thermal_slowdown",): 1.0},
        throttle_seconds={("sw_power_cap",): 7.000000001, ("hw_power_brake_slowdown",): 0.0},
        ecc_errors={("corrected", "volatile"): 11.0},
        ecc_location_errors={("uncorrected", "aggregate", "device_memory"): 22.0},
        retired_pages={("double_bit",): 1.0},
        retired_pages_pending=True,
        remapped_rows={("uncorrectable",): 6.0},
        remapped_rows_failure=False,
        remap_banks={("max",): 640.0},
        pcie_generation=4,
        pcie_throughput_bytes_per_second={("tx",): 1_200_000.0},
        nvlink_up={("0",): 1.0, ("1",): 0.0},
        nvlink_errors={("0", "crc_flit"): 3.0},
        nvlink_bytes={("tx",): 5.0},
        xid_errors={("79",): 1.0},
        recovery_action=state_set(RECOVERY_ACTIONS, "drain_p2p"),
        compute_mode=state_set(COMPUTE_MODES, "exclusive_process"),
        persistence_mode=True,
        mig_mode=False,
        sm_active_ratio=0.8725,
    )
    assert raw_gpu(reading) == {
        "uuid": "GPU-5fd4f087",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "00000000:19:00.0",
        "architecture": "9",
        "brand": "14",
        "cc_major": "9",
        "cc_minor": "0",
        "util.gpu": "29",
        "util.memory": "57",
        "util.encoder": "0",
        "util.decoder": "100",
        "memory.total": "85520809984",
        "memory.used": "1",
        "memory.free": "2",
        "memory.reserved": "3",
        "bar1.total": "137438953472",
        "power.usage": "345124",
        "power.limit": "700000",
        "energy": "123456789012345",
        "temp.gpu": "61",
        "temp.margin": "-3",
        "clock.sm": "1980",
        "clock_app.memory": "2619",
        "fan.0": "30",
        "fan.1": "35",
        "pstate": "2",
        "throttle.supported": "69",
        "throttle.active": "68",
        "violation.power": "7000000001",
        "violation.hw_power_brake": "0",
        "ecc.corrected.volatile.total": "11",
        "ecc.uncorrected.aggregate.device_memory": "22",
        "retired.double_bit": "1",
        "retired.pending": "1",
        "remapped.uncorrectable": "6",
        "remapped.failure": "0",
        "remap_banks.max": "640",
        "pcie.gen": "4",
        "pcie.tx": "1200",
        "gpm.pcie_tx": "1.1444091796875",
        "nvlink.0.state": "1",
        "nvlink.0.version": "6",
        "nvlink.1.state": "0",
        "nvlink.1.version": "6",
        "nvlink.0.crc_flit": "3",
        "nvlink.0.tx": "3",
        "nvlink.1.tx": "2",
        "recovery_action": "3",
        "persistence": "1",
        "mig_mode": "0",
        "mig_pending": "0",
        "mig_max": "7",
        "compute_mode": "3",
        "gpm.sm": "87.25",
        "xid 79": "1",
    }


@pytest.mark.parametrize(
    "reading",
    [
        Reading(gpu=GPU, clock_hertz={("shader",): 1.0}),
        Reading(gpu=GPU, throttle_active={("boredom",): 1.0}),
        Reading(gpu=GPU, throttle_seconds={("gpu_idle",): 1.0}),
        Reading(gpu=GPU, ecc_errors={("corrected", "forever"): 1.0}),
        Reading(gpu=GPU, nvlink_errors={("0", "boredom"): 1.0}),
        Reading(gpu=replace(GPU, model="two\nlines")),
        Reading(gpu=replace(GPU, serial="-")),
    ],
)
def test_a_value_that_the_driver_cannot_express_is_an_error(reading: Reading) -> None:
    with pytest.raises(ValueError, match=r"NVML|scenario cannot hold"):
        raw_gpu(reading)


def test_versions_are_those_of_the_gpu_unless_given() -> None:
    assert scenario_text([Frame(0, (PLAIN,))]).splitlines()[:3] == [
        "driver_version 570.86.15",
        "nvml_version 12.570.86.15",
        "cuda_version 12080",
    ]
    given = scenario_text([Frame(0, (PLAIN,))], driver_version="1.2", cuda_version="13.1", start=5.5)
    assert given.splitlines()[:4] == [
        "start 5.5",
        "driver_version 1.2",
        "nvml_version 13.1.2",
        "cuda_version 13010",
    ]


def test_a_later_frame_has_only_what_changed() -> None:
    text = scenario_text(
        [
            Frame(0, (PLAIN,)),
            Frame(5, (replace(PLAIN, power_watts=350.0),)),
            Frame(10, (replace(PLAIN, power_watts=350.0, gpu_utilization_ratio=None),)),
            Frame(15, (replace(PLAIN, power_watts=350.0, gpu_utilization_ratio=None),)),
        ]
    )
    assert after(text, "frame 5") == [
        "gpu 0",
        "power.usage 350000",
        "frame 10",
        "gpu 0",
        "util.gpu -",
        "frame 15",
    ]


def test_lost_and_missing_gpus_keep_their_numbers() -> None:
    lost = Reading(gpu=GPU, up=False)
    text = scenario_text([Frame(0, (PLAIN,)), Frame(1, (lost,)), Frame(2, ()), Frame(3, (PLAIN,))])
    assert after(text, "frame 1") == [
        *("gpu 0", "lost 1"),
        *("frame 2", "gpu 0", "absent 1", "lost -"),
        *("frame 3", "gpu 0", "absent -"),
    ]


def test_processes_are_listed_completely_and_samples_once() -> None:
    python = Process(1, "compute", "/usr/bin/python3 a.py", 4096)
    other = Process(2, "graphics+mps")
    one = ProcessSample(1, 1_000_000, 0.5, 0.25, 0.0, 0.01)
    two = ProcessSample(1, 2_000_000, 0.6, 0.25, 0.0, 0.0)
    text = scenario_text(
        [
            Frame(0, (replace(PLAIN, processes=(python,), process_samples=(one,)),)),
            Frame(1, (replace(PLAIN, processes=(python, other), process_samples=(one, two)),)),
            Frame(2, (replace(PLAIN, processes=None, process_samples=None),)),
        ]
    )
    assert "process 1 compute 4096 - - /usr/bin/python3 a.py\nsample 1 1000000 50 25 0 1\nframe 1\n" in text
    assert after(text, "frame 1") == [
        "gpu 0",
        "processes 2",
        "process 1 compute 4096 - - /usr/bin/python3 a.py",
        "process 2 graphics+mps - - -",
        "sample 1 2000000 60 25 0 0",
        "frame 2",
        "gpu 0",
        "samples -",
        "processes -",
    ]


def test_samples_can_be_written_relative_to_time_zero() -> None:
    sample = ProcessSample(1, 1_760_000_001_250_000, 0.5, 0.25, 0.0, 0.0)
    reading = replace(PLAIN, process_samples=(sample,))
    assert "sample 1 +1250000 50" in scenario_text([Frame(0, (reading,))], clock_zero=1_760_000_000.0)


def mig(number: int, **values: Any) -> MigReading:
    instance = MigInstance(f"MIG-{number}", GPU.uuid, 0, number, 0, "1g.10gb")
    return MigReading(instance=instance, **values)


def test_mig_devices_keep_their_index_and_leave_gaps() -> None:
    parent = replace(PLAIN, mig_mode=True, gpu_utilization_ratio=None)
    inside = Process(9, "compute", None, 1, 1, 0)
    text = scenario_text(
        [
            Frame(0, (replace(parent, processes=(inside,), mig=(mig(1, processes=(inside,)), mig(2))),)),
            Frame(1, (replace(parent, processes=(), mig=(mig(2, multiprocessors=14),)),)),
            Frame(2, (replace(parent, processes=(), mig=(mig(2, multiprocessors=14), mig(3))),)),
        ]
    )
    first = after(text, "mig 0")
    assert first[first.index("processes 1") + 1] == "process 9 compute 1 1 0"
    assert "processes 0" in text.partition("\nmig 0\n")[0], "the GPU's own list has what no MIG device has"
    assert after(text, "frame 1") == [
        *("gpu 0", "mig 0 -", "mig 1", "multiprocessors 14", "frame 2", "gpu 0", "mig 0"),
        *("uuid MIG-3", "gi 3", "ci 0", "profile 1g.10gb", "gi_slices 1", "ci_slices 1", "profile_id 19"),
    ]


def test_frames_have_increasing_times() -> None:
    with pytest.raises(ValueError, match="does not come after"):
        scenario_text([Frame(1, ()), Frame(1, ())])


def test_each_fault_is_one_line() -> None:
    hang = Fault(FaultKind.HANG, "nvmlDeviceGetPowerUsage", gpu=1, from_seconds=2, until_seconds=3.5)
    assert hang.line() == "fault hang function=nvmlDeviceGetPowerUsage gpu=1 from=2 until=3.5"
    assert Fault(FaultKind.DRIVER_GONE).line() == "fault driver_gone from=0.0"


@pytest.mark.parametrize(
    ("kind", "facts", "missing"),
    [
        (FaultKind.HANG, {}, "function"),
        (FaultKind.ERROR, {"function": "nvmlInit"}, "value"),
        (FaultKind.LOST, {}, "gpu"),
    ],
)
def test_an_incomplete_fault_is_refused(kind: FaultKind, facts: dict[str, Any], missing: str) -> None:
    with pytest.raises(ValueError, match=f"needs a {missing}"):
        Fault(kind, **facts)


def test_every_throttle_reason_has_the_bit_of_the_driver() -> None:
    bits = [
        nvml.nvmlClocksThrottleReasonGpuIdle,
        nvml.nvmlClocksThrottleReasonApplicationsClocksSetting,
        nvml.nvmlClocksThrottleReasonSwPowerCap,
        nvml.nvmlClocksThrottleReasonHwSlowdown,
        nvml.nvmlClocksThrottleReasonSyncBoost,
        nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
        nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        nvml.nvmlClocksThrottleReasonDisplayClockSetting,
    ]
    assert bits == [
        int(raw_gpu(Reading(gpu=GPU, throttle_active={(reason,): 1.0}))["throttle.active"])
        for reason in THROTTLE_REASONS
    ]


def test_a_written_scenario_is_played_frame_by_frame(play: Callable[[str], Path]) -> None:
    frames = [Frame(0, (PLAIN,)), Frame(0.3, (replace(PLAIN, power_watts=400.0),))]
    play(scenario_text(frames))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 345120
    wait_until(lambda: nvml.nvmlDeviceGetPowerUsage(handle) == 400000)


def test_a_start_in_the_past_begins_at_a_later_frame(scenario: Path) -> None:
    frames = [Frame(0, (PLAIN,)), Frame(1000, (replace(PLAIN, power_watts=400.0),))]
    write_scenario(scenario, frames, start=1_700_000_000.0)
    preload(scenario)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == 400000
    nvml.nvmlShutdown()


def test_a_child_process_finds_the_stand_in_by_its_environment(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path / "driver.scenario", [Frame(0, (PLAIN,))])
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))"
    variables = {**os.environ, **environment(scenario)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("GPU-5fd4f087\n", "")
