"""Measures `gputally bill`: a month of a large fleet, from the records in a real Prometheus.

    .venv/bin/python -m tools.benchmark.bill [--nodes 1000] [--days 31] [--by namespace] [--data DIRECTORY]

The records are written first, which takes longer than the bill; with --data they are kept and used again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from tools.replay.records import Window, write_records
from tools.replay.tape import encode_samples
from tools.servers.prometheus import serving

_START = 1_790_812_800  # 2026-10-01T00:00:00Z
_HOUR, _MINUTE = 3600, 60
_NAMESPACES, _WORKLOADS, _MODELS = 60, 10, 2
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
                seconds, mebibytes, first = _bill(prometheus.url, options.days, options.by)
                print(f"run {run + 1}: {seconds:.1f} s, {mebibytes:.0f} MiB; {first}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--by", default="namespace")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", type=Path, metavar="DIRECTORY")
    return parser


def _bill(url: str, days: int, by: str) -> tuple[float, float, str]:
    """Seconds, the largest resident memory of the command, and the last lines of the bill."""
    period = ["--from", _date(0), "--to", _date(days)]
    command = [sys.executable, "-m", "gputally", "bill", "--prometheus", url, *period, "--by", by]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    meter = next(line for line in said.splitlines() if line.startswith("Meter"))
    return time.monotonic() - begun, used.ru_maxrss / 1024, meter


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
        for workload in range(_WORKLOADS):
            yield from _owner("workload", namespace=f"team-{number:02}", workload=f"job-{workload:02}")


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
