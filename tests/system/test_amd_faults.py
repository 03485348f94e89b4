"""The running exporter on files of amdgpu that vanish, fail or block: it goes on and says what is wrong."""

import os
from pathlib import Path

import pytest

from tests.support.amd_meters import card_directory, rewrite
from tests.support.amd_trees import plant
from tests.support.exporter import Exporter
from tests.system.conftest import Watch

IMPATIENT = ("--timeout", "500ms")
FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"
FAILING = """
import errno, os, pathlib
really_open, listed = os.open, pathlib.Path(os.environ["FAILING_FILES"])
def open_or_fail(path, *arguments, **more):
    for line in listed.read_text().splitlines():
        part, error = line.split()
        if part in str(path):
            raise OSError(getattr(errno, error), error, path)
    return really_open(path, *arguments, **more)
os.open = open_or_fail
"""


def fail_by_list(directory: Path) -> tuple[Path, dict[str, str]]:
    """A list of files that fail, each line a part of a path and an error; and what makes Python heed it."""
    listed = directory / "failing"
    listed.touch()
    (directory / "site").mkdir()
    (directory / "site/sitecustomize.py").write_text(FAILING)
    path = os.pathsep.join(filter(None, (str(directory / "site"), os.environ.get("PYTHONPATH"))))
    return listed, {"FAILING_FILES": str(listed), "PYTHONPATH": path}


def start(directory: Path, host: Path, *arguments: str, **environment: str) -> Exporter:
    command = (
        *("serve", "--reader", "amdgpu", "--interval", "200ms"),
        *("--sysfs", str(host / "sys"), "--procfs", str(host / "proc"), *arguments),
    )
    exporter = Exporter(directory / "log", *command, environment=environment)
    exporter.wait_until(lambda: up(exporter) == {"0": 1.0, "1": 1.0}, "both GPUs are up")
    return exporter


def up(exporter: Exporter) -> dict[str, float]:
    return {labels[0]: value for labels, value in exporter.samples().get("gputally_gpu_up", {}).items()}


def errors(exporter: Exporter, field: str) -> dict[str, float]:
    """How often each error met those who read this field."""
    found = exporter.samples().get("gputally_source_field_errors", {})
    return {error: count for (_, of_field, error), count in found.items() if of_field == field}


@pytest.mark.parametrize("file", ["gpu_busy_percent", "uevent"])
def test_a_file_that_blocks(tmp_path: Path, watched: Watch, file: str) -> None:
    host = plant("mi300x", tmp_path)
    path, aside, pipe = card_directory(host, SECOND) / file, tmp_path / "aside", tmp_path / "pipe"
    with start(tmp_path, host, *IMPATIENT, "--max-age", "3s") as exporter, watched(exporter):
        before = exporter.samples()["gputally_gpu_power_watts"]
        aside.hardlink_to(path)
        os.mkfifo(pipe)
        pipe.replace(path)  # opening it blocks until there is a writer
        pipe.hardlink_to(path)
        down = exporter.samples_when(
            lambda now: now["gputally_source_up"]["amdgpu",] == 0, "the source is down"
        )
        assert down["gputally_source_overruns_total"]["amdgpu",] >= 1
        assert down["gputally_gpu_power_watts"] == before, "the last readings are still served"
        exporter.wait_until(lambda: up(exporter) == {"0": 0.0, "1": 0.0}, "the readings are too old")
        assert b"no answer within 0.5 s" in exporter.get("/readyz")[1]
        aside.replace(path)
        with pipe.open("wb"):
            pass
        exporter.wait_until(lambda: up(exporter) == {"0": 1.0, "1": 1.0}, "both GPUs are back")
        assert exporter.value("gputally_source_up", "amdgpu") == 1
        assert exporter.get("/readyz")[0] == 200


def test_the_exporter_stops_in_time_while_a_file_blocks(tmp_path: Path) -> None:
    host = plant("mi300x", tmp_path)
    path = card_directory(host, FIRST) / "mem_info_vram_used"
    with start(tmp_path, host, *IMPATIENT) as exporter:
        path.unlink()
        os.mkfifo(path)
        exporter.wait_until(lambda: exporter.value("gputally_source_overruns_total", "amdgpu"), "it hangs")
        exporter.stop()
        assert exporter.process.returncode == 0


def test_a_card_falls_off_the_bus_and_returns(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    card = card_directory(host, FIRST)
    with start(tmp_path, host) as exporter, watched(exporter):
        energy = exporter.value("gputally_gpu_energy_joules_total", "0")
        card.rename(tmp_path / "gone")
        exporter.wait_until(lambda: up(exporter) == {"0": 0.0, "1": 1.0}, "the first GPU is down")
        assert exporter.value("gputally_gpu_power_watts", "0") is None
        assert exporter.value("gputally_gpu_power_watts", "1") is not None
        assert exporter.value("gputally_gpu_energy_joules_total", "0") == energy, "what was counted stays"
        (tmp_path / "gone").rename(card)
        exporter.wait_until(lambda: up(exporter) == {"0": 1.0, "1": 1.0}, "both GPUs are up again")


def test_all_cards_disappear_with_the_driver_and_return(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    with start(tmp_path, host) as exporter, watched(exporter):
        for name in ("class/drm", "class/kfd", "module/amdgpu"):
            (host / "sys" / name).rename(host / name.replace("/", "-"))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "amdgpu") == 0, "the driver is gone")
        assert up(exporter) == {"0": 0.0, "1": 0.0}
        assert b"the amdgpu driver is not loaded" in exporter.get("/readyz")[1]
        for name in ("module/amdgpu", "class/kfd", "class/drm"):
            (host / name.replace("/", "-")).rename(host / "sys" / name)
        exporter.wait_until(lambda: up(exporter) == {"0": 1.0, "1": 1.0}, "the driver is back")


def test_sensors_disappear_and_return(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    sensors = card_directory(host, FIRST) / "hwmon"
    with start(tmp_path, host) as exporter, watched(exporter):
        assert exporter.value("gputally_gpu_power_limit_watts", "0") is not None
        sensors.rename(tmp_path / "hwmon")
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_power_limit_watts", "0") is None, "the limit is gone"
        )
        assert up(exporter) == {"0": 1.0, "1": 1.0}
        assert exporter.value("gputally_gpu_power_watts", "0") == 742, "the table has it too"
        assert exporter.value("gputally_gpu_power_limit_watts", "1") is not None
        (tmp_path / "hwmon").rename(sensors)
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_power_limit_watts", "0") is not None, "the limit is back"
        )


def test_a_file_that_fails_is_counted_and_other_values_are_exported(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    path = card_directory(host, FIRST) / "gpu_busy_percent"
    with start(tmp_path, host) as exporter, watched(exporter):
        path.rename(tmp_path / "aside")
        path.mkdir()
        exporter.wait_until(
            lambda: errors(exporter, "gpu_utilization_ratio").get("eisdir", 0) >= 2, "it is counted"
        )
        assert up(exporter) == {"0": 1.0, "1": 1.0}
        assert exporter.value("gputally_gpu_temperature_celsius", "0") is not None
        path.rmdir()
        (tmp_path / "aside").rename(path)
        exporter.next_snapshots(2)
        before = errors(exporter, "gpu_utilization_ratio")
        exporter.next_snapshots(2)
        assert errors(exporter, "gpu_utilization_ratio") == before, "no more errors"


def test_busy_and_malformed_files_are_counted(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    listed, environment = fail_by_list(tmp_path)
    with start(tmp_path, host, **environment) as exporter, watched(exporter):
        rewrite(listed, f"{FIRST}/hwmon/hwmon4/power1_cap EBUSY\nfdinfo/6 EIO\nkfd/proc/20102/vram_ EIO\n")
        exporter.wait_until(lambda: errors(exporter, "power_limit_watts").get("ebusy"), "the limit is busy")
        assert errors(exporter, "fdinfo")["eio"] >= 1
        assert errors(exporter, "kfd")["eio"] >= 1
        assert up(exporter) == {"0": 1.0, "1": 1.0}
        assert exporter.value("gputally_gpu_power_limit_watts", "0") is None
        assert exporter.value("gputally_gpu_power_limit_watts", "1") is not None
        rewrite(listed, "")
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_power_limit_watts", "0") is not None, "the limit is back"
        )


def test_a_card_in_reset_is_down_and_keeps_its_identity(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    listed, environment = fail_by_list(tmp_path)
    of_the_card = ("gpu_busy", "mem_busy", "gpu_metrics", "hwmon", "pp_dpm", "unique_id", "ras")
    with start(tmp_path, host, **environment) as exporter, watched(exporter):
        who = exporter.samples()["gputally_gpu_up"].keys()
        rewrite(listed, "".join(f"{FIRST}/{name} EBUSY\n" for name in of_the_card))
        exporter.wait_until(lambda: up(exporter) == {"0": 0.0, "1": 1.0}, "the first GPU is down")
        assert exporter.samples()["gputally_gpu_up"].keys() == who
        rewrite(listed, "")
        exporter.wait_until(lambda: up(exporter) == {"0": 1.0, "1": 1.0}, "it is back")
        assert exporter.samples()["gputally_gpu_up"].keys() == who


def test_a_process_ends_while_kfd_still_lists_it(tmp_path: Path, watched: Watch) -> None:
    host = plant("mi300x", tmp_path)
    with start(tmp_path, host) as exporter, watched(exporter):
        (host / "proc/20101").rename(tmp_path / "ended")
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_unattributed_processes", "0") == 1,
            "its owner is unknown",
        )
        (host / "sys/class/kfd/kfd/proc/20101").rename(tmp_path / "ended-kfd")
        exporter.wait_until(
            lambda: exporter.value("gputally_gpu_processes", "0") == 0, "it is gone from the list"
        )
