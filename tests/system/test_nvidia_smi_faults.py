"""The running exporter on an nvidia-smi that misbehaves."""

from pathlib import Path

from tests.support.exporter import Exporter
from tests.support.nvidia_smi import CAPTURES, FakeTool, start
from tests.system.conftest import Watch


def is_up(exporter: Exporter) -> bool:
    return exporter.value("gputally_source_up", "nvidia-smi") == 1


def is_down(exporter: Exporter, because: bytes) -> bool:
    return exporter.value("gputally_source_up", "nvidia-smi") == 0 and because in exporter.get("/readyz")[1]


def recovers(exporter: Exporter, tool: FakeTool) -> None:
    tool.answers(CAPTURES / "h100-processes")
    exporter.wait_until(lambda: is_up(exporter), "it is up again")
    exporter.wait_until(lambda: exporter.value("gputally_gpu_power_watts", "0") == 612.34, "GPU 0 is read")


def test_nvidia_smi_hangs(tmp_path: Path, watched: Watch) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool) as exporter, watched(exporter):
        assert is_up(exporter)
        tool.does("sleep 600 & sleep 600\n")
        exporter.wait_until(lambda: is_down(exporter, b"nvidia-smi"), "the hang is reported")
        recovers(exporter, tool)


def test_nvidia_smi_prints_half_of_its_output(tmp_path: Path, watched: Watch) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool) as exporter, watched(exporter):
        tool.answers(CAPTURES / "h100-processes", then="| head -c 3000")
        exporter.wait_until(
            lambda: (
                not is_up(exporter)
                or 0 in exporter.samples()["gputally_gpu_up"].values()
                or exporter.samples().get("gputally_source_field_errors")
            ),
            "the missing half is noticed",
        )
        recovers(exporter, tool)


def test_nvidia_smi_exits_with_255(tmp_path: Path, watched: Watch) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool) as exporter, watched(exporter):
        tool.does('echo "NVIDIA-SMI has failed"\nexit 255\n')
        exporter.wait_until(lambda: is_down(exporter, b"255"), "the exit code is named")
        assert b"NVIDIA-SMI has failed" in exporter.get("/readyz")[1]
        recovers(exporter, tool)


def test_nvidia_smi_finds_no_gpu_any_more(tmp_path: Path, watched: Watch) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool) as exporter, watched(exporter):
        tool.does(
            'echo "Unable to determine the device handle for GPU0000:1A:00.0: Unknown Error"\nexit 255\n'
        )
        exporter.wait_until(
            lambda: set(exporter.samples()["gputally_gpu_up"].values()) == {0}, "all GPUs are down"
        )
        recovers(exporter, tool)


def test_nvidia_smi_is_replaced_by_another_version(tmp_path: Path, watched: Watch) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool) as exporter, watched(exporter):
        tool.answers(CAPTURES / "h100-processes", version="535")
        exporter.next_snapshots(3)
        exporter.wait_until(lambda: is_up(exporter), "the other version is read too")
        assert exporter.value("gputally_gpu_power_watts", "0") == 612.34


def test_auto_falls_back_to_nvidia_smi_and_logs_the_reason(tmp_path: Path) -> None:
    tool = FakeTool(tmp_path)
    with start(tmp_path, tool, "--reader", "auto") as exporter:
        up = exporter.samples()["gputally_source_up"]
        assert (up[("nvml",)], up[("nvidia-smi",)]) == (0, 1)
        log = exporter.log.read_text()
        assert "source nvml is down: " in log
        assert "source nvidia-smi is up: 8 GPUs" in log
