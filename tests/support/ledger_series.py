"""The ledger's series: in whole millijoules, checked in every scrape."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gputally.simulator import simulated_reader
from tests.support.exporter import Exporter, Samples
from tools.servers.ports import free_port
from tools.servers.prometheus import Prometheus

GPU = "gputally_gpu_energy_joules_total"
POD = "gputally_pod_energy_joules_total"
HOST = "gputally_host_energy_joules_total"
UNATTRIBUTED = "gputally_gpu_unattributed_energy_joules_total"
COUNTERS = "gputally_(gpu|pod|host|gpu_unattributed)_(energy_joules|held_seconds|busy_seconds)_total"

Series = tuple[str, frozenset[tuple[str, str]]]
"""The name and the labels."""
Scrape = dict[Series, float]

COMINGS_AND_GOINGS = """
gpus = 2

[[workload]]
shape = "training"
gpus = [0]
pod = "nlp/steady"

[[workload]]
shape = "unrequested"
gpus = [0]
stop = 3
every = 5
pod = "web/visitor-{run}"

[[workload]]
shape = "training"
gpus = [1]
start = 1
stop = 4
every = 6
owner = "slurm/{run}"

[[workload]]
shape = "inference"
gpus = [1]
start = 3
stop = 5
every = 12
"""


def labels(series: Series) -> dict[str, str]:
    return dict(series[1])


def read_scrape(text: str) -> Scrape:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def millijoules(scrape: Scrape, name: str, **where: str) -> int:
    """The sum of the series of that name with these labels."""
    return sum(
        round(value * 1000)
        for series, value in scrape.items()
        if series[0] == name and where.items() <= labels(series).items()
    )


def missing(scrape: Scrape) -> dict[str, int]:
    """GPU -> millijoules missing from its ledger; empty when all ledgers balance."""
    gpus = {labels(series)["gpu"] for series in scrape if series[0] == GPU}
    differences = {
        gpu: millijoules(scrape, GPU, gpu=gpu)
        - sum(millijoules(scrape, name, gpu=gpu) for name in (POD, HOST, UNATTRIBUTED))
        for gpu in gpus
    }
    return {gpu: difference for gpu, difference in differences.items() if difference}


def check_balance(samples: Samples) -> None:
    """The energy of owners and unattributed energy add up to each GPU's counter, to the millijoule."""
    for (gpu, _), joules in samples.get("gputally_gpu_energy_joules_total", {}).items():
        parts = (
            value
            for scope in ("pod", "host", "gpu_unattributed")
            for labels, value in samples.get(f"gputally_{scope}_energy_joules_total", {}).items()
            if labels[0] == gpu
        )
        assert sum(round(part * 1000) for part in parts) == round(joules * 1000), gpu


def decreases(scrapes: Iterable[Scrape]) -> list[tuple[Series, float, float]]:
    """Every decrease of a counter between two scrapes that have it."""
    last: Scrape = {}
    found = []
    for scrape in scrapes:
        for series, value in scrape.items():
            if series[0].endswith("_total"):
                if value < last.get(series, 0.0):
                    found.append((series, last[series], value))
                last[series] = value
    return found


class Auditor:
    """Scrapes continuously and stores the results."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.scrapes: list[Scrape] = []
        self.failure: BaseException | None = None

    def _work(self) -> None:
        try:
            stopping = False
            while not stopping:
                # One scrape after the stop, which includes what ended the block.
                stopping = self._stop.wait(0.05)
                self.scrapes.append(read_scrape(self._exporter.scrape()))
        except (OSError, AssertionError) as error:
            self.failure = error

    def __enter__(self) -> "Auditor":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            assert self.failure is None, f"/metrics failed: {self.failure}"
            assert any(millijoules(scrape, GPU) for scrape in self.scrapes), "there was no ledger"
            assert [found for scrape in self.scrapes if (found := missing(scrape))] == []
            assert decreases(self.scrapes) == [], "a counter decreased while the exporter ran"


def audited(exporter: Exporter) -> Auditor:
    """`with audited(exporter):` fails when a scrape of the block fails or does not balance, or when a counter
    decreases.
    """
    return Auditor(exporter)


def wait_for_ledger(
    exporter: Exporter, condition: Callable[[Scrape], object], what: str, seconds: float = 60
) -> Scrape:
    """The first scrape that meets the condition."""

    def look() -> Scrape | None:
        scrape = read_scrape(exporter.scrape())
        return scrape if condition(scrape) else None

    return exporter.wait_until(look, what, seconds)


class History:
    """The ledger's counters as Prometheus stored them, scrape by scrape."""

    def __init__(self, matrix: Iterable[Mapping[str, Any]]) -> None:
        found: dict[float, Scrape] = {}
        for entry in matrix:
            name = entry["metric"]["__name__"]
            kept = {k: v for k, v in entry["metric"].items() if k not in ("__name__", "instance", "job")}
            for at, value in entry["values"]:
                found.setdefault(at, {})[name, frozenset(kept.items())] = float(value)
        # All samples of one scrape have one timestamp.
        self.scrapes = [found[at] for at in sorted(found)]

    def values(self, name: str, **where: str) -> list[int]:
        """The millijoules of one account in each scrape that has it."""
        return [
            millijoules(scrape, name, **where)
            for scrape in self.scrapes
            if any(s[0] == name and where.items() <= labels(s).items() for s in scrape)
        ]


def history(kept_by: Prometheus) -> History:
    answer = kept_by.api("query", query=f'{{__name__=~"{COUNTERS}"}}[1h]')
    return History(answer["result"])


class Simulation:
    """One scenario on one port, for several starts of the exporter."""

    def __init__(self, directory: Path) -> None:
        self.scenario = directory / "scenario.toml"
        self.scenario.write_text(COMINGS_AND_GOINGS)
        self.began_at = time.time() - 600
        self.port = free_port()
        self._directory = directory
        self._starts = 0
        self._arguments = (
            *("simulate", "--scenario", str(self.scenario), "--scenario-start", str(self.began_at)),
            *("--port", str(self.port), "--interval", "100ms", "--retention", "3s"),
        )

    def start(self, *arguments: str) -> Exporter:
        self._starts += 1
        return Exporter(self._directory / f"log-{self._starts}", *self._arguments, *arguments)

    def kill_at_birth(self, lines: int, *arguments: str) -> None:
        """Starts an exporter and kills it as soon as it has logged so many lines."""
        command = [sys.executable, "-m", "gputally", *self._arguments, *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            for _ in range(lines):
                process.stderr.readline()
            process.kill()

    def counters(self, at_seconds: float) -> dict[str, int]:
        """The true counters of the GPUs at a time, from the simulator."""
        reader = simulated_reader(scenario=self.scenario, began_at=self.began_at, clock=lambda: at_seconds)
        return {str(r.gpu.index): r.energy_millijoules or 0 for r in reader.read().readings}


def charged(scrape: Scrape) -> bool:
    """Whether the ledger of both GPUs has charges."""
    return all(
        millijoules(scrape, GPU, gpu=gpu) > millijoules(scrape, UNATTRIBUTED, gpu=gpu, reason="initial") > 0
        for gpu in ("0", "1")
    )
