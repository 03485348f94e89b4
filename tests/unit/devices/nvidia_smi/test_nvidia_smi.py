"""The reader on a command that answers like the real one, and on commands that misbehave."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.devices import nvidia_smi, vendor_command
from gputally.devices.nvidia_smi import NvidiaSmiReader
from gputally.devices.nvidia_smi.csv_tables import parse_help_columns
from gputally.devices.nvidia_smi.gpu_columns import WANTED
from gputally.model import Process, Reading, Unavailable
from tests.unit.devices.nvidia_smi.captures import CAPTURES, MACHINE_NAMES, CapturedNvidiaSmi
from tests.unit.devices.tool_clock import ToolClock

UUID = "GPU-01000100-0000-0000-0000-00000000000{}"
NO_HANDLE = (
    "Unable to determine the device handle for GPU0000:4A:00.0: GPU is lost.  "
    "Reboot the system to recover this GPU\n\n"
)


@pytest.fixture
def tool(tmp_path: Path) -> CapturedNvidiaSmi:
    return CapturedNvidiaSmi(tmp_path)


@pytest.fixture
def reader(tool: CapturedNvidiaSmi) -> NvidiaSmiReader:
    return NvidiaSmiReader(command=tool.path, timeout_seconds=30)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], NvidiaSmiReader]:
    def write(text: str, timeout_seconds: float = 30) -> NvidiaSmiReader:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return NvidiaSmiReader(command=str(path), timeout_seconds=timeout_seconds)

    return write


def ups(readings: tuple[Reading, ...]) -> list[bool]:
    return [reading.up for reading in readings]


@pytest.mark.parametrize(("driver", "cuda"), [("535", None), ("550", "12.4")])
def test_gpus_and_their_processes_in_two_runs(tmp_path: Path, driver: str, cuda: str | None) -> None:
    tool = CapturedNvidiaSmi(tmp_path, "h100-processes", driver)
    reader = NvidiaSmiReader(command=tool.path, timeout_seconds=30)
    report = reader.read()
    assert report.errors == {}
    assert [reading.gpu.uuid for reading in report.readings] == [UUID.format(n) for n in range(8)]
    first = report.readings[0]
    assert first.power_watts == 612.34
    assert first.gpu.cuda_version == cuda
    assert first.gpu.vendor == "nvidia"
    assert first.processes is not None
    assert first.processes[0] == Process(15128, "compute", "python3", 30210 * 2**20)
    before = len(tool.calls())
    assert reader.read() == report
    assert len(tool.calls()) == before + 2
    reader.close()


def test_gpus_without_processes_have_an_empty_list(tmp_path: Path) -> None:
    tool = CapturedNvidiaSmi(tmp_path, "t4")
    (*_, last) = NvidiaSmiReader(command=tool.path, timeout_seconds=30).read().readings
    assert last.processes == ()
    assert last.gpu.index == 3


def test_after_a_driver_change_the_columns_are_queried_again(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    reader.read()
    tool.play("gb200", "535")  # 580.65.06, by a tool without --version
    (*_, gpu) = (reading.gpu for reading in reader.read().readings if reading.up)
    assert gpu.cuda_version == "12.4"
    (*_, gpu) = (reading.gpu for reading in reader.read().readings if reading.up)
    assert (gpu.driver_version, gpu.cuda_version) == ("580.65.06", None)
    assert [call for call in tool.calls() if call == ["--help-query-gpu"]] == [["--help-query-gpu"]] * 2


def test_a_removed_column_is_noticed_and_the_sample_still_succeeds(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader, tmp_path: Path
) -> None:
    reader.read()
    table = (CAPTURES / "h100" / "query-gpu-550.csv").read_text()
    (tmp_path / "query-gpu-560.csv").write_text(table.replace("ecc.mode.current", "ecc.state"))
    (tmp_path / "help-query-gpu.txt").write_text(
        (CAPTURES / "tool-550" / "help-query-gpu.txt").read_text().replace("ecc.mode.current", "ecc.state")
    )
    tool._state |= {"table": str(tmp_path / "query-gpu-560.csv"), "tool": str(tmp_path)}
    (tmp_path / "version.txt").write_text("CUDA Version : 12.6\n")
    tool.answer_normally()
    report = reader.read()
    assert ups(report.readings) == [True] * 8
    assert report.readings[0].ecc_mode is None
    assert report.readings[0].mig_mode is False
    assert report.readings[0].gpu.cuda_version == "12.6"


def test_a_tool_that_rejects_its_own_columns_is_unavailable(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer("--query-gpu", (CAPTURES / "tool-550" / "unknown-column.txt").read_text(), 2)
    with pytest.raises(Unavailable, match='exit code 2: Field "bogus" is not a valid field to query'):
        reader.read()


@pytest.mark.parametrize("every", [False, True])
def test_every_column_is_asked_for_only_where_the_rows_are_wanted(tmp_path: Path, every: bool) -> None:
    tool = CapturedNvidiaSmi.on_machine(tmp_path, MACHINE_NAMES[0], "load")
    reader = NvidiaSmiReader(command=tool.path, timeout_seconds=30, every_column=every)
    (reading,) = reader.read().readings
    (query,) = (call[0] for call in tool.calls() if call[0].startswith("--query-gpu="))
    asked = query.removeprefix("--query-gpu=").split(",")
    assert len(asked) == len(set(asked))
    offered = {name for (name,) in parse_help_columns((tmp_path / "help-query-gpu.txt").read_text())}
    if every:
        assert set(asked) == offered
        assert reading.nvidia_smi_row is not None
        assert {header.partition(" ")[0] for header in reading.nvidia_smi_row} == offered
    else:
        assert set(asked) == offered & set(WANTED)
        assert reading.nvidia_smi_row is None


def test_a_column_that_the_tool_offers_and_refuses_costs_the_rest_of_the_row_and_no_reading(
    tool: CapturedNvidiaSmi, tmp_path: Path
) -> None:
    help = (CAPTURES / "tool-550" / "help-query-gpu.txt").read_text()
    (tmp_path / "help-query-gpu.txt").write_text(f'{help}\n"no.such.column"\nIt does not exist.\n')
    (tmp_path / "version.txt").write_text("")
    tool._state["tool"] = str(tmp_path)
    tool.answer_normally()
    reader = NvidiaSmiReader(command=tool.path, timeout_seconds=30, every_column=True)
    for _ in range(2):
        report = reader.read()
        assert ups(report.readings) == [True] * 8
        assert report.readings[0].power_watts == 612.34
        assert report.errors == {("gpu", "column_refused"): 1}, "and it is not asked for again"


def test_names_are_kept_as_printed_where_the_rows_are_wanted(tool: CapturedNvidiaSmi) -> None:
    uuid = UUID.format(0)
    tool.answer(
        "--query-compute-apps",
        f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{uuid}, 7, [Not Found], 5 MiB\n",
    )
    kept = NvidiaSmiReader(command=tool.path, timeout_seconds=30, every_column=True).read().readings
    assert kept[0].nvidia_smi_names == {7: "[Not Found]"}
    assert kept[1].nvidia_smi_names == {}
    usual = NvidiaSmiReader(command=tool.path, timeout_seconds=30).read().readings
    assert usual[0].nvidia_smi_names is None
    for readings in (kept, usual):
        assert readings[0].processes == (Process(7, "compute", None, 5 * 2**20),)


def test_the_exit_code_of_the_query_is_reported(tool: CapturedNvidiaSmi, reader: NvidiaSmiReader) -> None:
    assert reader.read().exit_code == 0
    tool.answer("--query-gpu", "NVIDIA-SMI has failed\n", 9)
    with pytest.raises(Unavailable) as failure:
        reader.read()
    assert failure.value.exit_code == 9


@pytest.mark.parametrize(
    ("text", "exit_code", "reason", "fix"),
    [
        (
            (CAPTURES / "tool-550" / "no-driver.txt").read_text(),
            9,
            "exit code 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
            "modprobe nvidia",
        ),
        (
            (CAPTURES / "tool-535" / "no-library.txt").read_text(),
            12,
            "exit code 12: NVIDIA-SMI couldn't find libnvidia-ml.so",
            "libnvidia-ml.so.1",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\n",
            18,
            "exit code 18: Failed to initialize NVML: Driver/library version mismatch",
            "reboot after its update",
        ),
        ("Failed to initialize NVML: Unknown Error\n", 255, "exit code 255: Failed to", "dmesg"),
        ("No devices were found\n", 6, "exit code 6: No devices were found", "lspci"),
        ("", 255, "exit code 255: nothing", "dmesg"),
        ("\x07\x00\x1b[31m\n", 1, r"exit code 1: \?\[31m", "dmesg"),
    ],
)
@pytest.mark.parametrize("when", ["--help-query-gpu", "--query-gpu"])
def test_a_failing_tool_is_unavailable_with_reason_and_fix(
    tool: CapturedNvidiaSmi,
    reader: NvidiaSmiReader,
    when: str,
    text: str,
    exit_code: int,
    reason: str,
    fix: str,
) -> None:
    tool.answer(when, text, exit_code)
    with pytest.raises(Unavailable, match=reason) as failure:
        reader.read()
    assert failure.value.reason.startswith(tool.path)
    assert fix in failure.value.fix
    tool.answer_normally()
    assert ups(reader.read().readings) == [True] * 8, "it goes on when the tool does"


def test_a_host_without_the_tool_is_unavailable_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nvidia-smi was not found") as failure:
        NvidiaSmiReader(command=str(tmp_path / "nvidia-smi"), timeout_seconds=30).read()
    assert "install" in failure.value.fix


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolClock:
    return ToolClock(tmp_path / "clock", monkeypatch, nvidia_smi, vendor_command)


def test_a_tool_that_hangs_is_unavailable(script: Callable[..., NvidiaSmiReader], clock: ToolClock) -> None:
    reader = script(f"{clock.passes(20)}; sleep 600 & wait", timeout_seconds=20)
    with pytest.raises(Unavailable, match=r"still running after .* and was killed") as failure:
        reader.read()
    assert "dmesg" in failure.value.fix


def test_all_runs_of_a_sample_share_one_timeout(
    script: Callable[..., NvidiaSmiReader], clock: ToolClock
) -> None:
    help_text = CAPTURES / "tool-550" / "help-query-gpu.txt"
    reader = script(
        f'case "$*" in *help*) {clock.passes(12)}; cat {help_text};; *) {clock.passes(12)}; sleep 600;; esac',
        timeout_seconds=20,
    )
    with pytest.raises(Unavailable, match="killed"):
        reader.read()


def test_a_slow_tool_succeeds_after_several_samples(
    tmp_path: Path, tool: CapturedNvidiaSmi, clock: ToolClock
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n{clock.passes(8)}\nexec {tool.path} "$@"\n')
    slow.chmod(0o755)
    reader = NvidiaSmiReader(command=str(slow), timeout_seconds=20)
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append(len(reader.read().readings))
            break
        except Unavailable as failure:
            assert "killed" in failure.reason
    assert outcomes == [8], "it must not start over with every sample"


@pytest.mark.parametrize(
    "text",
    [
        (CAPTURES / "h100" / "q-x-crashed.xml").read_text(),
        (CAPTURES / "h100" / "plain.txt").read_text(),
        "uuid, index, pstate\n",
        "uuid, index, psta",
        "uuid, index, pstate\nGPU-1, 0",
        "\x00\xff\x13" * 100,
    ],
    ids=["half an XML", "plain table", "header alone", "half a header", "half a row", "noise"],
)
def test_incomplete_or_other_output_is_unavailable_and_quoted(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader, text: str
) -> None:
    tool.answer("--query-gpu", text)
    with pytest.raises(Unavailable, match=r"did not print the table, but: .") as failure:
        reader.read()
    assert failure.value.reason.isprintable()
    assert len(failure.value.reason) < 1000


def test_truncated_output_keeps_its_complete_rows(tool: CapturedNvidiaSmi, reader: NvidiaSmiReader) -> None:
    whole = reader.read()
    columns = next(call for call in tool.calls() if call[0].startswith("--query-gpu="))[0].split("=")[1]
    header = columns.replace(",", ", ")
    row = ", ".join(
        {"uuid": UUID.format(0), "index": "0", "power.draw": "7.00 W", "pstate": "P8"}.get(column, "[N/A]")
        for column in columns.split(",")
    )
    tool.answer("--query-gpu", f"{header}\n{row}\n{row[:60]}")
    report = reader.read()
    assert ups(report.readings) == [True] + [False] * 7
    assert report.readings[0].power_watts == 7
    assert [reading.gpu for reading in report.readings[1:]] == [reading.gpu for reading in whole.readings[1:]]
    assert report.errors == {("gpu", "malformed"): 1, ("gpu", "missing"): 7}


def test_the_rows_of_a_tool_that_crashes_are_used_and_the_error_is_counted(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer("--query-gpu", "uuid, index, power.draw [W]\nGPU-1, 0, 7.00 W\n", 14)
    report = reader.read()
    assert ups(report.readings) == [True]
    assert report.errors[("gpu", "exit_code_14")] == 1


def test_columns_of_another_version_are_read_by_name(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer(
        "--query-gpu",
        "pstate, brand.new, index, clocks_throttle_reasons.hw_slowdown, uuid, memory.used [MiB]\n"
        "P2, 99 zB, 4, Active, GPU-4, 17\n",
    )
    (reading,) = reader.read().readings
    assert (reading.gpu.uuid, reading.gpu.index, reading.performance_state) == ("GPU-4", 4, 2)
    assert reading.throttle_active == {("hw_slowdown",): 1.0}
    assert reading.memory_used_bytes == 17 * 2**20


def test_a_gpu_whose_row_reports_lost_is_down_and_the_others_are_read(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    before = reader.read()
    tool.play("h100-lost")
    tool.answer("--query-compute-apps", "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n")
    report = reader.read()
    assert ups(report.readings) == [True, True, False, True, True, True, True, True]
    assert report.readings[2] == Reading(gpu=before.readings[2].gpu, up=False)
    assert report.errors == {("gpu", "lost"): 1}
    tool.answer_normally()
    tool.play("h100-processes")
    assert ups(reader.read().readings) == [True] * 8, "and it may come back"


def test_a_gpu_that_cannot_be_opened_does_not_affect_the_others(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    reader.read()
    tool.answer("--query-gpu", NO_HANDLE, 15)
    tool.answer("--query-compute-apps", NO_HANDLE, 15)
    tool.answer("-L", (CAPTURES / "h100-lost" / "list.txt").read_text(errors="replace"), 15)
    report = reader.read()
    assert ups(report.readings) == [True, True, False, True, True, True, True, True]
    assert report.readings[3].processes is not None
    assert len(report.readings[3].processes) == 2
    assert report.errors[("gpu", "no_handle")] == 1
    assert report.errors[("gpu", "missing")] == 1
    assert tool.calls()[-1][:2] == ["-i", "0,1,3,4,5,6,7"]


def test_a_gpu_lost_before_the_first_sample_does_not_affect_the_others(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer("--query-gpu", NO_HANDLE, 15)
    tool.answer("-L", (CAPTURES / "h100-lost" / "list.txt").read_text(errors="replace"), 15)
    report = reader.read()
    assert [reading.gpu.index for reading in report.readings] == [0, 1, 3, 4, 5, 6, 7]
    assert report.errors[("gpu", "no_handle")] == 1


@pytest.mark.parametrize(("text", "exit_code"), [(NO_HANDLE, 15), ("No devices were found\n", 6)])
def test_if_every_gpu_disappears_the_known_ones_are_down(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader, text: str, exit_code: int
) -> None:
    reader.read()
    tool.answer("--query-gpu", text, exit_code)
    tool.answer("-L", text, exit_code)
    assert ups(reader.read().readings) == [False] * 8


def test_if_the_only_gpu_is_lost_from_the_start_the_reason_names_it(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer("--query-gpu", NO_HANDLE, 15)
    tool.answer("-L", NO_HANDLE, 15)
    with pytest.raises(Unavailable, match="exit code 15: Unable to determine the device handle") as failure:
        reader.read()
    assert "gpu-reset" in failure.value.fix


def test_a_gpu_without_its_uuid_is_recognised_by_its_pci_address(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    reader.read()
    tool.answer(
        "--query-gpu",
        "uuid, index, pci.bus_id, pstate\n"
        f"{UUID.format(0)}, 0, 00000000:1A:00.0, P0\n"
        "[Unknown Error], [Unknown Error], 00000000:1B:00.0, [Unknown Error]\n"
        "[Unknown Error], 2, [Unknown Error], [Unknown Error]\n"
        "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n",
    )
    report = reader.read()
    assert ups(report.readings) == [True] + [False] * 7
    assert report.errors == {("gpu", "lost"): 2, ("gpu", "unidentified"): 1, ("gpu", "missing"): 5}


def test_one_gpu_is_never_reported_twice(tool: CapturedNvidiaSmi, reader: NvidiaSmiReader) -> None:
    tool.answer("--query-gpu", "uuid, index, pstate\nGPU-1, 0, P0\nGPU-1, 0, P8\n")
    report = reader.read()
    assert [reading.performance_state for reading in report.readings] == [0]
    assert report.errors[("gpu", "duplicate")] == 1


def test_gpus_are_reported_if_processes_cannot_be_read(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer("--query-compute-apps", "Failed to list: Unknown Error\n", 255)
    for times in (1, 2):
        report = reader.read()
        assert ups(report.readings) == [True] * 8
        assert all(reading.processes is None for reading in report.readings)
        assert report.errors == {("processes", "exit_code_255"): times}, "errors only ever grow"


def test_gpus_are_reported_if_the_list_of_processes_hangs(
    tmp_path: Path, tool: CapturedNvidiaSmi, clock: ToolClock
) -> None:
    hanging = tmp_path / "hanging"
    hanging.write_text(
        f'#!/bin/sh\ncase "$*" in *compute-apps*) {clock.passes(20)}; sleep 600;; esac\n'
        f'exec {tool.path} "$@"\n'
    )
    hanging.chmod(0o755)
    report = NvidiaSmiReader(command=str(hanging), timeout_seconds=20).read()
    assert ups(report.readings) == [True] * 8
    assert report.errors == {("processes", "timeout"): 1}


def test_processes_on_a_gpu_that_is_not_in_the_table_are_counted(
    tool: CapturedNvidiaSmi, reader: NvidiaSmiReader
) -> None:
    tool.answer(
        "--query-compute-apps",
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "GPU-other, 1, a, 1 MiB\nGPU-other, x, a, 1 MiB\n",
    )
    report = reader.read()
    assert all(reading.processes == () for reading in report.readings)
    assert report.errors == {("processes", "unknown_gpu"): 1, ("processes", "malformed"): 1}
