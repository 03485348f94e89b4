"""The running exporter on a driver that misbehaves: it goes on answering and says what is wrong."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gputally.model import Reading
from tests.support.exporter import Exporter
from tests.support.worlds import mig_world, play, world
from tests.system.conftest import Watch
from tools.standin.build import build_library
from tools.standin.scenario import Fault, FaultKind, environment, held_file

IMPATIENT = ("--timeout", "500ms")


@pytest.fixture(scope="module")
def healthy() -> tuple[Reading, ...]:
    return world("h100", 4, faults=())


def start(directory: Path, scenario: Path, *arguments: str, **env: str) -> Exporter:
    command = ("serve", "--reader", "nvml", "--interval", "200ms", *arguments)
    exporter = Exporter(directory / "log", *command, environment={**environment(scenario), **env})
    exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") is not None, "the first sample")
    return exporter


def up(exporter: Exporter) -> dict[str, float]:
    return {labels[0]: value for labels, value in exporter.samples()["gputally_gpu_up"].items()}


ALL_UP = {"0": 1.0, "1": 1.0, "2": 1.0, "3": 1.0}


def of_gpus(exporter: Exporter, name: str) -> dict[int, float]:
    """The values of a metric by GPU."""
    return {int(labels[0]): value for labels, value in exporter.samples().get(name, {}).items()}


def test_one_gpu_hangs_and_the_others_stay_fresh(tmp_path: Path, watched: Watch) -> None:
    def drawing(watts: float) -> tuple[Reading, ...]:
        return tuple(replace(reading, power_watts=watts) for reading in eight)

    def draw(watts: dict[int, float]) -> bool:
        return of_gpus(exporter, "gputally_gpu_power_watts") == watts

    eight = world("h100", 8, faults=())
    hang = Fault(FaultKind.HANG, "nvmlDeviceGetTemperature", gpu=5)
    scenario = play(tmp_path / "world", drawing(100))
    with start(tmp_path, scenario, *IMPATIENT, "--max-age", "3s") as exporter, watched(exporter):
        exporter.wait_until(lambda: draw(dict.fromkeys(range(8), 100.0)), "all are read")
        play(scenario, drawing(200), faults=(hang,))
        exporter.wait_until(
            lambda: exporter.value("gputally_source_field_errors", "nvml", "gpus", "timeout"), "it is late"
        )
        exporter.wait_until(
            lambda: of_gpus(exporter, "gputally_gpu_up") == {**dict.fromkeys(range(8), 1), 5: 0},
            "its last reading is too old to be served",
        )
        for watts in (300, 400):
            play(scenario, drawing(watts), faults=(hang,))
            others = {gpu: float(watts) for gpu in range(8) if gpu != 5}
            exporter.wait_until(partial(draw, others), "the others are fresh")
        assert exporter.value("gputally_source_up", "nvml") == 1
        assert exporter.get("/readyz")[0] == 200
        play(scenario, drawing(500))
        exporter.wait_until(lambda: draw(dict.fromkeys(range(8), 500.0)), "it is back")
        assert set(of_gpus(exporter, "gputally_gpu_up").values()) == {1}


def test_a_call_that_never_returns(tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch) -> None:
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario, *IMPATIENT, "--max-age", "6s") as exporter, watched(exporter):
        before = exporter.samples()["gputally_gpu_power_watts"]
        play(scenario, healthy, faults=(Fault(FaultKind.HANG, "nvmlDeviceGetTemperature"),))
        down = exporter.samples_when(
            lambda now: now["gputally_source_up"]["nvml",] == 0, "the source is down"
        )
        assert down["gputally_source_overruns_total"]["nvml",] >= 1
        assert down["gputally_gpu_power_watts"] == before, "the last readings are still served"
        assert down["gputally_snapshot_age_seconds"][()] > 0, "and one sees that they are old"
        exporter.wait_until(
            lambda: set(up(exporter).values()) == {0}, "the readings are too old to be served"
        )
        exporter.wait_until(lambda: exporter.get("/readyz")[0] == 503, "not ready any more")
        assert b"no answer within 0.5 s" in exporter.get("/readyz")[1]
        assert exporter.get("/healthz")[0] == 200
        play(scenario, healthy)
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 1, "the source is back")
        exporter.wait_until(lambda: up(exporter) == ALL_UP, "each GPU is back")
        assert exporter.get("/readyz")[0] == 200


def test_the_exporter_stops_in_time_while_the_driver_hangs(
    tmp_path: Path, healthy: tuple[Reading, ...]
) -> None:
    hang = Fault(FaultKind.HANG, "nvmlDeviceGetUtilizationRates")
    with start(tmp_path, play(tmp_path / "world", healthy, faults=(hang,)), *IMPATIENT) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_source_overruns_total", "nvml"), "it hangs")
        exporter.stop()
        assert exporter.process.returncode == 0


def test_a_gpu_is_lost_between_two_samples_and_returns(
    tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch
) -> None:
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter, watched(exporter):
        play(scenario, healthy, faults=(Fault(FaultKind.LOST, gpu=2),))
        exporter.wait_until(lambda: up(exporter) == {**ALL_UP, "2": 0.0}, "GPU 2 is down, the others up")
        assert exporter.value("gputally_source_up", "nvml") == 1
        assert exporter.value("gputally_gpu_power_watts", "2") is None
        assert exporter.value("gputally_gpu_power_watts", "3") is not None
        play(scenario, healthy)
        exporter.wait_until(lambda: up(exporter) == ALL_UP, "GPU 2 is back")


def test_a_gpu_falls_off_the_bus_and_the_count_changes(
    tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch
) -> None:
    scenario = play(tmp_path / "world", healthy[:2])
    with start(tmp_path, scenario) as exporter, watched(exporter):
        assert up(exporter) == {"0": 1.0, "1": 1.0}
        play(scenario, healthy)
        exporter.wait_until(lambda: up(exporter) == ALL_UP, "two more GPUs are seen")
        play(scenario, healthy, faults=(Fault(FaultKind.ABSENT, gpu=3),))
        exporter.wait_until(lambda: up(exporter) == {**ALL_UP, "3": 0.0}, "the missing GPU is down")


def test_a_driver_reload(tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch) -> None:
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter, watched(exporter):
        play(scenario, healthy, faults=(Fault(FaultKind.DRIVER_GONE),))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 0, "the driver is gone")
        assert set(up(exporter).values()) == {0}
        assert b"nvml: " in exporter.get("/readyz")[1]
        play(scenario, healthy)
        exporter.wait_until(lambda: up(exporter) == ALL_UP, "the driver is back")


def test_gpus_that_appear_later_are_read(tmp_path: Path, healthy: tuple[Reading, ...]) -> None:
    scenario = play(tmp_path / "world", healthy, faults=(Fault(FaultKind.DRIVER_GONE),))
    with start(tmp_path, scenario) as exporter:
        assert exporter.value("gputally_source_up", "nvml") == 0
        play(scenario, healthy)
        exporter.wait_until(
            lambda: exporter.samples().get("gputally_gpu_up") and up(exporter) == ALL_UP, "all up"
        )


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetComputeRunningProcesses"],
)
def test_implausible_process_counts(
    tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch, function: str
) -> None:
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario, "--process-metrics") as exporter, watched(exporter):
        play(scenario, healthy, faults=(Fault(FaultKind.GARBAGE, function, gpu=0),))
        exporter.wait_until(
            lambda: any(
                "process" in labels[1]
                for labels in exporter.samples().get("gputally_source_field_errors", {})
            ),
            "the garbage is counted",
        )
        assert up(exporter) == ALL_UP
        for name in ("gputally_process_sm_utilization_ratio", "gputally_process_memory_used_bytes"):
            for labels, value in exporter.samples().get(name, {}).items():
                assert 0 < int(labels[2]) < 2**22 + 1
                assert 0 <= value < 2**47


def test_an_implausible_value_is_dropped_and_counted(
    tmp_path: Path, healthy: tuple[Reading, ...], watched: Watch
) -> None:
    fault = Fault(FaultKind.GARBAGE, "nvmlDeviceGetUtilizationRates", gpu=0)
    with start(tmp_path, play(tmp_path / "world", healthy, faults=(fault,))) as exporter, watched(exporter):
        assert exporter.value("gputally_gpu_utilization_ratio", "0") is None
        assert exporter.value("gputally_gpu_utilization_ratio", "1") is not None
        assert exporter.value("gputally_source_field_errors", "nvml", "gpu_utilization_ratio", "implausible")


def test_one_failing_function_affects_only_its_value(tmp_path: Path, healthy: tuple[Reading, ...]) -> None:
    unknown_error = Fault(FaultKind.ERROR, "nvmlDeviceGetMarginTemperature", value=999)
    with start(tmp_path, play(tmp_path / "world", healthy, faults=(unknown_error,))) as exporter:
        assert exporter.value("gputally_gpu_temperature_margin_celsius", "0") is None
        assert exporter.value("gputally_gpu_temperature_celsius", "0") is not None
        assert exporter.value("gputally_source_field_errors", "nvml", "temperature_margin_celsius")


def test_a_driver_without_newer_functions(tmp_path: Path, healthy: tuple[Reading, ...]) -> None:
    scenario = play(tmp_path / "world", healthy)
    library = build_library(without=("nvmlDeviceGetJpgUtilization", "nvmlDeviceGetMarginTemperature"))
    # `full`, because no value of the other sets has a function that old drivers lack and no substitute.
    with start(tmp_path, scenario, "--metrics", "full", LD_LIBRARY_PATH=str(library)) as exporter:
        assert up(exporter) == ALL_UP
        assert exporter.value("gputally_gpu_jpeg_utilization_ratio", "0") is None
        assert exporter.value("gputally_gpu_ofa_utilization_ratio", "0") is not None


def test_mig_is_reconfigured_while_the_exporter_runs(tmp_path: Path, watched: Watch) -> None:
    def profiles() -> set[str]:
        return {labels[5] for labels in exporter.samples().get("gputally_mig_info", {})}

    scenario = play(tmp_path / "world", mig_world("h100", "3g.40gb", "1g.10gb"))
    with start(tmp_path, scenario) as exporter, watched(exporter):
        assert profiles() == {"3g.40gb", "1g.10gb"}
        play(scenario, mig_world("h100", "7g.80gb"))
        exporter.wait_until(lambda: profiles() == {"7g.80gb"}, "the new device is seen")
        play(scenario, world("h100", 2))
        exporter.wait_until(lambda: profiles() == set(), "MIG is off")
        assert exporter.value("gputally_gpu_mig_mode", "0") == 0


def test_the_driver_is_released_between_samples_on_request(
    tmp_path: Path, healthy: tuple[Reading, ...]
) -> None:
    scenario = play(tmp_path / "world", healthy)

    def holds(exporter: Exporter) -> bool:
        directory = Path(f"/proc/{exporter.process.pid}/fd")
        links = (link.readlink() for link in directory.iterdir() if link.is_symlink())
        return held_file(scenario) in links

    with start(tmp_path, scenario, "--interval", "1s") as exporter:
        assert holds(exporter), "normally the driver is held"
    with start(tmp_path, scenario, "--interval", "1s", "--release-driver") as exporter:
        for _ in range(2):
            exporter.wait_until(lambda: not holds(exporter), "the driver is released")
            exporter.next_snapshots(1)
            assert up(exporter) == ALL_UP


def test_an_xid_error_is_counted_with_its_time(tmp_path: Path) -> None:
    before = world("h100", 2, faults=())
    after = tuple(
        Reading(**{**{f: getattr(r, f) for f in r.__dataclass_fields__}, "xid_errors": {("79",): 2.0}})
        for r in before
    )
    scenario = play(tmp_path / "world", before)
    with start(tmp_path, scenario) as exporter:
        assert exporter.value("gputally_gpu_xid_errors_total", "0") == 0
        assert "gputally_gpu_xid_code_errors" not in exporter.samples()
        play(scenario, after)
        samples = exporter.samples_when(
            lambda now: list(now.get("gputally_gpu_xid_code_errors", {}).values()) == [2, 2],
            "XID 79 is counted twice on both GPUs",
        )
        codes = samples["gputally_gpu_xid_code_errors"]
        assert {labels[2] for labels in codes} == {"79"}
        assert samples["gputally_gpu_xid_errors_total"].keys() == {labels[:2] for labels in codes}
        for stamp in samples["gputally_gpu_xid_last_timestamp_seconds"].values():
            assert abs(stamp - time.time()) < 60
