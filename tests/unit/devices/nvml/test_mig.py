"""Names of MIG profiles, from what the driver says or from the slices."""

from collections.abc import Callable

import pynvml
import pytest

from gputally.devices.nvml.mig import named_profile, profile_name
from gputally.model import Reading
from tests.support.nvml_cards import a100_mig, h100, h100_mig
from tests.unit.devices.nvml.driver import Driver

MIB = 1024**2


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "1c.3g.40gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA A100-SXM4-40GB", None),
        ("", None),
    ],
)
def test_profile_in_the_name(name: str, profile: str | None) -> None:
    assert named_profile(name) == profile


@pytest.mark.parametrize(
    ("total_mib", "gpu_slices", "compute_slices", "memory_mib", "profile"),
    [
        (40536, 1, 1, 4864, "1g.5gb"),
        (40536, 3, 3, 19968, "3g.20gb"),
        (40536, 7, 7, 40192, "7g.40gb"),
        (81251, 1, 1, 9728, "1g.10gb"),
        (81251, 2, 1, 19968, "1c.2g.20gb"),
        (81559, 3, 3, 40448, "3g.40gb"),
    ],
)
def test_profile_from_the_slices(
    total_mib: int, gpu_slices: int, compute_slices: int, memory_mib: int, profile: str
) -> None:
    named = profile_name(gpu_slices, compute_slices, memory_mib * MIB, total_mib * MIB)
    assert named == profile


@pytest.mark.parametrize("card", [a100_mig, h100_mig])
def test_a_driver_that_does_not_name_profiles(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, card: Callable[[], Reading]
) -> None:
    plain = pynvml.nvmlDeviceGetName
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: plain(handle).partition(" MIG ")[0])
    driver.shows(card())
    (reading,) = driver.reader().read().readings
    assert [mig.instance for mig in reading.mig] == [mig.instance for mig in card().mig]


def test_without_the_right_to_monitor_mig_the_mig_devices_are_read_and_nothing_is_counted_twice(
    driver: Driver,
) -> None:
    split, whole = h100_mig(0), h100(1)
    driver.shows(split, whole, mig_monitor=False)
    reader = driver.reader()
    first = reader.read()
    for report in (first, reader.read(), reader.read()):
        denied, allowed = report.readings
        assert denied.up
        assert denied.processes is None
        assert denied.memory_used_bytes is None
        assert denied.bar1_used_bytes is None
        assert denied.xid_errors is None, "not 0: XIDs cannot arrive"
        assert [mig.processes for mig in denied.mig] == [mig.processes for mig in split.mig]
        assert [mig.memory_used_bytes for mig in denied.mig] == [mig.memory_used_bytes for mig in split.mig]
        assert denied.power_watts == split.power_watts
        assert allowed.processes == whole.processes
        assert allowed.xid_errors is not None
        assert report.errors == first.errors
    assert {error for _, error in first.errors} == {"no_permission"}
    assert {field for field, _ in first.errors} == {"processes", "memory_used_bytes", "bar1_used_bytes"}


def test_with_the_right_to_monitor_mig_all_is_read(driver: Driver) -> None:
    driver.shows(h100_mig())
    report = driver.reader().read()
    (reading,) = report.readings
    assert reading.processes is not None
    assert reading.memory_used_bytes is not None
    assert reading.xid_errors is not None
    assert report.errors == {}
