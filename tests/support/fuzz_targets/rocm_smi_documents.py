"""JSON of rocm-smi and amd-smi: readings that make a valid scrape, and counted errors."""

from collections import Counter

from gputally.devices import Errors
from gputally.devices.rocm_smi import amd_smi, rocm_smi_keys
from gputally.devices.rocm_smi.json_values import find_json, parse_processes, parse_unrecognized
from gputally.model import Gpu, Reading
from tests.support.fuzz_checks import check_readings
from tools import ROOT

CORPUS = [
    file.read_bytes()
    for file in sorted((ROOT / "tests/fixtures/rocm-smi").rglob("*.json"))
    if file.stat().st_size < 8_000
] + [
    b'{"card0": {"Unique ID": "0x1", "Temperature (Sensor edge) (C)": 1e999, "GPU use (%%)": "9%b"}}'
    % (b"9" * 5000),
    b'[{"gpu": 0, "asic": {"asic_serial": "0x1"}, "power": {"socket_power": {"value": 1e400, "unit": "W"}}}]',
    b'[{"gpu": 0, "asic": {"asic_serial": "0x1"}, "power": {"socket_power": {"value": 9%b, "unit": "W"}}}]'
    % (b"9" * 400),
    b'{"system": {"PID%b": "a, 1, 2, 3, 4", "PID7": "a, 1, 2, 3, 4"}}' % (b"9" * 5000),
]


def one_input(data: bytes) -> None:
    text = data.decode(errors="replace")
    parse_unrecognized(text)
    document = find_json(text)
    errors: Errors = Counter()
    readings: list[Reading] = []
    if isinstance(document, dict):
        system = document.get("system")
        parse_processes(system if isinstance(system, dict) else {})
        cards = [rocm_smi_keys.with_plain_keys(card) for card in document.values() if isinstance(card, dict)]
        for number, card in enumerate(cards):
            gpu = rocm_smi_keys.build_gpu(card, number, None, errors)
            rocm_smi_keys.partition_profile(card)
            if gpu is not None:
                readings.append(rocm_smi_keys.build_reading(gpu, card, errors))
    for number, facts in amd_smi.gpus_of(document).items():
        gpu = amd_smi.build_gpu(facts, number, errors)
        amd_smi.partition_profile(facts)
        known = gpu or Gpu(str(number), number, "amd", "MI300X")
        readings.append(amd_smi.build_reading(known, facts, facts, errors))
    check_readings(tuple({reading.gpu.uuid: reading for reading in readings}.values()))
