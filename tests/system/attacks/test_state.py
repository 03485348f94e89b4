"""Attacks on what the exporter keeps, writes and reads: nothing is charged twice or served as fresh."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import Saved, decode, encode
from gputally.sampling.checkpoint import STOPPED_US
from tests.support.disks import small_disk
from tests.support.exporter import Exporter
from tests.support.ledger_series import (
    COUNTERS,
    POD,
    UNATTRIBUTED,
    Scrape,
    Simulation,
    audited,
    charged,
    decreases,
    millijoules,
    wait_for_ledger,
)
from tests.support.nvidia_smi import FakeTool
from tests.support.nvidia_smi import start as start_on_tool
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def up(exporter: Exporter, source: str) -> float | None:
    return exporter.value("gputally_source_up", source)


def last_ledger(exporter: Exporter) -> Scrape:
    return wait_for_ledger(exporter, charged, "the ledger is open")


# A state that is behind what was scraped


def test_a_directory_that_becomes_unwritable_and_writable_again_charges_nothing_twice(
    simulation: Simulation, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        state = ("--state-file", str(disk.directory / "ledger.json"))
        with simulation.start(*state) as first, audited(first) as before:
            last_ledger(first)
            disk.make_read_only()
            first.wait_until(lambda: up(first, "ledger") == 0, "charges are withheld")
            first.next_snapshots(10)
            assert up(first, "state_file") == 0
            assert "charges are withheld" in first.get("/readyz")[1].decode()
        disk.make_writable()
        with simulation.start(*state) as second, audited(second) as after:
            last_ledger(second)
            second.next_snapshots(3)
    found = decreases([*before.scrapes, *after.scrapes])
    charges = [one for one in found if re.fullmatch(COUNTERS, one[0][0])]
    assert charges == [], "a decrease is counted as a reset"


@pytest.mark.parametrize("age_seconds", [90, 100_000])
def test_the_state_of_an_exporter_that_ran_on_without_saving_is_not_resumed(
    simulation: Simulation, tmp_path: Path, age_seconds: int
) -> None:
    path = tmp_path / "ledger.json"
    state = ("--state-file", str(path))
    with simulation.start(*state) as first:
        last_ledger(first)
        first.stop()
    saved = decode(path.read_bytes())
    valid_us = 60_000_000 if age_seconds < 1000 else STOPPED_US
    path.write_bytes(encode(saved._replace(until_us=since_boot_us() - age_seconds * 1_000_000 + valid_us)))
    with simulation.start(*state) as second, audited(second):
        after = last_ledger(second)
        assert second.value("gputally_source_field_errors", "state_file", "state_file", "stale") == 1
    initial = sum(gpu["unattributed"]["initial"] for gpu in saved.state["gpus"].values())
    assert millijoules(after, UNATTRIBUTED, reason="initial") > initial, "a new ledger"
    said = second.log.read_text()
    assert f"--state-file {path} has expired" in said
    assert f"it was renamed to {path}.rejected" in said


def test_a_backup_that_is_restored_is_not_resumed(simulation: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    state = ("--state-file", str(path))
    with simulation.start(*state) as first:
        last_ledger(first)
        first.stop()
    saved = decode(path.read_bytes())
    path.write_bytes(encode(saved._replace(saved_at_seconds=time.time() - 3600)))
    with simulation.start(*state) as second, audited(second):
        last_ledger(second)
        assert second.value("gputally_source_field_errors", "state_file", "state_file", "copied") == 1


def test_a_second_exporter_with_the_same_file_charges_none(simulation: Simulation, tmp_path: Path) -> None:
    state = ("--state-file", str(tmp_path / "ledger.json"))
    with simulation.start(*state) as first:
        last_ledger(first)
        simulate = ("simulate", "--scenario", str(simulation.scenario), "--interval", "100ms")
        with Exporter(tmp_path / "second", *simulate, *state) as second:
            second.next_snapshots(10)
            scrape = second.samples()
            assert POD not in scrape
            assert {labels[2] for labels in scrape[UNATTRIBUTED]} == {"initial"}
            assert up(second, "ledger") == 0
            assert second.value("gputally_gpu_up", "0") == 1


# Hostile contents


def with_checksum(content: bytes) -> bytes:
    return b'{"format":"gputally ledger","version":2,"crc32":"%08x","content":%b}\n' % (
        crc32(content),
        content,
    )


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Saved], bytes]:
    def write(saved: Saved) -> bytes:
        content = json.loads(json.dumps(saved._asdict()))
        change(content["state"])
        return with_checksum(json.dumps(content).encode())

    return write


def negative(state: dict[str, Any]) -> None:
    for gpu in state["gpus"].values():
        gpu["owners"][0]["millijoules"][0] -= 10**9
        gpu["unattributed"]["idle"] += 10**9


HOSTILE: dict[str, Callable[[Saved], bytes]] = {
    "no gpus": changed(lambda state: state.pop("gpus")),
    "odd types": changed(lambda state: state["gpus"].update({uuid: [] for uuid in state["gpus"]})),
    "negative totals": changed(negative),
    "deep": lambda _: with_checksum(b'{"state":' + b"[" * 90_000 + b"]" * 90_000 + b"}"),
    "wide": lambda _: with_checksum(b'{"state":[' + b"{}," * 5_000_000 + b"{}]}"),
    "huge": lambda _: with_checksum(b'{"state":"' + b"x" * (16 << 20) + b'"}'),
}


@pytest.mark.parametrize("attack", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_state_with_a_valid_checksum_and_hostile_content_is_put_aside(
    attack: Callable[[Saved], bytes], simulation: Simulation, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.json"
    state = ("--state-file", str(path))
    with simulation.start(*state) as first:
        last_ledger(first)
        first.stop()
    hostile = attack(decode(path.read_bytes()))
    path.write_bytes(hostile)
    with simulation.start(*state) as second, audited(second):
        last_ledger(second)
        assert path.with_name("ledger.json.rejected").read_bytes() == hostile
        assert up(second, "state_file") == 1
        peak = Path(f"/proc/{second.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        assert int(peak) < 150 * 1024, "KiB"
    assert "a new ledger is started" in second.log.read_text()


# Planted links


def test_a_planted_link_at_the_metrics_file_is_not_followed(simulation: Simulation, tmp_path: Path) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "textfiles"
    victim.write_text("precious")
    victim.chmod(0o600)
    directory.mkdir()
    target = directory / "gpu.prom"
    target.symlink_to(victim)
    with simulation.start("--metrics-file", str(target)) as exporter:
        for name in (f".gpu.prom.{exporter.process.pid}.tmp", ".gpu.prom.tmp", "gpu.prom.tmp"):
            (directory / name).symlink_to(victim)
        exporter.wait_until(lambda: target.is_file() and not target.is_symlink(), "the file is written")
        exporter.next_snapshots(3)
        assert "gputally_gpu_up" in target.read_text()
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o600)


# What blocks


def test_a_proc_that_blocks_is_reported_and_everything_else_is_served(tmp_path: Path) -> None:
    proc = FakeProcfs(tmp_path / "proc")
    proc.start(1, "0::/init.scope")
    proc.start(15128, pod_cgroup(uid(1), container_id(1)))
    stat = proc.root / "15128/stat"
    tool = FakeTool(tmp_path)
    with start_on_tool(tmp_path, tool, "--procfs", str(proc.root), "--timeout", "2s") as exporter:
        exporter.wait_until(lambda: up(exporter, "cgroup") == 1, "processes are attributed")
        stat.unlink()
        os.mkfifo(stat)  # a read of it blocks
        exporter.wait_until(lambda: up(exporter, "cgroup") == 0, "it is reported")
        exporter.next_snapshots(2)
        assert exporter.value("gputally_gpu_up", "0") == 1
        assert exporter.value("gputally_gpu_power_watts", "0") == 612.34
        status, ready = exporter.get("/readyz")
        assert (status, "cgroup: no answer within 2 s" in ready.decode()) == (200, True)
        assert exporter.get("/healthz")[0] == 200
        assert "source cgroup is down: no answer within 2 s" in exporter.log.read_text()
        writer = os.open(stat, os.O_RDWR)
        stat.unlink()
        proc.start(15128, pod_cgroup(uid(1), container_id(1)))
        os.close(writer)
        exporter.wait_until(lambda: up(exporter, "cgroup") == 1, "it is up again")


def test_an_exporter_that_was_stopped_for_longer_than_the_maximum_age_serves_nothing_old(
    simulation: Simulation,
) -> None:
    with simulation.start("--max-age", "1s", "--interval", "300ms") as exporter, audited(exporter):
        last_ledger(exporter)
        exporter.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        exporter.wait_until(lambda: time.monotonic() - began > 2, "it is stopped for longer")
        exporter.process.send_signal(signal.SIGCONT)
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "0") == 1, "it continues")
        exporter.next_snapshots(2)
        last_ledger(exporter)
