"""The whole scrape of the real exporter, on the driver stand-in, compared with a file.

`tools/test golden --update-golden` rewrites the files; read the diff before you commit it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.model import Reading
from tests.golden.meters import play_running
from tests.golden.scrapes import check_scrape, wait_for_meters
from tests.support.exporter import Exporter
from tests.support.worlds import mig_world, world
from tools.standin.scenario import Fault, FaultKind, environment

WORLDS: dict[str, Callable[[], tuple[Reading, ...]]] = {
    "eight-healthy": lambda: world("h100", 8, faults=()),
    "unsupported-fields": lambda: world("gtx1080ti", 1),
    "mig-a100": lambda: mig_world("a100", "3g.20gb", "2g.10gb", "1g.5gb"),
    "mig-h100": lambda: mig_world("h100", "3g.40gb", "1g.10gb"),
    "sixteen": lambda: world("b200", 16),
    "no-gpu": lambda: (),
}


def start(directory: Path, scenario: Path) -> Exporter:
    """With `--metrics full`: these files show every value that the reader fills."""
    (directory / "proc").mkdir()  # the scenario's pids are not those of this machine
    arguments = (
        *("serve", "--reader", "nvml", "--interval", "200ms", "--hostname-override", "golden"),
        *("--metrics", "full", "--procfs", str(directory / "proc")),
    )
    return Exporter(directory / "log", *arguments, environment=environment(scenario))


@pytest.mark.parametrize("name", WORLDS)
def test_an_unchanged_host(name: str, tmp_path: Path, update_golden: bool) -> None:
    with start(tmp_path, play_running(tmp_path / "world", WORLDS[name]())) as exporter:
        wait_for_meters(exporter)
        check_scrape(exporter, name, update_golden)


def test_one_gpu_of_eight_is_lost(tmp_path: Path, update_golden: bool) -> None:
    healthy = world("h100", 8, faults=())
    scenario = play_running(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "3") == 1, "all are up")
        wait_for_meters(exporter)
        play_running(scenario, healthy, faults=(Fault(FaultKind.LOST, gpu=3),))
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "3") == 0, "GPU 3 is lost")
        check_scrape(exporter, "one-lost", update_golden)


def test_the_driver_is_unloaded_and_loaded_again(tmp_path: Path, update_golden: bool) -> None:
    healthy = world("l40s", 2, faults=())
    scenario = play_running(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "0") == 1, "the GPUs are up")
        wait_for_meters(exporter)
        play_running(scenario, healthy, faults=(Fault(FaultKind.DRIVER_GONE),))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 0, "the driver is gone")
        check_scrape(exporter, "driver-gone", update_golden)
        play_running(scenario, healthy)
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 1, "the driver is back")
        check_scrape(exporter, "driver-back", update_golden)
