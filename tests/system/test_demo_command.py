"""tools/demo: real exporters and a real Prometheus, up together and gone together."""

import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.support.demo import read_until, running_demo
from tests.support.texts import missing


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_prometheus_has_the_exporters_data_and_a_signal_stops_every_process(
    signum: signal.Signals, tmp_path: Path
) -> None:
    with running_demo("--gpus=3", "--seed=7", "--history=0", scratch=tmp_path) as process:
        said = read_until(process, "all parts are ready")
        assert "simulated GPUs" in said
        assert re.search(r"3 GPUs, \d{2,} series", said)
        address = re.search(r"GPUTally +(http://\S+)/ ", said)
        assert address
        with urllib.request.urlopen(f"{address[1]}/metrics", timeout=10) as response:
            assert b"gputally_gpu_power_watts{" in response.read()
        children = children_of(process.pid)
        assert len(children) == 3
        process.send_signal(signum)
        rest = process.communicate(timeout=30)[0]
        assert "stopped" in rest.splitlines()[-1]
        assert process.returncode == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


def test_the_page_is_first_and_every_part_is_announced_when_it_is_ready(tmp_path: Path) -> None:
    with running_demo("--gpus=1", "--history=10m", scratch=tmp_path) as process:
        said = read_until(process, "all parts are ready")
    places = [said.index(f"\n{part}") for part in ("GPUTally ", "Prometheus ", "data has arrived")]
    assert places == sorted(places)
    assert said.index("history and alerts: ready") > places[-1]
    assert re.search(r"^Alertmanager +http", said, re.MULTILINE)


def test_only_the_page_starts_nothing_but_the_exporter(tmp_path: Path) -> None:
    with running_demo("--gpus=1", "--only=page", scratch=tmp_path) as process:
        said = read_until(process, "Ctrl-C")
        (child,) = children_of(process.pid)
        assert " -m gputally simulate " in command_of(child)
        address = re.search(r"GPUTally +(http://\S+)/ ", said)
        assert address
        with urllib.request.urlopen(f"{address[1]}/", timeout=10) as response:
            assert response.status == 200
        process.terminate()
        assert "stopped" in process.communicate(timeout=30)[0]


def test_ctrl_c_while_the_history_is_written_stops_every_process_and_is_reported(tmp_path: Path) -> None:
    with running_demo("--gpus=8", "--history=2d", scratch=tmp_path) as process:
        read_until(process, "1441 scrapes")
        children = children_of(process.pid)
        os.kill(process.pid, signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
        assert [line.partition(";")[0] for line in rest.splitlines()] == ["stopped"]
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


def test_the_demo_stops_after_the_given_time(tmp_path: Path) -> None:
    with running_demo("--gpus=1", "--history=0", "--exit-after=0.5", scratch=tmp_path) as process:
        said, _ = process.communicate(timeout=90)
        assert process.returncode == 0, said
        assert "1 GPUs" in said


def test_a_child_that_exits_is_named_and_stops_the_demo(tmp_path: Path) -> None:
    with running_demo("--gpus=1", "--history=0", scratch=tmp_path) as process:
        read_until(process, "data has arrived")
        children = children_of(process.pid)
        (exporter,) = (pid for pid in children if " -m gputally " in command_of(pid))
        os.kill(exporter, signal.SIGKILL)
        rest = process.communicate(timeout=30)[0]
        assert "gputally (simulated) ended (SIGKILL)" in rest
        assert process.returncode == 1
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_a_wrong_scenario_is_refused_in_one_line(tmp_path: Path) -> None:
    with running_demo("--gpus=0", scratch=tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert missing(said.splitlines()[-1], "gpus: 0 ", "1 to 1024") == []
