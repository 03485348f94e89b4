"""Output of nvidia-smi: readings that make a valid scrape, and counted errors."""

from collections import Counter

from gputally.devices import Errors
from gputally.devices.nvidia_smi.csv_tables import (
    parse_compute_apps,
    parse_cuda_version,
    parse_help_columns,
    parse_list,
    parse_query_gpu,
)
from gputally.devices.nvidia_smi.gpu_columns import build_gpu, build_reading, is_lost
from gputally.model import Reading
from tests.support.fuzz_checks import check_readings
from tools import ROOT

CORPUS = [file.read_bytes() for file in sorted((ROOT / "tests/fixtures/nvidia-smi").glob("h100*/*.csv"))] + [
    b"uuid, index, power.draw [W], ecc.errors.uncorrected.volatile.total\nGPU-1, %b, 1 W, 1\n"
    % (b"9" * 5000),
    b"index, uuid, name, pcie.link.gen.current\n0, GPU-1, a, b, c, [N/A]\n",
    b"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-1, %b, python, 5 MiB\n" % (b"9" * 5000),
]


def one_input(data: bytes) -> None:
    text = data.decode(errors="replace")
    parse_help_columns(text)
    parse_list(text)
    parse_cuda_version(text)
    parse_compute_apps(text)
    errors: Errors = Counter()
    readings: dict[str, Reading] = {}
    for row in parse_query_gpu(text).rows:
        gpu = build_gpu(row, "12.4")
        if gpu is not None and gpu.uuid not in readings:
            up = not is_lost(row)
            readings[gpu.uuid] = build_reading(gpu, row, errors) if up else Reading(gpu=gpu, up=False)
    check_readings(tuple(readings.values()))
