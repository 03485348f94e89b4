"""tools/demo: the real exporter and a real Prometheus, up together and gone together."""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import demo, environment, programs
from tools.children import Children
from tools.progress import Failed

ROOT = Path(__file__).parents[3]
# This very Python has the package already: the demo need not make an environment.
DRIVER = """
import sys
from pathlib import Path
from tools import demo, environment
environment.python = lambda *groups: Path(sys.executable)
sys.exit(demo.main(sys.argv[1:]))
"""


@contextmanager
def running_demo(*arguments: str, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", DRIVER, "--no-ui", "--port=0", "--prometheus-port=0", *arguments]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'exporter'}", "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        cwd=scratch,
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"the demo ended without saying {words!r}:\n{said}")


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_prometheus_has_the_exporters_data_and_a_signal_leaves_nothing_behind(
    signum: signal.Signals, tmp_path: Path
) -> None:
    with running_demo("--gpus=3", "--seed=7", scratch=tmp_path) as process:
        said = read_until(process, "data has arrived")
        assert "simulated GPUs" in said
        assert re.search(r"data has arrived: 3 GPUs, \d{2,} series", said)
        address = re.search(r"GPUTally +(http://\S+)/ ", said)
        assert address
        with urllib.request.urlopen(f"{address[1]}/metrics", timeout=10) as response:
            assert b"gputally_gpu_power_watts{" in response.read()
        children = children_of(process.pid)
        assert len(children) == 2
        process.send_signal(signum)
        rest = process.communicate(timeout=30)[0]
        assert rest.endswith("stopped; nothing is left running\n")
        assert process.returncode == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


def test_it_stops_by_itself_when_told_to(tmp_path: Path) -> None:
    with running_demo("--gpus=1", "--exit-after=0.5", scratch=tmp_path) as process:
        said, _ = process.communicate(timeout=90)
        assert process.returncode == 0, said
        assert "data has arrived: 1 GPUs" in said


def test_a_child_that_dies_is_named_and_takes_the_demo_with_it(tmp_path: Path) -> None:
    with running_demo("--gpus=1", scratch=tmp_path) as process:
        read_until(process, "data has arrived")
        children = children_of(process.pid)
        (exporter,) = (pid for pid in children if " -m gputally " in command_of(pid))
        os.kill(exporter, signal.SIGKILL)
        rest = process.communicate(timeout=30)[0]
        assert "gputally ended (SIGKILL). Its last lines:" in rest
        assert process.returncode == 1
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((demo.HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_usual_port_that_is_taken_is_replaced_and_that_is_said(
    taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    port = demo.free_port("Prometheus", None, taken)
    assert port != taken
    assert capsys.readouterr().out == f"port {taken} is taken: Prometheus gets {port}\n"


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(taken: int) -> None:
    with pytest.raises(Failed, match=f"port {taken} for Prometheus: Address already in use"):
        demo.free_port("Prometheus", taken, 9090)


def options(**given: object) -> argparse.Namespace:
    nothing = dict.fromkeys(("gpus", "model", "seed", "scenario"))
    return argparse.Namespace(**{**nothing, "port": 0, "prometheus_port": 0, "no_ui": True, **given})


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No environment and no program is got; returns a stand-in for the environment's Python."""
    python = tmp_path / "python"
    monkeypatch.setattr(environment, "python", lambda: python)
    monkeypatch.setattr(programs, "path", lambda _: Path("/usr/bin/prometheus"))
    return python


def answers(python: Path, text: str, code: int) -> None:
    python.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    python.chmod(0o755)


def test_on_a_host_with_gpus_they_are_read(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers(prepared, "{}", 0)
    plan = demo.plan(options())
    assert plan.exporter(prepared.parent).command[3] == "serve"
    assert "this host's GPUs can be read" in capsys.readouterr().out


def test_on_a_host_without_gpus_they_are_simulated_and_that_is_said(
    prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(prepared, "{}", 1)
    plan = demo.plan(options())
    assert plan.exporter(prepared.parent).command[3:5] == ["simulate", "--gpus=8"]
    assert "SIMULATED" in capsys.readouterr().out


def test_a_check_that_crashes_is_no_answer(prepared: Path) -> None:
    answers(prepared, "Traceback", 1)
    with pytest.raises(Failed, match="`gputally check` failed"):
        demo.plan(options())


def test_the_simulators_flags_are_passed_on(prepared: Path) -> None:
    plan = demo.plan(options(gpus="4", model="l4", scenario=Path("/s.toml")))
    assert plan.simulator == ["--gpus=4", "--model=l4", "--scenario=/s.toml"]


def test_what_is_waited_for_in_vain_is_named() -> None:
    begin = time.monotonic()
    with pytest.raises(Failed, match="waited 1 s for data, in vain"):
        demo._wait("data", lambda: False, Children(), seconds=1)
    assert time.monotonic() - begin < 30
