"""Every fault, at its time and repeatedly, through the real pynvml."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml
from tools.servers.waiting import wait_until
from tools.standin.scenario import held_file, preload, replace_scenario

# A call that hangs where it must not is in C, where only the end of the process reaches it.
pytestmark = pytest.mark.timeout(120, method="thread")

Play = Callable[[str], Path]
TWO_GPUS = (
    "frame 0\ngpu 0\nuuid GPU-0\npower.usage 100000\nutil.gpu 10\nutil.memory 5\n"
    "gpu 1\nuuid GPU-1\npower.usage 200000\nutil.gpu 20\nutil.memory 6\n"
    "samples 0\nprocesses 1\nprocess 7 compute 1 - -\n"
)


@pytest.fixture
def handles(play: Play) -> Callable[[str], list[Any]]:
    """Handles of both GPUs of a scenario that has these lines before its only frame."""

    def start(faults: str) -> list[Any]:
        play(faults + TWO_GPUS)
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]

    return start


def error_of(function: Callable[[], object]) -> int:
    try:
        function()
    except nvml.NVMLError as error:
        return int(error.value)
    return 0


def times_slept(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_a_call_that_never_returns_blocks_no_other_thread(
    handles: Callable[[str], list[Any]], play: Play, scenario: Path
) -> None:
    first, second = handles("fault hang function=nvmlDeviceGetPowerUsage gpu=0\n")
    answers: list[int] = []
    hung = threading.Thread(target=lambda: answers.append(nvml.nvmlDeviceGetPowerUsage(first)), daemon=True)
    hung.start()
    # A call that hangs sleeps again and again; one that does not has long returned.
    wait_until(lambda: answers or times_slept(hung) >= 20)
    assert answers == []
    assert nvml.nvmlDeviceGetPowerUsage(second) == 200000
    assert nvml.nvmlDeviceGetUtilizationRates(first).gpu == 10
    play(TWO_GPUS.replace("100000", "123000"))
    hung.join()
    assert answers == [123000], "it returns when the fault is over, with the number of that moment"


def test_a_slow_call_returns_the_right_value(handles: Callable[[str], list[Any]]) -> None:
    first, second = handles("fault sleep function=nvmlDeviceGetPowerUsage gpu=1 value=300\n")
    before = time.monotonic()
    assert nvml.nvmlDeviceGetPowerUsage(second) == 200000
    assert time.monotonic() - before >= 0.3
    assert nvml.nvmlDeviceGetPowerUsage(first) == 100000


def test_an_error_for_one_gpu_or_for_all(handles: Callable[[str], list[Any]]) -> None:
    first, second = handles(
        "fault error function=nvmlDeviceGetPowerUsage gpu=1 value=999\n"
        "fault error function=nvmlDeviceGetUtilizationRates value=4\n"
        "fault error function=nvmlSystem* value=10\n"
        "fault error function=nvmlDeviceGetComputeRunningProcesses value=4\n"
    )
    assert nvml.nvmlDeviceGetPowerUsage(first) == 100000
    assert error_of(lambda: nvml.nvmlDeviceGetPowerUsage(second)) == nvml.NVML_ERROR_UNKNOWN
    for handle in (first, second):
        assert error_of(lambda h=handle: nvml.nvmlDeviceGetUtilizationRates(h)) == 4  # type: ignore[misc]
    assert error_of(nvml.nvmlSystemGetDriverVersion) == nvml.NVML_ERROR_TIMEOUT
    assert error_of(lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v3(second)) == 4
    assert error_of(lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(second)) == 4


def begun(seconds_ago: float) -> str:
    """The line of a scenario that began then: its faults come and go without a wait."""
    return f"start {time.time() - seconds_ago}\n"


def test_a_fault_is_limited_in_time(handles: Callable[[str], list[Any]], play: Play) -> None:
    fault = "fault error function=nvmlDeviceGetPowerUsage value=999 from=1000 until=2000\n"
    first, _ = handles(begun(0) + fault)
    assert error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == 0
    play(begun(1500) + fault + TWO_GPUS)
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == 999)
    play(begun(2500) + fault + TWO_GPUS)
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == 0)


def test_calls_for_a_lost_gpu_fail_until_it_returns(handles: Callable[[str], list[Any]], play: Play) -> None:
    first, second = handles("")
    play("fault lost gpu=0\n" + TWO_GPUS)
    lost = nvml.NVML_ERROR_GPU_IS_LOST
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == lost)
    for function, arguments in {
        "nvmlDeviceGetUUID": (),
        "nvmlDeviceGetFieldValues": ([83],),
        "nvmlDeviceGetComputeRunningProcesses": (),
        "nvmlDeviceGetCpuAffinity": (1,),
    }.items():
        assert error_of(lambda f=function, a=arguments: getattr(nvml, f)(first, *a)) == lost  # type: ignore[misc]
    assert error_of(lambda: nvml.nvmlDeviceGetHandleByIndex(0)) == lost
    assert nvml.nvmlDeviceGetCount() == 2
    assert nvml.nvmlDeviceGetPowerUsage(second) == 200000
    play(TWO_GPUS)
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == 0)


def test_a_missing_gpu_shifts_the_indices_of_the_others(
    handles: Callable[[str], list[Any]], play: Play
) -> None:
    first, second = handles("")
    play("fault absent gpu=0\n" + TWO_GPUS)
    wait_until(lambda: nvml.nvmlDeviceGetCount() == 1)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0)) == "GPU-1"
    assert nvml.nvmlDeviceGetIndex(second) == 0
    assert error_of(lambda: nvml.nvmlDeviceGetHandleByIndex(1)) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert error_of(lambda: nvml.nvmlDeviceGetUUID(first)) == nvml.NVML_ERROR_GPU_IS_LOST


def test_a_reloaded_driver_must_be_initialised_again(handles: Callable[[str], list[Any]], play: Play) -> None:
    first, _ = handles("")
    play("fault driver_gone\n" + TWO_GPUS)
    uninitialised = nvml.NVML_ERROR_UNINITIALIZED
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == uninitialised)
    assert error_of(nvml.nvmlDeviceGetCount) == uninitialised
    assert error_of(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED
    play(TWO_GPUS.replace("100000", "1000"))

    def initialised_anew() -> bool:
        assert error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == uninitialised
        return error_of(nvml.nvmlInit) == 0

    wait_until(initialised_anew)
    assert error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == 1000


def test_a_reload_between_two_calls_invalidates_handles(
    handles: Callable[[str], list[Any]], play: Play
) -> None:
    reload = "fault driver_gone from=1000 until=1000\n"
    first, _ = handles(begun(0) + reload)
    assert nvml.nvmlDeviceGetPowerUsage(first) == 100000
    play(begun(2000) + reload + TWO_GPUS)
    uninitialised = nvml.NVML_ERROR_UNINITIALIZED
    wait_until(lambda: error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == uninitialised)
    nvml.nvmlInit()
    assert error_of(lambda: nvml.nvmlDeviceGetPowerUsage(first)) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == 100000


def test_a_library_of_another_version_than_the_driver(scenario: Path) -> None:
    replace_scenario(scenario, "fault version_mismatch\n" + TWO_GPUS)
    preload(scenario)
    assert error_of(nvml.nvmlInit) == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def test_without_a_scenario_there_is_no_driver(scenario: Path) -> None:
    preload(scenario)
    assert error_of(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_implausible_process_counts(handles: Callable[[str], list[Any]]) -> None:
    _, second = handles(
        "fault garbage function=nvmlDeviceGetProcessUtilization\n"
        "fault garbage function=nvmlDeviceGetComputeRunningProcesses value=33\n"
    )
    samples = nvml.nvmlDeviceGetProcessUtilization(second, 0)
    assert len(samples) == 100
    assert max(sample.smUtil for sample in samples) > 100
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(second)
    assert (len(processes), processes[0].pid) == (33, 7)
    assert max(process.pid for process in processes) > 4194304


@pytest.mark.parametrize(("setting", "read"), [("", 808334905), (" value=101", 101)])
def test_an_implausible_number(handles: Callable[[str], list[Any]], setting: str, read: int) -> None:
    first, second = handles(f"fault garbage function=nvmlDeviceGetUtilizationRates gpu=0{setting}\n")
    assert nvml.nvmlDeviceGetUtilizationRates(first).gpu == read
    assert nvml.nvmlDeviceGetUtilizationRates(second).gpu == 20


def holds(scenario: Path) -> bool:
    """Whether this process holds the driver."""
    open_files = Path("/proc/self/fd").iterdir()
    return any(file.is_symlink() and file.readlink() == held_file(scenario) for file in open_files)


def test_the_driver_is_in_use_from_the_first_init_to_the_last_shutdown(play: Play, scenario: Path) -> None:
    assert not holds(scenario)
    play(TWO_GPUS)
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert holds(scenario)
    nvml.nvmlShutdown()
    assert not holds(scenario)
    assert error_of(nvml.nvmlShutdown) == nvml.NVML_ERROR_UNINITIALIZED
    assert error_of(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED


def test_a_mistake_in_the_file_is_reported_and_no_value_is_returned(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replace_scenario(scenario, "frame 0\ngpu 0\nuuid GPU-0\npower.usgae 100\n")
    preload(scenario)
    assert error_of(nvml.nvmlInit) == nvml.NVML_ERROR_UNKNOWN
    assert f"{scenario}:4: unknown key: power.usgae" in capfd.readouterr().err
