"""`gputally top` as a program in a terminal: keys, failures, and its end."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.documents import responses, with_lost_gpu
from tests.support.exporter import Exporter
from tests.support.fake_servers import Site, refusing_address, site
from tests.support.terminal import Terminal, in_terminal
from tests.support.texts import missing

DOWN, TAB, ENTER, ESCAPE = "\x1b[B", "\t", "\r", "\x1b"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputally", "top", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env={"PATH": "", **environment}
    )


@contextmanager
def watching(exporter: Site, *arguments: str) -> Iterator[Terminal]:
    with in_terminal(["top", "--connect", exporter.url, *arguments], 80, 24) as terminal:
        yield terminal


def selected(terminal: Terminal) -> str:
    return next(line for line in terminal.lines if line.startswith(">"))


def test_simulated_gpus_change_without_a_key(tmp_path: Path) -> None:
    arguments = ["top", "--simulate", "--interval", "200ms"]
    with in_terminal(arguments, 80, 24) as terminal:
        first = terminal.wait_for("SIMULATED", "nlp/pretrain-0")
        terminal.wait_until(lambda text: text != first, "the values change")
        terminal.press("q")
        assert terminal.end() == 0


def test_only_changed_lines_are_written(tmp_path: Path) -> None:
    with site(responses(8)) as exporter, watching(exporter, "--interval", "200ms") as terminal:
        terminal.wait_for(" 8 GPU", " of ")
        terminal.settle()
        before, asked = len(terminal.written), len(exporter.asked)
        terminal.wait_until(lambda _: len(exporter.asked) > asked + 5, "five more readings")
        assert terminal.written[before:] == b""


@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before(end: str | signal.Signals) -> None:
    with site(responses(1)) as exporter, watching(exporter) as terminal:
        before = terminal.attributes
        terminal.wait_for("1 GPU")
        assert terminal.attributes != before
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.end() == 0
        assert terminal.attributes == before
        written = bytes(terminal.written)
        assert written.rindex(NORMAL) > written.rindex(ALTERNATE)
        assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
        assert b"Traceback" not in written


def test_rows_are_selected_sorted_and_filtered_by_keys() -> None:
    with site(responses(8)) as exporter, watching(exporter) as terminal:
        terminal.wait_for(" 8 GPU", "GPUv", " of ")
        assert " 0 H100" in selected(terminal)
        terminal.press(DOWN)
        terminal.wait_until(lambda _: "nlp/pretrain" in selected(terminal), "the next row is selected")
        terminal.press("ss")
        terminal.wait_for("UTILv")
        terminal.press("r")
        terminal.wait_for("UTIL^")
        terminal.press("nrisk")
        terminal.wait_for("namespace: risk")
        terminal.press(ENTER)
        text = terminal.wait_for("namespace risk", "risk/backtest-5")
        assert "nlp/" not in text
        terminal.press(ESCAPE)
        terminal.wait_for("nlp/pretrain")
        terminal.press("o")
        terminal.wait_until(lambda text: "nlp/pretrain" not in text, "only the GPUs")


def test_a_click_sorts_and_selects() -> None:
    with site(responses(8)) as exporter, watching(exporter) as terminal:
        text = terminal.wait_for(" 8 GPU", "GPUv", " of ")
        heading = next(at for at, line in enumerate(text.split("\n")) if "GPUv" in line)
        column = text.split("\n")[heading].index("TEMP") + 1

        def click(x: int, y: int) -> None:
            terminal.press(f"\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m")

        click(column, heading + 1)
        terminal.wait_for("TEMPv")
        click(5, heading + 5)
        terminal.wait_until(lambda _: terminal.lines[heading + 4].startswith(">"), "the row is selected")


def test_the_screen_follows_the_size_of_the_terminal() -> None:
    with site(responses(8)) as exporter, watching(exporter) as terminal:
        terminal.wait_for(" 8 GPU", " of ")
        terminal.resize(50, 8)
        terminal.wait_for("needs a terminal of", "50x8")
        terminal.resize(120, 30)
        terminal.wait_for(" 8 GPU", "ENERGY")


def test_an_exporter_that_does_not_respond_is_named_with_the_fix() -> None:
    with refusing_address() as address, in_terminal(["top", "--connect", address], 80, 24) as terminal:
        text = terminal.wait_for("!!", "Fix:")
        assert missing(text, address, "connection refused", f"curl http://{address}/readyz") == []
        terminal.press("q")
        assert terminal.end() == 0


def test_one_exporter_of_two_that_fails_hides_no_gpu() -> None:
    with (
        refusing_address() as address,
        site(responses(8)) as exporter,
        watching(exporter, address) as terminal,
    ):
        terminal.wait_for("8 GPUs", "!!", address, "nlp/pretrain")


def test_the_last_values_stay_while_the_exporter_is_away() -> None:
    with site(responses(8)) as exporter, watching(exporter, "--interval", "200ms") as terminal:
        terminal.wait_for("8 GPUs", "nlp/pretrain")
        del exporter.pages["/api/v1/snapshot"]
        terminal.wait_for("no new values", "HTTP 404", "nlp/pretrain")


def test_without_a_gpu_the_reason_is_on_the_screen() -> None:
    with in_terminal(["top"], 80, 24, {"LD_LIBRARY_PATH": "", "PATH": "/nonexistent"}) as terminal:
        terminal.wait_for("No GPU is found", "nvml", "gputally check")


def test_text_and_json_for_scripts() -> None:
    with site(with_lost_gpu()) as exporter:
        text = run("--connect", exporter.url, "--once")
        assert (text.returncode, text.stderr) == (0, "")
        assert missing(text.stdout, "1 of 2 GPUs up", "!! lost") == []
        found = json.loads(run("--connect", exporter.url, "--json", "--no-pods").stdout)
    gpus = [row for row in found["rows"] if row["kind"] == "gpu"]
    assert [row["severity"] for row in gpus] == ["ok", "critical"]
    assert gpus[1]["power_watts"] is None
    assert gpus[1]["reason"]


def test_a_real_exporter_is_shown(tmp_path: Path) -> None:
    flags = ["simulate", "--gpus=3", "--interval=1s"]
    with Exporter(tmp_path / "log", *flags) as exporter:
        exporter.next_snapshots()
        found = json.loads(run("--connect", exporter.address, "--json").stdout)
        owners = {row["name"] for row in found["rows"] if row["kind"] == "owner"}
        series = exporter.samples()["gputally_pod_active"]
    assert found["totals"]["gpus"] == 3
    assert found["simulated"] is True
    pods = {"/".join(labels[2:4]) for labels, active in series.items() if active}
    assert pods <= owners


def test_a_login_is_read_from_files(tmp_path: Path) -> None:
    for name, text in (("username", "ada"), ("password", "secret")):
        (tmp_path / name).write_text(text)
    with site(responses(1), login="Basic YWRhOnNlY3JldA==") as exporter:
        refused = run("--connect", exporter.url, "--once")
        assert refused.returncode == 1
        assert missing(refused.stderr, "login required", "--login") == []
        assert run("--connect", exporter.url, "--once", "--login", str(tmp_path)).returncode == 0


def test_wrong_flags_are_refused_in_one_line() -> None:
    for flags, words in {
        (): ["no terminal", "--once"],
        ("--once", "--connect", "ftp://host"): ["ftp://host", "http://"],
        ("--once", "--simulate", "--pod", "train"): ["NAMESPACE/NAME"],
        ("--once", "--simulate", "--sort", "energy"): ["energy", "temperature"],
    }.items():
        refused = run(*flags)
        assert refused.returncode == 2
        assert missing(refused.stderr, *words) == []
        assert len(refused.stderr.splitlines()) == 1


def test_without_the_library_the_command_to_install_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError")
    with in_terminal(["top", "--simulate"], 80, 24, {"PYTHONPATH": str(tmp_path)}) as terminal:
        terminal.wait_for("pip install 'gputally[top]'")
        assert terminal.end() == 1
