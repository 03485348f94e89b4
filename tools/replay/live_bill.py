"""Bills jobs of 20, 45 and 150 seconds on a real Prometheus and compares the bill with the exporter's ledger.

An exporter with simulated GPUs runs jobs for a quarter of an hour; two Prometheus scrape it, every 15 and
every 60 seconds, and evaluate the rules of the bill. When all jobs have ended and are recorded, the energy
and the GPU time of each namespace are compared with the ledger. The exit code is 1 if an error is more
than 0.5 %.
"""

import argparse
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from alerts.rules import rule_groups
from tools import Failed
from tools.replay.rule_files import parse_duration
from tools.servers.children import Child, Children
from tools.servers.ports import HOST, free_port
from tools.servers.prometheus import Prometheus, running
from tools.servers.waiting import responds, wait_until

_SCRAPES = ("15s", "60s")
_JOBS = ((20, 40), (45, 90), (150, 300))
"""Seconds of a job, and from one start to the next."""
_ALLOWED = 0.005
_TAIL_SECONDS = 200
"""Until the last job is scraped and recorded."""
_LEDGER = {
    "gputally_pod_energy_joules": "energy:joules",
    "gputally_pod_held_seconds": "allocated:seconds",
}
Amounts = dict[tuple[str, str], float]
"""(namespace, record) -> amount."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/live_bill", description=__doc__)
    parser.add_argument(
        "--last", type=parse_duration, default="15m", help="time in which jobs run (default: 15m)"
    )
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="gputally-bill-") as scratch:
            ledger, bills = _run(Path(scratch), options.last)
    except Failed as failure:
        print(f"tools/live_bill: {failure}", file=sys.stderr)
        return 1
    worst = 0.0
    for namespace, record in sorted(ledger):
        true = ledger[namespace, record]
        errors = [bill.get((namespace, record), 0.0) / true - 1 for bill in bills]
        worst = max(worst, *map(abs, errors))
        told = ", ".join(f"{error:+.3%} at {every}" for every, error in zip(_SCRAPES, errors, strict=True))
        print(f"{namespace:10} {record:18} {true:14,.3f} in the ledger; error of the bill: {told}")
    return int(worst > _ALLOWED)


def _scenario(seconds: float) -> str:
    """One GPU for each length of a job, and one pod that stays. All end by then."""
    lines = [f"gpus = {len(_JOBS) + 1}", 'model = "h100"', *_workload(0, "always/pod-0", 5, seconds)]
    for gpu, (length, every) in enumerate(_JOBS, 1):
        starts = range(15, int(seconds) - length, every)
        for start in starts:
            lines += _workload(gpu, f"jobs-of-{length}s/job-{start}", start, start + length)
    return "\n".join(lines)


def _workload(gpu: int, pod: str, start: float, stop: float) -> Iterator[str]:
    yield from (
        "[[workload]]",
        'shape = "training"',
        f"gpus = [{gpu}]",
        f'pod = "{pod}"',
        f"start = {start:.0f}",
        f"stop = {stop:.0f}",
    )


def _run(directory: Path, seconds: float) -> tuple[Amounts, list[Amounts]]:
    (directory / "scenario.toml").write_text(_scenario(seconds))
    groups = [group for group in rule_groups() if group["name"] in ("gputally-prices", "gputally-bill")]
    (directory / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    address = f"{HOST}:{free_port()}"
    command = [sys.executable, "-m", "gputally", "simulate", "--scenario", "scenario.toml"]
    with ExitStack() as stack:
        servers = []
        for every in _SCRAPES:
            place = directory / every
            place.mkdir()
            config = place / "prometheus.yml"
            config.write_text(yaml.safe_dump(_config(directory / "rules.yml", every, address)))
            servers.append(stack.enter_context(running(place, config, place / "data")))
        children = stack.enter_context(Children())
        log = directory / "exporter.log"
        exporter = Child("exporter", [*command, "--listen-address", address], directory, log)
        children.start(exporter)
        url = f"http://{address}"
        wait_until(lambda: responds(f"{url}/readyz"), "the exporter is ready", check=children.check)
        ledger = _watch(f"{url}/metrics", seconds + _TAIL_SECONDS, children)
        return ledger, [_bill(server, seconds + _TAIL_SECONDS) for server in servers]


def _config(rules: Path, every: str, address: str) -> dict[str, object]:
    target = {"targets": [address], "labels": {"node": "live", "cluster": "live"}}
    return {
        "global": {"scrape_interval": every, "evaluation_interval": "1m"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "gputally", "honor_labels": True, "static_configs": [target]}],
    }


def _watch(url: str, seconds: float, children: Children) -> Amounts:
    """The last value of every counter that the exporter has shown, summed by namespace."""
    seen: dict[tuple[str, ...], float] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        children.check()
        with urllib.request.urlopen(url, timeout=30) as response:
            text = response.read().decode()
        for family in text_string_to_metric_families(text):
            if family.name in _LEDGER:
                for sample in family.samples:
                    labels = sample.labels
                    key = (labels["namespace"], _LEDGER[family.name], labels["pod"], labels.get("basis", ""))
                    seen[key] = sample.value
        time.sleep(5)
    total: Counter[tuple[str, str]] = Counter()
    for (namespace, record, *_), value in seen.items():
        total[namespace, record] += value  # type: ignore[assignment]  # a Counter of floats
    return dict(total)


def _bill(prometheus: Prometheus, seconds: float) -> Amounts:
    return {
        (one["metric"]["namespace"], record): float(one["value"][1])
        for record in _LEDGER.values()
        for one in prometheus.query(
            f"sum by (namespace) (sum_over_time(workload:gputally_bill_{record}[{seconds + 600:.0f}s]))"
        )
    }


if __name__ == "__main__":
    sys.exit(main())
