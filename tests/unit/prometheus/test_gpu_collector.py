"""The collector in a service's own registry, with the simulator's GPUs."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gputally import prometheus
from gputally.app import build_collector, main_families
from gputally.config import Config
from gputally.metrics.exposition import render_text
from gputally.prometheus import ConfigError, GPUCollector
from gputally.prometheus.conversion import client_metric
from tools.servers.waiting import wait_until

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    monkeypatch.setenv("GPUTALLY_READER", "simulated")
    monkeypatch.setenv("GPUTALLY_GPUS", "2")
    return CollectorRegistry()


@pytest.fixture
def gpus(registry: CollectorRegistry) -> Iterator[GPUCollector]:
    collector = GPUCollector()
    registry.register(collector)
    yield collector
    collector.close()


def series(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(text: str) -> set[str]:
    return {name for name, _ in series(text)}


def test_the_public_interface_is_this() -> None:
    assert prometheus.__all__ == ["ConfigError", "GPUCollector"]
    public = {
        name: str(inspect.signature(member))
        for name, member in vars(GPUCollector).items()
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_"))
    }
    assert public == {
        "__init__": "(self, *, metrics: str | None = None, "
        "metrics_include: collections.abc.Sequence[str] = (), "
        "metrics_exclude: collections.abc.Sequence[str] = (), interval_seconds: float | None = None, "
        "process_metrics: bool | None = None, state_file: str | os.PathLike[str] | None = None, "
        "reader: str | None = None) -> None",
        "describe": "(self) -> collections.abc.Iterable[prometheus_client.metrics_core.Metric]",
        "collect": "(self) -> collections.abc.Iterable[prometheus_client.metrics_core.Metric]",
        "close": "(self) -> None",
    }


def test_prometheus_client_writes_the_values_that_the_exporter_writes() -> None:
    config = Config(reader="simulated", metrics="full", process_metrics=True)
    collector = build_collector(config)
    families = main_families(config)(collector.sample())
    collector.close(1.0)
    registry = CollectorRegistry()
    registry.register(prometheus._Fixed([client_metric(one) for one in families]))
    assert series(generate_latest(registry).decode()) == series(render_text(families).decode())


def test_the_first_scrape_has_the_first_sample(gpus: GPUCollector, registry: CollectorRegistry) -> None:
    found = series(generate_latest(registry).decode())
    assert {dict(labels)["gpu"] for name, labels in found if name == "gputally_gpu_up"} == {"0", "1"}


def test_it_stands_beside_the_collectors_of_prometheus_client(
    registry: CollectorRegistry, gpus: GPUCollector
) -> None:
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    text = generate_latest(registry).decode()
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert {"process_resident_memory_bytes", "gputally_gpu_power_watts"} <= names(text)


def test_a_name_that_is_taken_is_refused(registry: CollectorRegistry, gpus: GPUCollector) -> None:
    with pytest.raises(ValueError, match="gputally_gpu_power_watts"):
        Gauge("gputally_gpu_power_watts", "Another one.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(GPUCollector())


def test_metrics_are_chosen_as_on_the_command_line(registry: CollectorRegistry) -> None:
    gpus = GPUCollector(metrics="core", metrics_exclude=["gputally_gpu_power_watts"])
    registry.register(gpus)
    found = names(generate_latest(registry).decode())
    gpus.close()
    assert "gputally_gpu_up" in found
    assert not found & {"gputally_gpu_power_watts", "gputally_gpu_throttle_seconds_total"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"metrics": "most"}, "--metrics: 'most'"),
        ({"metrics_include": ["gputally_gpu_colour"]}, "gputally_gpu_colour"),
        ({"interval_seconds": 0.0}, "--interval: '0.0s'"),
    ],
)
def test_a_wrong_setting_is_named(
    settings: dict[str, object], named: str, registry: CollectorRegistry
) -> None:
    with pytest.raises(ConfigError, match=named):
        GPUCollector(**settings)  # type: ignore[arg-type]  # wrong on purpose


STAMP = ("gputally_snapshot_timestamp_seconds", ())
SERVICE = """
import sys
from gputally.prometheus import GPUCollector
from prometheus_client import CollectorRegistry, generate_latest

registry = CollectorRegistry()
registry.register(GPUCollector(metrics="core", interval_seconds=0.1))
for line in sys.stdin:
    print(generate_latest(registry).decode() + "# END", flush=True)
"""


class Service(subprocess.Popen[str]):
    """One process of a service; every line that it gets is a scrape. All have the same simulated GPUs."""

    def __init__(self, directory: Path) -> None:
        settings = {
            "PROMETHEUS_MULTIPROC_DIR": str(directory),
            "GPUTALLY_READER": "simulated",
            "GPUTALLY_SCENARIO_START": "1790000000",
        }
        super().__init__(
            [sys.executable, "-c", SERVICE],
            env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def scrape(self) -> Series:
        assert self.stdin is not None
        assert self.stdout is not None
        print("scrape", file=self.stdin, flush=True)
        return series("".join(iter(self.stdout.readline, "# END\n")))


def energy(scrape: Series) -> float:
    return sum(value for (name, _), value in scrape.items() if name == "gputally_gpu_energy_joules_total")


def test_of_several_processes_one_samples_and_another_goes_on_after_it(tmp_path: Path) -> None:
    with Service(tmp_path) as first, Service(tmp_path) as second:
        wait_until(lambda: energy(first.scrape()) and energy(second.scrape()), "both serve the first sample")
        before = first.scrape()
        assert before.keys() == second.scrape().keys()
        assert first.scrape()[STAMP] <= second.scrape()[STAMP] <= first.scrape()[STAMP]
        last = energy(second.scrape())
        first.kill()
        first.wait()
        after = second.scrape()
        wait_until(lambda: second.scrape().get(STAMP, 0) > after[STAMP], "the second one samples")
        assert energy(second.scrape()) >= last > 0
        second.kill()


FORKED = """
import os
from gputally.prometheus import GPUCollector

gpus = GPUCollector(metrics="core")
parent = len(list(gpus.collect()))
child = os.fork()
if child == 0:
    os._exit(0 if len(list(gpus.collect())) == parent else 1)
print(parent > 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(gpus.collect())) == parent)
"""


@pytest.mark.parametrize("shared", [True, False])
def test_a_service_that_forks_after_the_first_scrape_goes_on_in_both(tmp_path: Path, shared: bool) -> None:
    settings = {"GPUTALLY_READER": "simulated"} | (
        {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)} if shared else {}
    )
    ended = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ended.stdout.split() == ["True", "0", "True"]


def test_serving_does_not_import_prometheus_client() -> None:
    program = "import sys, gputally.cli, gputally.app; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
