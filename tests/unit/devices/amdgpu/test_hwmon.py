"""What the sensors of a card say, in base units."""

import errno
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.files import Files
from gputally.devices.amdgpu.hwmon import Hwmon, read_hwmon
from tests.support.amd_trees import planted
from tests.unit.devices.amdgpu.trees import device, fail_files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, Counter())


def write(files: Files, values: Mapping[str, object], name: str = "amdgpu", number: int = 3) -> None:
    directory = files.directory / f"hwmon/hwmon{number}"
    directory.mkdir(parents=True)
    for file, value in {"name": name, **values}.items():
        (directory / file).write_text(f"{value}\n")


def test_a_desktop_card() -> None:
    hwmon = read_hwmon(Files(device(planted("rx7900xtx"), 0), Counter()))
    assert hwmon == Hwmon(
        power_watts=68.0,
        power_limit_watts=290.0,
        power_default_limit_watts=290.0,
        power_min_limit_watts=261.0,
        power_max_limit_watts=333.0,
        celsius={"edge": 53.0, "junction": 61.0, "mem": 68.0},
        critical_celsius={"edge": 100.0, "junction": 110.0, "mem": 108.0},
        emergency_celsius={"edge": 105.0, "junction": 115.0, "mem": 113.0},
        clock_hertz={"graphics": 31e6, "memory": 1249e6},
        fan_ratio=0.0,
    )


def test_a_card_without_sensors_has_no_values(files: Files) -> None:
    assert read_hwmon(files) == Hwmon()
    assert not files.errors


def test_sensors_of_another_driver_are_ignored(files: Files) -> None:
    write(files, {"temp1_input": 99000}, name="nvme", number=1)
    assert read_hwmon(files) == Hwmon()
    write(files, {"temp1_input": 40000}, number=10)
    assert read_hwmon(files).celsius == {"edge": 40.0}


def test_old_kernels_do_not_label_their_sensors(files: Files) -> None:
    write(
        files,
        {"temp1_input": 41000, "temp4_input": 39000, "freq1_input": 852000000, "freq2_input": 167000000},
    )
    hwmon = read_hwmon(files)
    assert hwmon.celsius == {"edge": 41.0, "temp4": 39.0}
    assert hwmon.clock_hertz == {"graphics": 852e6, "memory": 167e6}


def test_an_unsupported_average_is_not_an_error(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    write(files, {"power1_input": 3142000, "power1_average": 3103000})
    fail_files(monkeypatch, errno.EOPNOTSUPP, lambda path: path.name == "power1_average")
    assert read_hwmon(files).power_watts == 3.142
    assert not files.errors


def test_limits_of_zero_are_absent(files: Files) -> None:
    write(
        files,
        {
            "power1_cap": 0,
            "power1_cap_min": 0,
            "power1_cap_max": 750000000,
            "temp2_label": "junction",
            "temp2_input": 0,
            "temp2_crit": 0,
            "temp2_emergency": 0,
        },
    )
    hwmon = read_hwmon(files)
    assert (hwmon.power_limit_watts, hwmon.power_min_limit_watts) == (None, None)
    assert hwmon.power_max_limit_watts == 750.0
    assert hwmon.celsius == {"junction": 0.0}
    assert (hwmon.critical_celsius, hwmon.emergency_celsius) == ({}, {})


@pytest.mark.parametrize(
    ("values", "watts"),
    [
        ({"power1_average": 3_103_000, "power1_input": 3_142_000}, 3.103),
        ({"power1_average": 0, "power1_input": 3_142_000}, 0.0),
        ({"power1_input": 3_142_000}, 3.142),
        ({}, None),
    ],
)
def test_the_power(files: Files, values: dict[str, int], watts: float | None) -> None:
    write(files, values)
    assert read_hwmon(files).power_watts == watts


@pytest.mark.parametrize(
    ("values", "ratio"),
    [
        ({"fan1_input": 896, "fan1_max": 3650, "pwm1": 81, "pwm1_max": 255}, 81 / 255),
        ({"fan1_input": 730, "fan1_max": 3650}, 0.2),
        ({"fan1_input": 730, "fan1_max": 3650, "pwm1": 51, "pwm1_max": 0}, 0.2),
        ({"fan1_input": 1200}, None),
        ({"pwm1": 51}, None),
        ({}, None),
    ],
)
def test_the_fan(files: Files, values: dict[str, int], ratio: float | None) -> None:
    write(files, values)
    assert read_hwmon(files).fan_ratio == ratio


def test_one_failing_sensor_does_not_affect_the_others(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        files,
        {"temp1_input": 40000, "temp1_label": "edge", "temp3_input": 50000, "temp3_label": "mem"},
    )
    fail_files(monkeypatch, errno.EIO, lambda path: path.name == "temp1_input")
    assert read_hwmon(files).celsius == {"mem": 50.0}
    assert files.errors == {("sensor_celsius", "eio"): 1}


@given(
    microwatts=st.integers(1, 5_000_000_000),
    millidegrees=st.integers(-40_000, 200_000),
    hertz=st.integers(0, 10**11),
)
def test_units(
    tmp_path_factory: pytest.TempPathFactory, microwatts: int, millidegrees: int, hertz: int
) -> None:
    files = Files(tmp_path_factory.mktemp("card"), Counter())
    write(
        files,
        {
            "power1_average": microwatts,
            "power1_cap": microwatts,
            "temp1_input": millidegrees,
            "freq1_input": hertz,
            "freq1_label": "sclk",
        },
    )
    hwmon = read_hwmon(files)
    assert hwmon.power_watts == hwmon.power_limit_watts
    assert round((hwmon.power_watts or 0) * 1_000_000) == microwatts
    assert round(hwmon.celsius["edge"] * 1000) == millidegrees
    assert hwmon.clock_hertz == {"graphics": hertz}
