"""Scrapes all the time, as Prometheus does, and checks each answer against what must always hold."""

import re
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from tools.benchmark.http_response import BadResponse
from tools.benchmark.scrape import Scraper
from tools.soaking.node import Account

PARSED_EVERY = 50
"""How many scrapes there are for one that Prometheus' own Python parser reads, too: it is slow."""
_PAUSE_SECONDS = 0.2
MAX_AGE_SECONDS = 10.0
"""For so long the ledger waits for owners that cannot be read, and closes no account."""
_EXPIRY_SLACK_SECONDS = MAX_AGE_SECONDS + 2.0
_FORGOTTEN_AFTER = 200
_PAIR = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"'
_SAMPLE = re.compile(rf"([a-zA-Z_:][\w:]*)(?:\{{((?:{_PAIR}(?:,{_PAIR})*,?)?)\}})? (\S+)(?: [-+.\d]+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')
_GPU = re.compile(r'[{,]uuid="([^"]+)"')
_OURS = ("gputally_", "process_")
_CHARGED = re.compile(
    r"gputally_(gpu|pod|host|process|gpu_unattributed)_(energy_joules|held_seconds|busy_seconds)_total"
)

Gpu = str
"""Its uuid: the number changes when another GPU is missing."""


@dataclass(slots=True)
class Scrape:
    """What one scrape says."""

    started_at: float = 0.0
    """When the exporter started."""
    snapshot_at: float = 0.0
    totals: dict[Gpu, int] = field(default_factory=dict)
    """The energy counter of each GPU's ledger, in millijoules."""
    began_at: dict[Gpu, float] = field(default_factory=dict)
    """When each GPU's ledger began: with another, its counters begin again."""
    accounts: dict[Gpu, Counter[Account]] = field(default_factory=lambda: defaultdict(Counter))
    active: set[Account] = field(default_factory=set)
    """The owners that hold a GPU now."""
    sources: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    """Every counter of the exporter's own, by name and labels."""

    def missing(self) -> dict[Gpu, int]:
        """The millijoules by which the accounts of a GPU are not its counter."""
        differences = {gpu: total - sum(self.accounts[gpu].values()) for gpu, total in self.totals.items()}
        return {gpu: difference for gpu, difference in differences.items() if difference}

    def life_of(self, counter: str) -> float:
        """When the life began in which this counter never decreases."""
        gpu = _GPU.search(counter)
        if gpu and _CHARGED.match(counter):
            return self.began_at.get(gpu[1], 0.0)
        return self.started_at


class Invalid(Exception):
    """Text that Prometheus would not accept."""


def read(text: str) -> Scrape:
    """The scrape in a text, of OpenMetrics or older. Raises Invalid."""
    scrape, seen = Scrape(), set()
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise Invalid(f"not a sample: {line[:200]!r}")
        name, labels, value = match[1], match[2] or "", match[3]
        series = line[: match.start(3) - 1]
        if series in seen:
            raise Invalid(f"twice in one scrape: {series[:200]}")
        seen.add(series)
        try:
            number = float(value)
        except ValueError:
            raise Invalid(f"not a number: {line[:200]!r}") from None
        if name.startswith(_OURS):
            _take(scrape, name, labels, series, number)
    return scrape


def _take(scrape: Scrape, name: str, labels: str, series: str, value: float) -> None:
    # process_cpu_seconds_total is read for each format, and two formats of a snapshot come in any order.
    if name.endswith("_total") and not name.startswith("process_"):
        scrape.counters[series] = value
    match name:
        case "gputally_gpu_energy_joules_total":
            scrape.totals[_gpu(series)] = round(value * 1000)
        case (
            "gputally_pod_energy_joules_total"
            | "gputally_host_energy_joules_total"
            | "gputally_gpu_unattributed_energy_joules_total"
        ):
            scrape.accounts[_gpu(series)][_account(labels)] += round(value * 1000)
        case "gputally_pod_active" | "gputally_host_active" if value:
            scrape.active.add(owner(_account(labels)))
        case "gputally_gpu_ledger_start_timestamp_seconds":
            scrape.began_at[_gpu(series)] = value
        case "gputally_source_up":
            scrape.sources[dict(_LABEL.findall(labels))["source"]] = value
        case "gputally_snapshot_timestamp_seconds":
            scrape.snapshot_at = value
        case "process_start_time_seconds":
            scrape.started_at = value


def _gpu(series: str) -> Gpu:
    found = _GPU.search(series)
    if found is None:
        raise Invalid(f"no GPU: {series[:200]}")
    return found[1]


def _account(labels: str) -> Account:
    by_name = dict(_LABEL.findall(labels))
    if "pod" in by_name:
        return ("pod", by_name["namespace"], by_name["pod"], by_name["container"])
    return ("host", by_name["owner"]) if "owner" in by_name else ("unattributed", by_name["reason"])


def owner(account: Account) -> Account:
    """Without the container: its name may become known later than that of its pod."""
    return account[:3]


class Memory:
    """What earlier scrapes said, for the checks that need more than one."""

    def __init__(self, retention_seconds: float) -> None:
        self._retention_seconds = retention_seconds
        self._scrapes = 0
        self._started_at = 0.0
        self._counters: dict[str, tuple[float, float, int]] = {}
        self._inactive_since: dict[Account, float] = {}

    def problems(self, scrape: Scrape) -> Iterable[str]:
        self._scrapes += 1
        for gpu, difference in scrape.missing().items():
            yield f"GPU {gpu}: {difference} mJ of its counter are in no account"
        yield from self._decreased(scrape)
        yield from self._overdue(scrape)

    def _decreased(self, scrape: Scrape) -> Iterable[str]:
        for series, value in scrape.counters.items():
            life = scrape.life_of(series)
            before = self._counters.get(series)
            if before is not None and before[1] == life and value < before[0]:
                yield f"{series} decreased from {before[0]} to {value}"
            self._counters[series] = value, life, self._scrapes
        if self._scrapes % _FORGOTTEN_AFTER == 0:
            oldest = self._scrapes - _FORGOTTEN_AFTER
            self._counters = {series: kept for series, kept in self._counters.items() if kept[2] > oldest}

    def _overdue(self, scrape: Scrape) -> Iterable[str]:
        if scrape.started_at != self._started_at:
            self._started_at = scrape.started_at
            self._inactive_since.clear()
        accounts = {account for charged in scrape.accounts.values() for account in charged}
        inactive = {
            account
            for account in accounts
            if account[0] != "unattributed" and owner(account) not in scrape.active
        }
        self._inactive_since = {
            account: self._inactive_since.get(account, scrape.snapshot_at) for account in inactive
        }
        for account, since in self._inactive_since.items():
            overdue = scrape.snapshot_at - since - self._retention_seconds
            if overdue > _EXPIRY_SLACK_SECONDS:
                yield f"{'/'.join(account)} is still served {overdue:.1f} s after its retention"


class Scrapes:
    """A thread that scrapes; use as a context manager."""

    def __init__(
        self, port: int, login: str, retention_seconds: float, failed: Callable[[str], None]
    ) -> None:
        self._scraper = Scraper(port, like_prometheus=True, login=login)
        self._memory = Memory(retention_seconds)
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="scrapes")
        self.newest = Scrape()
        self.snapshots = 0
        """How many different ones have been scraped."""
        self.restarting = threading.Event()
        """Set while the exporter is down by plan, as it is before its first start."""
        self.restarting.set()
        self.asked = self.answered = self.failed_by_plan = self.parsed = 0
        self.seconds = array("d")
        """Of each answered scrape."""
        self.most_bytes = 0

    def __enter__(self) -> "Scrapes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._scraper.close()

    def _work(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            by_plan = self.restarting.is_set()
            self.asked += 1
            started = time.perf_counter()
            try:
                status = self._scraper.scrape().status
                if status != 200:
                    raise BadResponse(f"status {status}")
                text = self._scraper.body().decode()
            except (OSError, BadResponse, UnicodeDecodeError) as error:
                self._scraper.close()
                if by_plan or self.restarting.is_set():
                    self.failed_by_plan += 1
                else:
                    self._failed(f"a scrape failed: {type(error).__name__}: {error}")
                continue
            self.seconds.append(time.perf_counter() - started)
            self.answered += 1
            self.most_bytes = max(self.most_bytes, len(text))
            self._check(text)

    def _check(self, text: str) -> None:
        try:
            scrape = read(text)
            if self.answered % PARSED_EVERY == 1:
                self.parsed += 1
                _parse(text)
        except (Invalid, ValueError) as error:
            self._failed(f"a scrape is not valid: {error}")
            return
        for problem in self._memory.problems(scrape):
            self._failed(problem)
        self.snapshots += scrape.snapshot_at != self.newest.snapshot_at
        self.newest = scrape


def _parse(text: str) -> None:
    """Raises ValueError if Prometheus' Python client cannot read it."""
    # What is relayed may be older text, and then all of it is.
    chosen = openmetrics_parser if text.endswith("# EOF\n") else parser
    for _ in chosen.text_string_to_metric_families(text):
        pass


def grown(before: Mapping[Account, int], after: Mapping[Account, int]) -> dict[Account, int]:
    """What was added to each account, in millijoules, but for what expired owners left."""
    gone = sum(amount for account, amount in before.items() if account not in after)
    expired = ("unattributed", "expired")
    growth = {account: amount - before.get(account, 0) for account, amount in after.items()}
    growth[expired] = growth.get(expired, 0) - gone
    return {account: amount for account, amount in growth.items() if amount}
