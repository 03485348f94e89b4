"""Measures `gputally bill`: a month of a large fleet, from the records in a real Prometheus.

    .venv/bin/python -m tools.benchmark.bill [--nodes 1000] [--days 31] [--data DIRECTORY]

The records are written first, which takes longer than the bill; with --data they are kept and used again.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from tools import Failed
from tools.replay.records import Window, encode_samples, write_records
from tools.servers.prometheus import Prometheus, serving

_START = 1_790_812_800  # 2026-10-01T00:00:00Z
_HOUR, _MINUTE = 3600, 60
_NAMESPACES, _MODELS = 60, 2
_BASES, _REASONS = ("measured", "shared", "held"), ("idle", "unknown", "unobserved")
_STATES = ("used", "throttled", "idle", "starting", "unknown", "free", "lost")
_COST_STATES = ("allocated", "free", "lost")
_OWNER_RECORDS = (
    *("allocated:seconds", "busy:seconds", "idle:seconds", "gpu_cost:money", "energy_cost:money"),
    "co2:grams",
)
Series = Mapping[str, str]


def main() -> int:
    options = _parser().parse_args()
    kept = nullcontext(str(options.data)) if options.data else tempfile.TemporaryDirectory()
    with kept as directory:
        data = Path(directory)
        series = list(_series(options.nodes))
        if not any(data.glob("*/meta.json")):
            begun = time.monotonic()
            write_records(_windows(series, options.days), data)
            samples = len(series) * options.days * 1440
            print(f"{samples / 1e6:,.0f} M samples written in {time.monotonic() - begun:.0f} s")
        with serving(data, "--query.max-samples=500000000") as prometheus:
            for run in range(options.runs):
                before = _store_seconds(prometheus)
                seconds, command_seconds, mebibytes = _bill(prometheus.url, options.days)
                store_seconds = _store_seconds(prometheus) - before
                print(
                    f"run {run + 1}: {seconds:.1f} s; the command: {command_seconds:.1f} s of CPU, "
                    f"{mebibytes:.0f} MiB; Prometheus: {store_seconds:.1f} s of CPU"
                )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", type=Path, metavar="DIRECTORY")
    return parser


def _bill(url: str, days: int) -> tuple[float, float, float]:
    """Of the command: seconds, seconds of CPU, and the largest resident memory in MiB."""
    period = ["--from", _date(0), "--to", _date(days)]
    command = [sys.executable, "-m", "gputally", "bill", "--prometheus", url, *period]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed("there is no bill")
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _store_seconds(prometheus: Prometheus) -> float:
    """CPU time of Prometheus until now."""
    with urllib.request.urlopen(f"{prometheus.url}/metrics") as response:
        metrics = response.read().decode()
    (seconds,) = re.findall(r"^process_cpu_seconds_total (\S+)$", metrics, re.MULTILINE)
    return float(seconds)


def _date(day: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(_START + day * 24 * _HOUR))


def _series(nodes: int) -> Iterator[Series]:
    """What `--by namespace` reads, and the meters of the nodes for gaps."""
    for number in range(nodes):
        yield _labels("node", "meter:joules", node=f"gpu-{number:04}", model="NVIDIA H100 80GB HBM3")
    for number in range(_MODELS):
        model = f"model-{number}"
        yield _labels("model", "meter:joules", model=model)
        for basis in _BASES:
            yield _labels("model", "energy:joules", model=model, basis=basis)
        for reason in _REASONS:
            yield _labels("model", "energy:joules", model=model, reason=reason)
        for state in _STATES:
            yield _labels("model", "time:seconds", model=model, state=state)
        for state in _COST_STATES:
            yield _labels("model", "gpu_cost:money", model=model, state=state)
        for record, reason in product(("energy_cost:money", "co2:grams"), ("", *_REASONS)):
            yield _labels("model", record, model=model, reason=reason)
    for number in range(_NAMESPACES):
        yield from _owner("namespace", namespace=f"team-{number:02}")


def _owner(level: str, **labels: str) -> Iterator[Series]:
    for basis in _BASES[:2]:
        yield _labels(level, "energy:joules", basis=basis, **labels)
    for record in _OWNER_RECORDS:
        yield _labels(level, record, **labels)


def _labels(level: str, record: str, **labels: str) -> Series:
    given = {"__name__": f"{level}:gputally_bill_{record}", "cluster": "bench", **labels}
    return {name: value for name, value in given.items() if value}


def _windows(series: list[Series], days: int) -> Iterator[Window]:
    """An hour at a time; all series have the same values, which differ from minute to minute."""
    for start in range(_START, _START + days * 24 * _HOUR, _HOUR):
        times = range(start + _MINUTE, start + _HOUR + 1, _MINUTE)
        samples = encode_samples((at * 1000, 20_000 + at // _MINUTE * 7919 % 9973) for at in times)
        yield [(labels, samples) for labels in series]


if __name__ == "__main__":
    sys.exit(main())
