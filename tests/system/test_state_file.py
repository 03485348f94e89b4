"""What can happen to the state file: the exporter goes on answering, and says what to do."""

import shutil
from pathlib import Path

import pytest

from gputally.ledger.state_file import decode, encode
from tests.support.disks import Disk, small_disk
from tests.support.exporter import Exporter
from tests.support.ledger_series import (
    GPU,
    HOST,
    POD,
    UNATTRIBUTED,
    Scrape,
    Simulation,
    audited,
    charged,
    millijoules,
    wait_for_ledger,
)
from tests.support.texts import missing
from tools.servers.ports import free_port

STEADY = {"namespace": "nlp", "pod": "steady"}


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def wait_for_file(exporter: Exporter, *, up: bool) -> None:
    exporter.wait_until(
        lambda: exporter.value("gputally_source_up", "state_file") == up,
        f"the state file is {'kept' if up else 'not kept'}",
    )


def kept_in(path: Path) -> dict[str, int]:
    """GPU -> the energy that the file has."""
    gpus = decode(path.read_bytes()).state["gpus"].values()
    return {str(gpu["index"]): gpu["meter"]["total"] for gpu in gpus}


def run_once(simulation: Simulation, path: Path) -> Scrape:
    """An exporter that ran before, and was told to stop; the last that was seen of it."""
    with simulation.start("--state-file", str(path)) as exporter:
        ledger = wait_for_ledger(exporter, charged, "there is something to keep")
        exporter.stop()
    return ledger


def began_with(scrape: Scrape) -> int:
    return millijoules(scrape, UNATTRIBUTED, reason="initial")


def fill(disk: Disk, exporter: Exporter) -> None:
    """Until nothing at all can be written: the file that is given up leaves room for another one."""

    def full() -> bool:
        disk.fill()
        exporter.next_snapshots()
        written = {path.name for path in disk.directory.iterdir()} - {"filler", "ledger.json.lock"}
        return not written and shutil.disk_usage(disk.directory).free == 0

    exporter.wait_until(full, "the disk is full")
    wait_for_file(exporter, up=False)


def test_a_full_disk(simulation: Simulation, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        path = disk.directory / "ledger.json"
        state = ("--state-file", str(path))
        with simulation.start(*state) as exporter:
            wait_for_ledger(exporter, charged, "the ledger is open")
            wait_for_file(exporter, up=True)
            with audited(exporter):
                fill(disk, exporter)
                said = exporter.log.read_text()
                assert missing(said, f"--state-file {path}: No space left", f"df -h {disk.directory}") == []
                disk.make_room()
                wait_for_file(exporter, up=True)
                assert kept_in(path).keys() == {"0", "1"}
                fill(disk, exporter)
        with simulation.start(*state) as exporter, audited(exporter):
            wait_for_ledger(exporter, charged, "the next one begins anew")
            assert exporter.value("gputally_source_up", "state_file") == 0
            disk.make_room()
            wait_for_file(exporter, up=True)


def test_a_directory_is_removed_and_created_again(simulation: Simulation, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    path = folder / "ledger.json"
    with simulation.start("--state-file", str(path)) as exporter:
        wait_for_ledger(exporter, charged, "the ledger is open")
        with audited(exporter):
            # Renamed first: what is written meanwhile would keep it from being removed.
            folder.rename(tmp_path / "taken")
            shutil.rmtree(tmp_path / "taken")
            wait_for_file(exporter, up=False)
            said = exporter.log.read_text()
            assert missing(said, f"--state-file {path}: No such file", f"mkdir -p {folder}") == []
            folder.mkdir()
            wait_for_file(exporter, up=True)
        last = wait_for_ledger(exporter, charged, "the last scrape")
        exporter.stop()
    assert kept_in(path)["0"] >= millijoules(last, GPU, gpu="0")


def test_a_truncated_file(simulation: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    before = run_once(simulation, path)
    torn = path.read_bytes()[:-20]
    path.write_bytes(torn)
    with simulation.start("--state-file", str(path)) as exporter, audited(exporter):
        after = wait_for_ledger(exporter, charged, "a new ledger is started")
        assert began_with(after) > began_with(before)
        assert exporter.value("gputally_source_field_errors", "state_file", "state_file", "torn") == 1
        wait_for_file(exporter, up=True)
    said = exporter.log.read_text()
    assert missing(said, f"--state-file {path} ", "checksum", f"{path}.rejected", "new ledger") == []
    assert path.with_name("ledger.json.rejected").read_bytes() == torn
    assert kept_in(path).keys() == {"0", "1"}


def test_a_file_written_before_the_last_boot(simulation: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    before = run_once(simulation, path)
    saved = decode(path.read_bytes())
    path.write_bytes(encode(saved._replace(state={**saved.state, "boot_id": "another boot"})))
    with simulation.start("--state-file", str(path)) as exporter, audited(exporter):
        after = wait_for_ledger(exporter, charged, "a new ledger is started")
        assert began_with(after) > began_with(before)
        assert exporter.value("gputally_source_up", "state_file") == 1
    assert f"--state-file {path} is of another boot" in exporter.log.read_text()


def test_a_file_in_use_by_another_exporter(simulation: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    with simulation.start("--state-file", str(path)) as first:
        wait_for_ledger(first, charged, "the ledger is open")
        elsewhere = ("--port", str(free_port()))
        with simulation.start("--state-file", str(path), *elsewhere) as second:
            with audited(first):
                wait_for_file(second, up=False)
                second.next_snapshots()
                assert POD not in second.samples(), "the energy of the pods would be charged twice"
                assert second.value("gputally_source_up", "state_file") == 0
                assert f"--state-file {path} is in use" in second.log.read_text()
                assert first.value("gputally_source_up", "state_file") == 1
                last = wait_for_ledger(first, charged, "the last scrape of the first")
            first.stop()
            wait_for_file(second, up=True)
            own = began_with(wait_for_ledger(second, charged, "the ledger of the second"))
    assert own > began_with(last), "it did not take over the ledger of the first"
    assert (
        sum(gpu["unattributed"]["initial"] for gpu in decode(path.read_bytes()).state["gpus"].values()) == own
    )


def test_after_a_stop_the_ledger_continues(simulation: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    before = run_once(simulation, path)
    with simulation.start("--state-file", str(path)) as exporter, audited(exporter):
        after = wait_for_ledger(exporter, charged, "the ledger is open again")
    assert began_with(after) == began_with(before)
    assert millijoules(after, UNATTRIBUTED, reason="unobserved") > 0
    assert millijoules(after, POD, **STEADY) >= millijoules(before, POD, **STEADY) > 0
    assert millijoules(after, HOST) >= millijoules(before, HOST)
