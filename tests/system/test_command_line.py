"""The command `gputally` on the command line."""

import json
import signal
from pathlib import Path

import pytest

from gputally import __version__
from tests.support.command_line import NO_DRIVER, run
from tests.support.exporter import Exporter, parse_samples
from tests.support.texts import missing


def test_version() -> None:
    assert run("version").stdout == run("--version").stdout == f"gputally {__version__}\n"
    assert run("serve", "--version").stdout == f"gputally {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--intervall", "5s"), "gputally: unrecognized arguments: --intervall"),
        (
            ("serve", "--interval", "soon"),
            "gputally serve: --interval: 'soon' ... a duration",
        ),
        (
            ("simulate", "--model", "x"),
            "gputally simulate: --model: 'x' ... one of a100",
        ),
        (("serve", "--listen-address", "nowhere:x"), "--listen-address"),
        (
            ("serve", "--compat", "dgcm"),
            "gputally serve: --compat: 'dgcm' ... one or more of dcgm",
        ),
        (
            ("serve", "--metrics-include", "nvlinc"),
            "gputally serve: --metrics-include: ... 'nvlinc' ... nvlink ... groups: gpu",
        ),
        (
            ("serve", "--interval", "5s", "-c", "30000"),
            "gputally serve: --interval 5s ... --collect-interval 30000",
        ),
        (("serve", "--relay", "ftp://x"), "gputally serve: --relay: "),
        (("serve", "--relay-metrics"), "gputally serve: --relay-metrics needs --relay"),
        (
            ("serve", "--metrics-path", "/healthz"),
            "gputally serve: --metrics-path: /healthz",
        ),
        (("polish",), "gputally: argument COMMAND: invalid choice: 'polish' (choose from "),
        ((), "gputally: the following arguments are required: COMMAND"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_with_2(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert missing(result.stderr, *said.split(" ... ")) == []
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with Exporter(tmp_path / "log", "simulate") as first:
        second = run("simulate", "--listen-address", first.address)
    assert second.returncode == 1
    assert first.address in second.stderr
    assert "Traceback" not in second.stderr


def test_once_prints_one_sample_and_exits() -> None:
    result = run("simulate", "--gpus", "3", "--seed", "7", "--once")
    assert result.returncode == 0
    samples = parse_samples(result.stdout)
    assert len(samples["gputally_gpu_up"]) == 3
    assert all(labels[-2] == "true" for labels in samples["gputally_gpu_info"]), (
        "it says that it is simulated"
    )


def test_once_with_a_metrics_file_writes_only_the_file(tmp_path: Path) -> None:
    target = tmp_path / "gpu.prom"
    result = run("simulate", "--once", "--metrics-file", str(target))
    assert (result.returncode, result.stdout) == (0, "")
    assert "gputally_gpu_power_watts" in parse_samples(target.read_text())


def test_the_metrics_file_is_rewritten_with_every_sample_and_recovers_from_a_full_disk(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "textfile"
    directory.mkdir()
    target = directory / "gpu.prom"
    arguments = ("simulate", "--interval", "100ms", "--metrics-file", str(target))
    with Exporter(tmp_path / "log", *arguments) as exporter:
        exporter.wait_until(target.exists, "the file is there")
        first = target.read_text()
        exporter.wait_until(lambda: target.read_text() != first, "the file is renewed")
        directory.rename(tmp_path / "gone")  # as good as a disk that takes no more
        exporter.wait_until(lambda: "cannot write" in exporter.log.read_text(), "the failure is logged")
        exporter.next_snapshots()
        assert exporter.log.read_text().count("cannot write") == 1
        (tmp_path / "gone").rename(directory)
        target.unlink()
        exporter.wait_until(target.exists, "the file is back")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_leaves_no_partial_file(tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "gpu.prom"
    arguments = ("simulate", "--interval", "100ms", "--metrics-file", str(target))
    with Exporter(tmp_path / "log", *arguments) as exporter:
        exporter.wait_until(target.exists, "the file is there")
        exporter.stop(number)
        assert exporter.process.returncode == 0
        assert exporter.log.read_text().endswith("stopped\n")
    assert target.read_text().endswith("\n")
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.prom", "log"}


def test_without_a_gpu_and_a_driver_it_runs_and_reports_the_reason_everywhere(tmp_path: Path) -> None:
    arguments = ("serve", "--interval", "200ms", "--sysfs", str(tmp_path))
    with Exporter(tmp_path / "log", *arguments, environment=NO_DRIVER) as exporter:
        exporter.wait_until(lambda: exporter.get("/readyz")[0] == 200, "the first sample is done")
        up = exporter.samples()["gputally_source_up"]
        assert (up[("nvml",)], up[("nvidia-smi",)]) == (0, 0)
        assert ("amdgpu",) not in up, "there is nothing of AMD on this host"
        assert exporter.get("/healthz")[0] == 200
        assert b"ready: 0 GPUs (nvml: " in exporter.get("/readyz")[1]
        assert "source nvml is down" in exporter.log.read_text()
        assert exporter.log.read_text().count("source nvml is down") == 1, "said once, not with every sample"


def test_the_start_logs_version_interval_and_address(tmp_path: Path) -> None:
    arguments = ("simulate", "--interval", "15s", "--hostname-override", "node-7", "--log-format", "json")
    with Exporter(tmp_path / "log", *arguments) as exporter:
        exporter.wait_until(lambda: exporter.get("/readyz")[0] == 200, "the first sample is done")
        messages = [json.loads(line)["message"] for line in exporter.log.read_text().splitlines()]
        assert messages[0] == f"gputally {__version__} serves http://{exporter.address}/metrics"
        assert "every 15 s" in messages[1]
        assert exporter.samples()["gputally_exporter_info"].popitem()[0][-1] == "node-7"


def test_check_without_a_gpu_exits_with_1_and_prints_the_fix(tmp_path: Path) -> None:
    roots = ("--procfs", str(tmp_path), "--sysfs", str(tmp_path))
    text = run("check", *roots, **NO_DRIVER)
    assert text.returncode == 1
    assert "fix: " in text.stdout
    report = json.loads(run("check", "--json", *roots, **NO_DRIVER).stdout)
    assert report["ok"] is False
    assert {finding["subject"] for finding in report["findings"]} >= {"pci", "driver", "nvml", "nvidia-smi"}


def test_the_paths_of_the_server(tmp_path: Path) -> None:
    with Exporter(tmp_path / "log", "simulate", "--metrics-path", "/gpu") as exporter:
        exporter.wait_until(lambda: exporter.get("/readyz")[0] == 200, "the first sample is done")
        assert b"gputally_gpu_up" in exporter.get("/gpu")[1]
        assert exporter.get("/metrics")[0] == 404
        status, page = exporter.get("/")
        assert status == 200
        assert b'href="./gpu"' in page
        assert __version__.encode() in page


def test_simulations_with_the_same_seed_are_equal(tmp_path: Path) -> None:
    arguments = ("simulate", "--gpus", "2", "--seed", "5", "--once")
    first, second = (parse_samples(run(*arguments).stdout) for _ in range(2))
    assert first["gputally_gpu_info"] == second["gputally_gpu_info"]
    assert first["gputally_gpu_memory_used_bytes"] == second["gputally_gpu_memory_used_bytes"]
    other = parse_samples(run("simulate", "--gpus", "2", "--seed", "6", "--once").stdout)
    assert first["gputally_gpu_info"] != other["gputally_gpu_info"]


def test_log_lines_go_to_the_log_file(tmp_path: Path) -> None:
    result = run("simulate", "--once", "--log-file", str(tmp_path / "log"), "--log-level", "debug")
    assert result.stderr == ""
    assert "source simulated is up" in (tmp_path / "log").read_text()


def test_help_lists_the_environment_variables() -> None:
    text = run("serve", "--help").stdout
    assert "GPUTALLY_INTERVAL, COLLECTION_INTERVAL" in " ".join(text.split())
