"""Processes: names with anything in them, permissions, containers that hide the memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.nvidia_smi.csv_tables import ComputeApps, parse_compute_apps
from gputally.model import Process
from tests.unit.devices.nvidia_smi.captures import CAPTURES

HEADER = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"


def apps(rows: str) -> ComputeApps:
    parsed = parse_compute_apps(HEADER + rows)
    assert parsed is not None
    return parsed


def processes(rows: str) -> tuple[Process, ...]:
    parsed = apps(rows)
    assert parsed.errors == {}
    (of_gpu,) = parsed.processes.values()
    assert of_gpu is not None
    return of_gpu


@pytest.mark.parametrize("capture", ["h100-processes", "h100-failing"])
def test_captured_processes_belong_to_their_gpus(capture: str) -> None:
    parsed = parse_compute_apps((CAPTURES / capture / "query-compute-apps.csv").read_text())
    assert parsed is not None
    assert parsed.errors == {}
    assert list(parsed.processes) == [f"GPU-01000100-0000-0000-0000-00000000000{n}" for n in range(8)]
    for of_gpu in parsed.processes.values():
        assert of_gpu == (
            Process(15128, "compute", "python3", 30210 * 2**20),
            Process(15129, "compute", "trainer", 30000 * 2**20),
        )


def test_without_processes_the_table_is_empty_and_no_error() -> None:
    assert parse_compute_apps((CAPTURES / "a100" / "query-compute-apps.csv").read_text()) == ComputeApps(
        {}, {}, {}
    )


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("python3 -c print(1, 2), 3", "python3 -c print(1, 2), 3"),
        ('"quoted, name"', "quoted, name"),
        ('"say ""hi"""', 'say "hi"'),
        ('"', '"'),
        ("[celery worker]", "[celery worker]"),
        ("[Not Found]", None),
        ("[Insufficient Permissions]", None),
        ("", None),
    ],
)
def test_names_of_processes(printed: str, name: str | None) -> None:
    assert processes(f"GPU-1, 7, {printed}, 12 MiB\n") == (Process(7, "compute", name, 12 * 2**20),)


@pytest.mark.parametrize("memory", ["[N/A]", "N/A", "[Not Supported]"])
def test_unreported_memory_is_none(memory: str) -> None:
    assert processes(f"GPU-1, 7, a, {memory}\n") == (Process(7, "compute", "a", None),)


def test_without_units_the_header_gives_the_unit() -> None:
    assert processes("GPU-1, 7, a, 12\n")[0].memory_used_bytes == 12 * 2**20


def test_a_process_with_two_contexts_is_one_process() -> None:
    rows = "GPU-1, 7, a, 12 MiB\nGPU-1, 7, a, 30 MiB\nGPU-1, 7, a, [N/A]\n"
    rows += "GPU-1, 8, b, [N/A]\nGPU-1, 8, b, 1 MiB\n"
    assert processes(rows) == (
        Process(7, "compute", "a", 42 * 2**20),
        Process(8, "compute", "b", 1 * 2**20),
    )


def test_a_gpu_that_cannot_list_processes_has_none_instead_of_an_empty_list() -> None:
    rows = "GPU-1, [Not Supported], [Not Supported], [Not Supported]\nGPU-2, 7, a, 1 MiB\n"
    assert apps(rows).processes == {"GPU-1": None, "GPU-2": (Process(7, "compute", "a", 2**20),)}


def test_malformed_rows_are_counted_and_the_others_are_read() -> None:
    rows = (
        "GPU-1, seven, a, 1 MiB\nGPU-1, 0, a, 1 MiB\nNo running processes found\n"
        "GPU-1, [Unknown Error], a, 1 MiB\nGPU-1, 8, b, ERR!\nGPU-1, 9, c, 3 M"
    )
    parsed = apps(rows)
    assert parsed.processes == {"GPU-1": (Process(8, "compute", "b", None),)}
    assert parsed.errors == {"malformed": 4, "unknown_error": 2}


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", HEADER.strip(), "uuid, index\nGPU-1, 0\n"])
def test_another_output_than_a_table_of_processes_is_none(text: str) -> None:
    assert parse_compute_apps(text) is None


@given(st.text())
def test_any_output_is_parsed_without_an_exception(text: str) -> None:
    parse_compute_apps(text)
    parsed = apps(text)
    assert all(count > 0 for count in parsed.errors.values())


LISTED = (CAPTURES / "h100-processes" / "query-compute-apps.csv").read_text()


@given(st.integers(0, len(LISTED)))
def test_truncated_output_invents_no_process(length: int) -> None:
    whole, cut = parse_compute_apps(LISTED), parse_compute_apps(LISTED[:length])
    assert whole is not None
    for uuid, of_gpu in (cut.processes if cut else {}).items():
        assert set(of_gpu or ()) <= set(whole.processes[uuid] or ())
