"""Every error of the driver becomes None, a counted error, a lost GPU or a new initialisation."""

import time
from dataclasses import replace

import pynvml
import pytest

from gputally.devices.nvml import device
from gputally.devices.nvml.library import DeviceLost, ErrorMeaning, Library, LibraryGone
from gputally.model import Unavailable
from tests.support.nvml_cards import h100, h100_mig, t4
from tests.unit.devices.nvml.driver import Driver
from tools.standin.scenario import Fault, FaultKind

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, NOT_READY = 2, 3, 4, 13, 27
DEPRECATED, UNKNOWN = 26, 999


@pytest.fixture
def library() -> Library:
    library = Library()
    library.nvml = pynvml
    return library


@pytest.mark.parametrize("code", [INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, DEPRECATED, 25, 22])
def test_unsupported_values_are_not_errors(library: Library, code: int) -> None:
    assert library.judge(code, "power_watts") is ErrorMeaning.UNSUPPORTED
    assert not library.errors


@pytest.mark.parametrize(
    ("code", "name"),
    [(UNKNOWN, "unknown"), (NOT_READY, "not_ready"), (12345, "code_12345")],
)
def test_errors_are_counted_by_field_and_name(library: Library, code: int, name: str) -> None:
    library.judge(code, "power_watts")
    assert library.judge(code, "power_watts") is ErrorMeaning.FAILED
    assert library.errors == {("power_watts", name): 2}


@pytest.mark.parametrize("code", [15, 16, 28])
def test_a_lost_device_is_distinguished(library: Library, code: int) -> None:
    with pytest.raises(DeviceLost):
        library.judge(code, "power_watts")
    assert not library.errors


@pytest.mark.parametrize("code", [1, 9, 12, 18])
def test_an_uninitialised_library_is_distinguished(library: Library, code: int) -> None:
    with pytest.raises(LibraryGone):
        library.judge(code, "power_watts")
    assert not library.errors


@pytest.mark.parametrize("code", [1, 4, 9, 12, 17, 18, 999, 12345])
def test_every_failed_initialisation_has_a_reason_and_a_fix(library: Library, code: int) -> None:
    unavailable = library.unavailable(code)
    assert len(unavailable.reason) > 10
    assert unavailable.fix


def test_a_failing_function_affects_only_its_field(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetPowerUsage", gpu=1, value=UNKNOWN)
    driver.shows(t4(0), t4(1), faults=[fault])
    reader = driver.reader()
    reader.read()
    report = reader.read()
    assert [reading.power_watts for reading in report.readings] == [t4().power_watts, None]
    assert report.readings[1].temperature_celsius == t4().temperature_celsius
    assert report.errors == {("power_watts", "unknown"): 2}


def test_permission_that_is_missing_is_counted_once_and_asked_for_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingMode", value=NO_PERMISSION)
    driver.shows(t4(), faults=[fault])
    reader = driver.reader()
    for hour in (0, 0, 1, 2):
        clock.ahead = hour * device.ASK_AGAIN_SECONDS
        report = reader.read()
        assert report.readings[0].accounting_mode is None
        assert report.errors == {("accounting_mode", "no_permission"): 1}
    driver.shows(t4())
    assert reader.read().readings[0].accounting_mode is None
    clock.ahead = 3 * device.ASK_AGAIN_SECONDS
    assert reader.read().readings[0].accounting_mode is t4().accounting_mode


class Clock:
    """The monotonic clock of the reader, and the seconds by which the test has moved it on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        patch.setattr(device, "time", self)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


def test_what_is_not_supported_is_asked_again_every_hour_gpu_by_gpu(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    gone = {"temperature_margin_celsius": None, "remap_banks": None, "pcie_replays": None}
    driver.shows(*(replace(h100(index), **gone) for index in range(3)))  # type: ignore[arg-type]
    reader = driver.reader()
    reader.read()
    driver.shows(*(h100(index) for index in range(3)))

    def supporting() -> list[int]:
        readings = reader.read().readings
        return [one.gpu.index for one in readings if all(getattr(one, field) is not None for field in gone)]

    assert supporting() == []
    for index in range(3):
        clock.ahead = device.ASK_AGAIN_SECONDS + index * device.APART_SECONDS
        assert supporting() == list(range(index + 1))
        assert all(one.sm_active_ratio is not None for one in reader.read().readings), "no gap in the others"


def test_failure_of_all_field_values_does_not_affect_other_values(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetFieldValues", value=UNKNOWN)
    driver.shows(t4(), faults=[fault])
    report = driver.reader().read()
    (reading,) = report.readings
    assert reading.ecc_errors is None
    assert reading.energy_millijoules == t4().energy_millijoules  # there is another way to it
    assert reading.power_watts == t4().power_watts
    assert report.errors["fields", "unknown"] > 0


def test_values_that_are_read_once_are_read_again_after_a_failure(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetPowerManagementDefaultLimit", value=UNKNOWN)
    driver.shows(t4(), faults=[fault])
    reader = driver.reader()
    assert reader.read().readings[0].power_default_limit_watts is None
    driver.shows(t4())
    assert reader.read().readings[0].power_default_limit_watts == t4().power_default_limit_watts


def test_not_available_is_none_and_not_an_error(driver: Driver) -> None:
    fault = Fault(FaultKind.GARBAGE, function="nvmlDeviceGetPowerUsage", value=2**32 - 1)
    driver.shows(replace(t4(), performance_state=32), faults=[fault])
    report = driver.reader().read()
    assert report.readings[0].power_watts is None
    assert report.readings[0].performance_state is None
    assert report.errors == {}


def test_an_unknown_state_is_dropped_and_counted(driver: Driver) -> None:
    fault = Fault(FaultKind.GARBAGE, function="nvmlDeviceGetComputeMode", value=77)
    driver.shows(t4(), faults=[fault])
    report = driver.reader().read()
    assert report.readings[0].compute_mode is None
    assert report.errors == {("compute_mode", "implausible"): 1}


class Hiding:
    """The driver's library as an older driver has it: without some functions."""

    def __init__(self, library: object, *names: str) -> None:
        self._library = library
        self._names = names

    def __getattr__(self, name: str) -> object:
        if name in self._names:
            raise AttributeError(name)
        return getattr(self._library, name)


def test_older_driver_without_newer_functions(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.shows(h100(0), h100_mig(1))
    driver.reader().read()
    hiding = Hiding(
        pynvml.nvmlLib,
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetSupportedClocksEventReasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMarginTemperature",
        "nvmlGpmMigSampleGet",
        "nvmlEventSetWait_v2",
        "nvmlSystemGetProcessName",
    )
    monkeypatch.setattr(pynvml, "nvmlLib", hiding)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    reader = driver.reader()
    reader.read()
    report = reader.read()
    assert report.errors == {}
    whole, split = report.readings
    expected = h100(0)
    assert whole.energy_millijoules == expected.energy_millijoules
    assert whole.pcie_replays == expected.pcie_replays
    assert whole.memory_total_bytes == expected.memory_total_bytes
    assert whole.memory_reserved_bytes is None
    assert whole.throttle_active == expected.throttle_active
    assert whole.nvlink_up == expected.nvlink_up
    assert whole.process_samples is None
    assert whole.xid_errors is None
    assert whole.temperature_margin_celsius is None
    assert [(process.pid, process.name) for process in whole.processes or ()] == [(4711, None), (4712, None)]
    assert split.sm_active_ratio == expected.sm_active_ratio
    assert [mig.sm_active_ratio for mig in split.mig] == [None, None]
    reader.close()


def test_older_pynvml_without_newer_functions(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pynvml, "nvmlDeviceGetMarginTemperature")
    driver.shows(h100())
    report = driver.reader().read()
    assert report.readings[0].temperature_margin_celsius is None
    assert report.readings[0].temperature_celsius == h100().temperature_celsius
    assert report.errors == {}


def test_unsupported_values_are_not_queried_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.shows(t4())
    reader = driver.reader()
    reader.read()
    asked: list[object] = []
    monkeypatch.setattr(pynvml, "nvmlDeviceGetJpgUtilization", asked.append)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMarginTemperature", asked.append)
    reader.read()
    assert asked == []


def test_invalid_text_affects_only_its_field(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def garbled(_: object) -> str:
        return b"\xff\xfe16".decode()

    monkeypatch.setattr(pynvml, "nvmlDeviceGetSerial", garbled)
    driver.shows(t4())
    report = driver.reader().read()
    assert report.readings[0].gpu.serial is None
    assert report.readings[0].up
    assert report.errors == {("serial", "garbled"): 1}


def test_a_missing_library_is_explained(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)  # type: ignore[no-untyped-call]

    driver.shows(t4())
    reader = driver.reader()
    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlInit", not_found)
        with pytest.raises(Unavailable) as caught:
            reader.read()
    assert "libnvidia-ml.so.1" in caught.value.reason
    assert "NVIDIA_VISIBLE_DEVICES" in caught.value.fix
    assert reader.read().readings[0].up
