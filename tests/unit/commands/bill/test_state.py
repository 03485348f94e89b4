"""A bill without a store, from the state file of a host's exporter."""

import io
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gputally.commands.bill import run
from gputally.ledger.state_file import Saved, StateFile
from tests.support.ledger_samples import new_ledger, pod, reading, resident, settle


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    """Of one GPU: two pods of a namespace share it for five seconds, then it is idle."""
    ledger = new_ledger(boot_id="here")
    pods = [resident(pid, pod(f"train-{pid}"), busy=1) for pid in (1, 2)]
    settle(ledger, 0, reading(0), pods)
    settle(ledger, 5, reading(1000), pods)
    settle(ledger, 10, reading(1250), [])
    settle(ledger, 15, reading(1500), [])
    file = StateFile(tmp_path / "ledger.json")
    file.save(Saved(ledger.state(), time.time(), 0))
    file.close()
    return tmp_path / "ledger.json"


def billed(state_file: Path, *flags: str) -> dict[str, Any]:
    out = io.StringIO()
    assert run(["--state-file", str(state_file), "--format", "json", *flags], out) == 0
    bill: dict[str, Any] = json.loads(out.getvalue())
    return bill


def test_the_rows_are_the_meter(state_file: Path) -> None:
    bill = billed(state_file)
    assert (bill["meter_joules"], bill["difference_joules"]) == (1500, 0)
    assert bill["total"]["energy_joules"] == 1500
    assert {row["kind"] for row in bill["rows"]} == {"owner", "unattributed", "unallocated"}


@pytest.mark.parametrize(("by", "keys"), [("namespace", 1), ("pod", 2), ("node", 1)])
def test_rows_are_what_the_ledger_knows(state_file: Path, by: str, keys: int) -> None:
    owners = [row["key"] for row in billed(state_file, "--by", by)["rows"] if row["kind"] == "owner"]
    assert len(owners) == keys
    assert by != "node" or owners == [socket.gethostname()]


def test_prices_are_flags(state_file: Path) -> None:
    bill = billed(state_file, "--kwh-price", "3600000", "--currency", "EUR")
    assert bill["total"]["cost"] == bill["total"]["energy_cost"] == 1500


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--by", "model"], "--by: 'model' is not allowed with --state-file; it takes namespace"),
        (["--month", "2026-10"], "--state-file cannot be used with a period"),
        (["--prometheus", "http://a"], "set either --prometheus URL or --state-file FILE"),
        (["--gpu-hour-price", "-1"], "--gpu-hour-price: '-1' is not allowed; it takes a price"),
    ],
)
def test_what_the_file_does_not_have_is_refused(
    flags: list[str], said: str, state_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--state-file", str(state_file), *flags], io.StringIO()) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_ledger_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ledger.json"
    file.write_text("{}")
    assert run(["--state-file", str(file)], io.StringIO()) == 1
    assert capsys.readouterr().err == f"gputally bill: --state-file {file} was not written by GPUTally\n"
