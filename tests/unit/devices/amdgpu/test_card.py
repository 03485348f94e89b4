"""What each captured card says, and what is left of it when its files fail."""

import errno
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputally.devices import Errors
from gputally.devices.amdgpu.card import CardReader
from gputally.devices.amdgpu.discovery import find_cards
from gputally.devices.amdgpu.process_activity import ProcessActivity
from gputally.devices.amdgpu.process_finder import FoundProcesses
from gputally.devices.plausible import drop_implausible
from gputally.model import Gpu, Labelled, MigInstance, Process, Reading
from tests.support.amd_trees import plant, planted
from tests.support.gpu_metrics_tables import build
from tests.unit.devices.amdgpu.trees import device, fail_files

Values = dict[str, Any]

GPU = Gpu(uuid="GPU-1", index=0, vendor="amd", model="AMD")
CALM = {
    ("sw_power_cap",): 0.0,
    ("hw_slowdown",): 0.0,
    ("sw_thermal_slowdown",): 0.0,
    ("hw_thermal_slowdown",): 0.0,
}


def clocks(**megahertz: int) -> dict[tuple[str, ...], int]:
    return {(domain,): clock * 1_000_000 for domain, clock in megahertz.items()}


def sensors(**celsius: float) -> dict[tuple[str, ...], float]:
    return {(sensor,): value for sensor, value in celsius.items()}


def pcie(generation: int, **others: Any) -> Values:
    """A link of 16 lanes that runs as fast as it can."""
    return {
        "pcie_generation": generation,
        "pcie_generation_max": generation,
        "pcie_width": 16,
        "pcie_width_max": 16,
    } | others


RX_7900_XTX: Values = {
    "gpu_utilization_ratio": 0.03,
    "memory_utilization_ratio": 0.12,
    "memory_total_bytes": 25753026560,
    "memory_used_bytes": 794341376,
    "memory_free_bytes": 24958685184,
    "memory_visible_total_bytes": 25753026560,
    "memory_visible_used_bytes": 790147072,
    "gtt_total_bytes": 16688144384,
    "gtt_used_bytes": 58720256,
    "power_watts": 68.0,
    "power_limit_watts": 290.0,
    "power_default_limit_watts": 290.0,
    "power_min_limit_watts": 261.0,
    "power_max_limit_watts": 333.0,
    "temperature_celsius": 53.0,
    "memory_temperature_celsius": 68.0,
    "temperature_slowdown_celsius": 100.0,
    "temperature_shutdown_celsius": 105.0,
    "sensor_celsius": sensors(edge=53, junction=61, mem=68, vrgfx=44, vrsoc=48, vrmem=60),
    "sensor_critical_celsius": sensors(edge=100, junction=110, mem=108),
    "clock_hertz": clocks(graphics=31, memory=1249, soc=1500, video=25, decode=25),
    "clock_max_hertz": clocks(graphics=2219, memory=1249, soc=1500),
    "fan_speed_ratio": {("0",): 0.0},
    "throttle_active": CALM | {("sw_power_cap",): 1.0, ("sw_thermal_slowdown",): 1.0},
    **pcie(4, pcie_replays=0),
}
APU: Values = {
    "gpu_utilization_ratio": 0.0,
    "memory_total_bytes": 4294967296,
    "memory_used_bytes": 1272893440,
    "memory_free_bytes": 3022073856,
    "memory_visible_total_bytes": 4294967296,
    "memory_visible_used_bytes": 1272893440,
    "gtt_total_bytes": 31433977856,
    "gtt_used_bytes": 211398656,
    "power_watts": 3.103,
    "temperature_celsius": 25.0,
    "sensor_celsius": sensors(edge=25, gfx=25, soc=27.37),
    "clock_hertz": clocks(graphics=800, memory=400, soc=400, fabric=400, video=800, decode=800),
    "clock_max_hertz": clocks(graphics=2700, memory=800, soc=1200, fabric=1600, video=2400, decode=2057),
    **pcie(4),
}
VEGA: Values = {
    "gpu_utilization_ratio": 0.0,
    "memory_total_bytes": 8573157376,
    "memory_used_bytes": 16613376,
    "memory_free_bytes": 8556544000,
    "memory_visible_total_bytes": 268435456,
    "memory_visible_used_bytes": 16613376,
    "gtt_total_bytes": 8342863872,
    "gtt_used_bytes": 12337152,
    "power_watts": 8.0,
    "power_limit_watts": 260.0,
    "power_default_limit_watts": 260.0,
    "power_max_limit_watts": 390.0,
    "temperature_celsius": 38.0,
    "memory_temperature_celsius": 39.0,
    "temperature_slowdown_celsius": 85.0,
    "temperature_shutdown_celsius": 90.0,
    "sensor_celsius": sensors(edge=38, junction=38, mem=39),
    "sensor_critical_celsius": sensors(edge=85, junction=105, mem=95),
    "clock_hertz": clocks(graphics=852, memory=167, soc=600),
    "clock_max_hertz": clocks(graphics=1590, memory=920, soc=1107),
    "fan_speed_ratio": {("0",): 0.0},
    **pcie(3, pcie_replays=0),
}
RX_6900_XT: Values = {
    "gpu_utilization_ratio": 0.03,
    "memory_utilization_ratio": 0.0,
    "memory_total_bytes": 17163091968,
    "memory_used_bytes": 668274688,
    "memory_free_bytes": 16494817280,
    "memory_visible_total_bytes": 17163091968,
    "memory_visible_used_bytes": 668274688,
    "gtt_total_bytes": 16786171904,
    "gtt_used_bytes": 62369792,
    "power_watts": 36.0,
    "power_limit_watts": 289.0,
    "power_default_limit_watts": 289.0,
    "power_max_limit_watts": 332.0,
    "temperature_celsius": 56.0,
    "memory_temperature_celsius": 54.0,
    "temperature_slowdown_celsius": 100.0,
    "temperature_shutdown_celsius": 105.0,
    "sensor_celsius": sensors(edge=56, junction=59, mem=54, vrgfx=49, vrsoc=49, vrmem=51),
    "sensor_critical_celsius": sensors(edge=100, junction=110, mem=100),
    "clock_hertz": clocks(
        graphics=500, memory=1000, soc=800, fabric=1302, video=0, video_1=0, decode=0, decode_1=0
    ),
    "clock_max_hertz": clocks(graphics=2660, memory=1000, soc=1200, fabric=1941),
    "fan_speed_ratio": {("0",): 0.0},
    "throttle_active": CALM,
    **pcie(4, pcie_replays=0),
}
RX_9070_XT: Values = {
    "gpu_utilization_ratio": 0.03,
    "memory_total_bytes": 17095983104,
    "memory_used_bytes": 1187053568,
    "memory_free_bytes": 15908929536,
    "power_watts": 55.0,
    "power_limit_watts": 120.0,
    "power_default_limit_watts": 304.0,
    "power_max_limit_watts": 340.0,
    "temperature_celsius": 42.0,
    "memory_temperature_celsius": 68.0,
    "temperature_slowdown_celsius": 110.0,
    "temperature_shutdown_celsius": 115.0,
    "sensor_celsius": sensors(edge=42, junction=45, mem=68),
    "sensor_critical_celsius": sensors(edge=110, junction=110, mem=108),
    "clock_hertz": clocks(graphics=19, memory=1258, soc=1280),
    "clock_max_hertz": clocks(graphics=1000, memory=1258, soc=1476),
    "fan_speed_ratio": {("0",): 81 / 255},
    "pcie_generation": 5,
    "pcie_width": 16,
}
MI210: Values = {
    "gpu_utilization_ratio": 0.97,
    "memory_utilization_ratio": 0.41,
    "memory_total_bytes": 68702699520,
    "memory_used_bytes": 43121639424,
    "memory_free_bytes": 25581060096,
    "memory_visible_total_bytes": 68702699520,
    "memory_visible_used_bytes": 43121639424,
    "gtt_total_bytes": 270226264064,
    "gtt_used_bytes": 15007744,
    "power_watts": 251.0,
    "power_limit_watts": 300.0,
    "power_default_limit_watts": 300.0,
    "power_max_limit_watts": 300.0,
    "energy_millijoules": 2_345_678_901_234 * 1000 // 65536,
    "temperature_celsius": 52.0,
    "memory_temperature_celsius": 61.0,
    "temperature_slowdown_celsius": 100.0,
    "temperature_shutdown_celsius": 105.0,
    "sensor_celsius": sensors(
        edge=52, junction=58, mem=61, vrgfx=49, vrsoc=47, vrmem=50, hbm0=61, hbm1=60, hbm2=59, hbm3=60
    ),
    "sensor_critical_celsius": sensors(edge=100, junction=110, mem=110),
    "clock_hertz": clocks(graphics=1700, memory=1600, soc=1090, fabric=400),
    "clock_max_hertz": clocks(graphics=1700, memory=1600, soc=1333, fabric=400),
    "throttle_active": CALM,
    "ras_errors": {
        ("gfx", "uncorrected"): 0,
        ("gfx", "corrected"): 4,
        ("mmhub", "uncorrected"): 0,
        ("mmhub", "corrected"): 0,
        ("sdma", "uncorrected"): 0,
        ("sdma", "corrected"): 0,
        ("umc", "uncorrected"): 1,
        ("umc", "corrected"): 17,
    },
    "ecc_errors": {("corrected", "volatile"): 21, ("uncorrected", "volatile"): 1},
    **pcie(4, pcie_replays=3),
}
MI250_FIRST: Values = {
    name: value for name, value in MI210.items() if name not in ("ras_errors", "ecc_errors")
} | {
    "gpu_utilization_ratio": 0.64,
    "memory_used_bytes": 20971520,
    "memory_free_bytes": 68681728000,
    "memory_visible_used_bytes": 20971520,
    "power_watts": 89.0,
    "power_limit_watts": 560.0,
    "power_default_limit_watts": 560.0,
    "power_max_limit_watts": 560.0,
    "energy_millijoules": 987_654_321_098 * 1000 // 65536,
}
MI250_SECOND: Values = {
    name: value for name, value in MI250_FIRST.items() if not name.startswith(("power_", "energy_"))
} | {
    "gpu_utilization_ratio": 0.12,
    "memory_used_bytes": 10489856,
    "memory_free_bytes": 68692209664,
    "memory_visible_used_bytes": 10489856,
}
MI300X_BLOCKS = ("gfx", "mmhub", "pcie_bif", "sdma", "umc", "xgmi_wafl")
MI300X: Values = {
    "gpu_utilization_ratio": 1.0,
    "memory_utilization_ratio": 0.37,
    "memory_total_bytes": 206141652992,
    "memory_used_bytes": 189123411968,
    "memory_free_bytes": 17018241024,
    "memory_visible_total_bytes": 206141652992,
    "memory_visible_used_bytes": 189123411968,
    "gtt_total_bytes": 1622447562752,
    "gtt_used_bytes": 26279936,
    "power_watts": 742.0,
    "power_limit_watts": 750.0,
    "power_default_limit_watts": 750.0,
    "power_max_limit_watts": 750.0,
    "energy_millijoules": 7_654_321_098_765 * 1000 // 65536,
    "temperature_celsius": 71.0,
    "memory_temperature_celsius": 58.0,
    "temperature_slowdown_celsius": 100.0,
    "temperature_shutdown_celsius": 105.0,
    "sensor_celsius": sensors(junction=71, mem=58, vrsoc=66),
    "sensor_critical_celsius": sensors(junction=100, mem=105),
    "clock_hertz": clocks(graphics=2105, memory=1300, soc=29, fabric=1800, video=29, decode=22),
    "clock_max_hertz": clocks(graphics=2100, memory=1300, soc=1000, fabric=2100),
    "ras_errors": {
        (block, kind): 0 for block in MI300X_BLOCKS for kind in ("uncorrected", "corrected", "deferred")
    }
    | {("umc", "corrected"): 3, ("umc", "deferred"): 2, ("xgmi_wafl", "corrected"): 1},
    "ecc_errors": {("corrected", "volatile"): 4, ("uncorrected", "volatile"): 0},
    "xgmi_bytes": {(str(link), "read"): (link + 1) * 1000 * 1024 for link in range(7)}
    | {(str(link), "write"): ((link + 1) * 1000 + 100) * 1024 for link in range(7)},
    "xgmi_up": {(str(link),): 1.0 for link in range(6)} | {("6",): 0.0},
    **pcie(5, pcie_replays=2),
}
# Its table is of a version that does not list the links.
MI300X_CPX: Values = {name: value for name, value in MI300X.items() if name != "xgmi_up"} | {
    "xgmi_bytes": MI300X["xgmi_bytes"] | {("7", "read"): 0, ("7", "write"): 0}
}
EXPECTED = [
    ("rx7900xtx", 0, RX_7900_XTX),
    ("apu", 1, APU),
    ("vega-no-mem-busy", 0, VEGA),
    ("card10", 2, RX_6900_XT),
    ("card10", 10, RX_9070_XT),
    ("mi210", 0, MI210),
    ("mi250", 0, MI250_FIRST),
    ("mi250", 1, MI250_SECOND),
    ("mi300x", 1, MI300X),
    ("mi300x", 9, MI300X | {"gpu_utilization_ratio": 0.6, "power_watts": 141.0}),
    ("mi300x-cpx", 1, MI300X_CPX),
]


def card_reader(tree: Path, number: int, errors: Errors | None = None) -> CardReader:
    (card,) = (card for card in find_cards(tree / "sys", Counter()) if card.number == number)
    return CardReader(card, Counter() if errors is None else errors)


def read(reader: CardReader, residents: Mapping[int | None, FoundProcesses] | None = None) -> Reading:
    return reader.read(GPU, residents or {})


@pytest.mark.parametrize(
    ("tree", "card", "values"), EXPECTED, ids=[f"{tree}-{card}" for tree, card, _ in EXPECTED]
)
def test_every_value_of_a_card(tree: str, card: int, values: Values) -> None:
    errors: Errors = Counter()
    reading = read(card_reader(planted(tree), card, errors))
    assert reading == Reading(gpu=GPU, **values)
    assert not errors
    assert drop_implausible(reading) == (reading, ())


def test_the_second_die_has_no_power_even_without_a_file_for_it(tmp_path: Path) -> None:
    tree = plant("mi250", tmp_path)
    (device(tree, 1) / "hwmon/hwmon3/power1_average").unlink()
    (device(tree, 1) / "gpu_metrics").write_bytes(
        build((1, 3), average_socket_power=0, energy_accumulator=5, gfx_activity_acc=1)
    )
    reading = read(card_reader(tree, 1))
    assert (reading.power_watts, reading.energy_millijoules) == (None, None)


@pytest.mark.parametrize(
    ("speed", "generation"),
    [("2.5 GT/s PCIe", 1), ("5.0 GT/s PCIe", 2), ("64.0 GT/s PCIe", 6), ("Unknown", None), ("5 GT/s", 2)],
)
def test_the_generation_of_a_link(tmp_path: Path, speed: str, generation: int | None) -> None:
    tree = plant("apu", tmp_path)
    (device(tree, 1) / "current_link_speed").write_text(f"{speed}\n")
    assert read(card_reader(tree, 1)).pcie_generation == generation


def test_the_table_supplies_values_that_no_file_has(tmp_path: Path) -> None:
    tree = plant("mi300x", tmp_path)
    directory = device(tree, 1)
    for name in ("gpu_busy_percent", "mem_busy_percent", "pcie_replay_count", "current_link_speed"):
        (directory / name).unlink()
    for path in [*directory.glob("hwmon/*/*"), *directory.glob("pp_dpm_*"), directory / "current_link_width"]:
        path.unlink()
    reading = read(card_reader(tree, 1))
    assert reading.gpu_utilization_ratio == 1.0
    assert reading.memory_utilization_ratio == 0.37
    assert reading.power_watts == 742.0
    assert reading.temperature_celsius == 71.0
    assert reading.temperature_slowdown_celsius is None
    assert reading.clock_hertz == clocks(graphics=2105, memory=1300, soc=29, video=29, decode=22)
    assert reading.clock_max_hertz is None
    assert (reading.pcie_generation, reading.pcie_width, reading.pcie_replays) == (5, 16, 2)


def test_a_table_of_an_unknown_version_is_skipped_and_counted(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    (device(tree, 0) / "gpu_metrics").write_bytes(bytes([200, 0, 9, 42]) + bytes(196))
    errors: Errors = Counter()
    reading = read(card_reader(tree, 0, errors))
    assert errors == {("gpu_metrics", "unknown_version_9_42"): 1}
    assert reading.up
    assert reading.energy_millijoules is None
    assert reading.power_watts == 251.0


@pytest.mark.parametrize("content", [b"\x78", b"\x78\0\1\3" + bytes(20)])
def test_a_malformed_table_is_skipped_and_counted(tmp_path: Path, content: bytes) -> None:
    tree = plant("mi210", tmp_path)
    (device(tree, 0) / "gpu_metrics").write_bytes(content)
    errors: Errors = Counter()
    assert read(card_reader(tree, 0, errors)).power_watts == 251.0
    assert errors == {("gpu_metrics", "malformed"): 1}


def test_throttling_since_the_last_sample(tmp_path: Path) -> None:
    tree = plant("mi300x", tmp_path)
    reader = card_reader(tree, 1)

    def look(**cycles: int) -> Labelled | None:
        counted = {f"{name}_residency_acc": count for name, count in cycles.items()}
        (device(tree, 1) / "gpu_metrics").write_bytes(build((1, 6), **counted))
        return read(reader).throttle_active

    assert look(ppt=100, socket_thm=7, prochot=0) is None
    assert look(ppt=100, socket_thm=7, prochot=0) == CALM
    assert look(ppt=150, socket_thm=7, prochot=0) == CALM | {("sw_power_cap",): 1.0}
    assert look(ppt=150, socket_thm=9, prochot=1) == CALM | {
        ("sw_thermal_slowdown",): 1.0,
        ("hw_thermal_slowdown",): 1.0,
    }
    assert look(ppt=3, socket_thm=0, prochot=0) == CALM  # the card was reset


def test_processes_of_a_card_and_of_its_partitions() -> None:
    busy = ProcessActivity(1_000_000, 0, {7: {"sm": 0.0, "encoder": 0.0, "decoder": 0.0}}, {7: 1.0})
    whole = FoundProcesses((Process(7, "compute", "python3", 42),))
    parts: dict[int | None, FoundProcesses] = {
        n: FoundProcesses((Process(7, "compute", "python3", 42, n, 0),) if n == 3 else (), busy)
        for n in range(8)
    }
    reading = read(card_reader(planted("mi300x-cpx"), 1), {None: whole, **parts})
    assert (reading.processes, reading.process_samples) == (whole.processes, None)
    assert [part.processes for part in reading.mig] == [parts[n].processes for n in range(8)]
    assert [[sample.sm_ratio for sample in part.process_samples or ()] for part in reading.mig] == [
        [n / 10] for n in range(8)
    ]
    assert [part.graphics_active_ratio for part in reading.mig] == [n / 10 for n in range(8)]
    assert reading.mig[3].instance == MigInstance(
        uuid="GPU-1-3",
        parent_uuid="GPU-1",
        parent_index=0,
        gpu_instance_id=3,
        compute_instance_id=0,
        profile="CPX/NPS4",
    )


def test_one_failing_file_affects_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_files(monkeypatch, errno.EBUSY, lambda path: path.name == "power1_average")
    errors: Errors = Counter()
    reading = read(card_reader(planted("vega-no-mem-busy"), 0, errors))
    assert reading == Reading(gpu=GPU, **(VEGA | {"power_watts": None}))
    assert errors == {("power_watts", "ebusy"): 1}


@pytest.mark.parametrize("code", [errno.EIO, errno.EBUSY, errno.EPERM, errno.ENODEV, errno.ETIMEDOUT])
def test_a_card_whose_files_all_fail_is_lost(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    reader = card_reader(planted("mi300x"), 1)
    with monkeypatch.context() as patch:
        fail_files(patch, code, lambda _: True)
        assert read(reader) == Reading(gpu=GPU, up=False)
    assert read(reader) == Reading(gpu=GPU, **MI300X)


def test_a_card_with_values_of_the_kernel_only_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ("mem_info_", "current_link_", "max_link_", "ras")
    labels = ("_label", "_crit", "_emergency", "name")
    reader = card_reader(planted("mi210"), 0)
    fail_files(
        monkeypatch,
        errno.EIO,
        lambda path: not path.name.startswith(known) and not path.name.endswith(labels),
    )
    assert read(reader) == Reading(gpu=GPU, up=False)


def test_a_card_that_disappeared_is_lost(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    reader = card_reader(tree, 0)
    device(tree, 0).rename(tmp_path / "gone")
    assert read(reader) == Reading(gpu=GPU, up=False)


def test_a_card_without_read_permission_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: Errors = Counter()
    reader = card_reader(planted("mi210"), 0, errors)
    fail_files(monkeypatch, errno.EACCES, lambda _: True)
    assert read(reader) == Reading(gpu=GPU)
    assert errors["gpu_utilization_ratio", "eacces"] == 1
    assert {error for _, error in errors} == {"eacces"}


def test_a_suspended_card_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = plant("rx7900xtx", tmp_path)
    (device(tree, 0) / "power").mkdir()
    (device(tree, 0) / "power/runtime_status").write_text("suspended\n")
    errors: Errors = Counter()
    reader = card_reader(tree, 0, errors)
    quiet = ("runtime_status", "mem_info_")
    with monkeypatch.context() as patch:
        fail_files(patch, errno.EPERM, lambda path: not path.name.startswith(quiet))
        memory = {name: value for name, value in RX_7900_XTX.items() if name.startswith(("memory_", "gtt_"))}
        del memory["memory_utilization_ratio"], memory["memory_temperature_celsius"]
        assert read(reader) == Reading(gpu=GPU, **memory)
    assert not errors
    (device(tree, 0) / "power/runtime_status").write_text("active\n")
    assert read(reader) == Reading(gpu=GPU, **RX_7900_XTX)
