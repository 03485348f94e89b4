"""`gputally verify` against real exporters, Prometheus, Alertmanager and Grafana, well and with faults."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alerts.rules import rule_groups
from dashboards.registry import texts
from tests.support.alerting import Alertmanager, inbox, write_alertmanager_config, write_rules
from tests.support.command_line import levels, run
from tests.support.exporter import Exporter
from tests.support.fake_servers import refusing_address
from tests.support.prometheus import prometheus_in
from tools.dependencies import programs
from tools.servers.children import Children
from tools.servers.grafana import ADMINISTRATOR, Grafana
from tools.servers.ports import free_port
from tools.servers.prometheus import Prometheus

WELL = """
gpus = 2
model = "h100"

[[workload]]
shape = "training"
gpus = [0]
pod = "nlp/train"
"""
NOBODY_IS_NAMED = WELL.replace('pod = "nlp/train"', "")
SOURCE_IS_DOWN = WELL + '[[fault]]\nkind = "source_down"\nsource = "simulated_pods"\nstart = 0\n'
NO_GPU = 'gpus = 1\nmodel = "h100"\n[[fault]]\nkind = "source_down"\nstart = 0\n'
RECORDED = 'count({__name__=~"cluster:.+"})'
EVERYTHING = (
    *("exporter", "targets", "sources", "gpus", "pods", "labels"),
    *("rules", "records", "alertmanager", "dashboards", "data source"),
)


@contextmanager
def play(directory: Path, scenario: str) -> Iterator[Exporter]:
    file = directory / "scenario.toml"
    file.write_text(scenario)
    with Exporter(
        directory / "exporter.log", "simulate", "--scenario", str(file), "--interval", "1s"
    ) as exporter:
        yield exporter


@contextmanager
def prometheus(
    directory: Path, targets: Sequence[str], alertmanager: int | None, change: Callable[[Any], None]
) -> Iterator[str]:
    """It scrapes as in a cluster, where targets have the labels of the exporter's own pod."""
    write_rules(directory / "rules.yml")
    static = [
        {
            "targets": [address],
            "labels": {
                "node": f"n{number}",
                "instance": f"n{number}",
                "namespace": "gpu",
                "pod": "gputally-x",
            },
        }
        for number, address in enumerate(targets)
    ]
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yml")],
        "scrape_configs": [{"job_name": "gputally", "honor_labels": True, "static_configs": static}],
    }
    if alertmanager:
        known = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
        config["alerting"] = {"alertmanagers": known}
    change(config)
    (directory / "prometheus.yml").write_text(json.dumps(config))
    with prometheus_in(directory) as running:
        yield running.url


def as_it_is(config: Any) -> None:
    pass


def labels_not_honoured(config: Any) -> None:
    config["scrape_configs"][0]["honor_labels"] = False


def without_a_rule_group(config: Any) -> None:
    (file,) = map(Path, config["rule_files"])
    rules = json.loads(file.read_text())
    rules["groups"] = [group for group in rules["groups"] if group["name"] != "gputally-health"]
    file.write_text(json.dumps(rules))


def with_a_rule_that_fails(config: Any) -> None:
    (file,) = map(Path, config["rule_files"])
    rules = json.loads(file.read_text())
    # It fails whatever there is to see; the regular expression is looked at only when the rule is evaluated.
    fails = 'label_replace(vector(1), "a", "b", "c", "(")'
    wrong = {"record": "x:gputally_wrong:ratio", "expr": fails}
    rules["groups"][0]["rules"].append(wrong)
    file.write_text(json.dumps(rules))


def without_alertmanager(config: Any) -> None:
    del config["alerting"]


def under_another_job(config: Any) -> None:
    config["scrape_configs"][0]["job_name"] = "gpus"


@dataclass(frozen=True)
class World:
    """What all tests share."""

    exporter: Exporter
    alertmanager: Alertmanager

    @property
    def url(self) -> str:
        return f"http://{self.exporter.address}"

    def verify(self, prometheus: str, *more: str, wait: str = "40s") -> subprocess.CompletedProcess[str]:
        return run(
            *("verify", "--exporter", self.url, "--prometheus", prometheus),
            *("--alertmanager", f"http://127.0.0.1:{self.alertmanager.port}"),
            *("--rule-groups", str(len(rule_groups(disabled_too=True))), "--wait", wait, *more),
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("world")
    with inbox() as box, play(directory, WELL) as exporter:
        write_alertmanager_config(directory / "alertmanager.yml", box)
        alertmanager = Alertmanager(directory)
        alertmanager.start()
        try:
            yield World(exporter, alertmanager)
        finally:
            alertmanager.stop()


def test_a_complete_installation_is_ok_and_each_missing_dashboard_is_reported(
    world: World, tmp_path: Path
) -> None:
    address, port = world.exporter.address, world.alertmanager.port
    with prometheus(tmp_path, [address], port, as_it_is) as url, Children() as children:
        made, own, login = tmp_path / "dashboards", tmp_path / "grafana", tmp_path / "login"
        for new in (made, own, login):
            new.mkdir()
        for name, text in texts().items():
            (made / f"{name}.json").write_text(text)
        grafana = Grafana(programs.path("grafana"), own, free_port(), url, made)
        grafana.start(children)
        (login / "username").write_text(ADMINISTRATOR)
        (login / "password").write_text(grafana.password)

        count = str(len(texts()))
        one_more = str(len(texts()) + 1)
        there: tuple[str, ...] = ("--grafana", grafana.url)
        well = world.verify(url, *there, "--grafana-login", str(login), "--dashboards", count)
        assert well.returncode == 0, well.stdout
        assert levels(well.stdout) == dict.fromkeys(EVERYTHING, "ok")

        missing = world.verify(
            url, *there, "--grafana-login", str(login), "--dashboards", one_more, wait="1s"
        )
        assert missing.returncode == 1
        assert levels(missing.stdout) == {**dict.fromkeys(EVERYTHING, "ok"), "dashboards": "failure"}

        stranger = world.verify(url, *there, wait="1s")
        assert stranger.returncode == 0, stranger.stdout
        assert levels(stranger.stdout) == {
            **dict.fromkeys(EVERYTHING, "ok"),
            **{"dashboards": "not checked", "data source": "not checked"},
        }

        (login / "password").write_text("not this one")
        wrong = world.verify(url, *there, "--grafana-login", str(login), wait="1s")
        assert levels(wrong.stdout)["grafana"] == "failure"


@pytest.mark.parametrize(
    ("change", "failing", "said"),
    [
        (labels_not_honoured, {"labels"}, "exported_pod, exported_namespace"),
        (without_a_rule_group, {"rules"}, "groups of gputally are loaded"),
        (with_a_rule_that_fails, {"rules"}, "1 rules fail: x:gputally_wrong:ratio"),
        (without_alertmanager, {"alertmanager"}, "Prometheus has no Alertmanager"),
        (under_another_job, {"targets"}, "job gpus, not as gputally"),
    ],
)
def test_a_fault_of_prometheus_fails_only_its_check(
    world: World, tmp_path: Path, change: Callable[[Any], None], failing: set[str], said: str
) -> None:
    address, port = world.exporter.address, world.alertmanager.port
    with prometheus(tmp_path, [address], port, change) as url:
        Prometheus(url).wait_for(f"count(up == 1) and {RECORDED}")
        report = world.verify(url, wait="1s")
    found = levels(report.stdout)
    assert {subject for subject, level in found.items() if level == "failure"} == failing, report.stdout
    assert said in report.stdout
    assert report.returncode == 1


def test_an_exporter_that_is_down_is_named_with_the_reason(world: World, tmp_path: Path) -> None:
    port = world.alertmanager.port
    with (
        refusing_address() as nobody,
        prometheus(tmp_path, [world.exporter.address, nobody], port, as_it_is) as url,
    ):
        Prometheus(url).wait_for(f"count(up) == 2 and {RECORDED}")
        report = world.verify(url, "--exporter", f"http://{nobody}", wait="1s")
    failures = [line for line in report.stdout.splitlines() if line.startswith("failure")]
    assert [re.split(" {2,}", line)[1] for line in failures] == ["exporter", "targets"], report.stdout
    assert "connection refused" in failures[0]
    assert "1 of 2 exporters are down: n1: " in failures[1]
    assert "connection refused" in failures[1]


@pytest.mark.parametrize(
    ("scenario", "ready", "failing", "said"),
    [
        (NOBODY_IS_NAMED, RECORDED, {"pods"}, "no pod is named: unknown_container (1 processes)"),
        (SOURCE_IS_DOWN, RECORDED, {"sources"}, "simulated_pods is down on n0"),
        (NO_GPU, "vector(1)", {"sources", "gpus"}, "no exporter finds a GPU"),
    ],
    ids=["no pod is named", "a source is down", "no GPU"],
)
def test_values_that_an_exporter_lacks_fail_only_their_check(
    world: World, tmp_path: Path, scenario: str, ready: str, failing: set[str], said: str
) -> None:
    with (
        play(tmp_path, scenario) as exporter,
        prometheus(tmp_path, [exporter.address], world.alertmanager.port, as_it_is) as url,
    ):
        Prometheus(url).wait_for(f"gputally_source_up and on () {ready}")
        report = world.verify(url, wait="1s")
    found = levels(report.stdout)
    assert {subject for subject, level in found.items() if level == "failure"} == failing, report.stdout
    assert said in report.stdout


def test_a_pod_with_load_was_sampled_attributed_and_charged(world: World, tmp_path: Path) -> None:
    with prometheus(tmp_path, [world.exporter.address], None, as_it_is) as url:
        asked = ("verify", "pod", "--prometheus", url, "--namespace", "nlp")
        seen = run(*asked, "--pod", "tr.+", "--utilization", "0.5", "--wait", "30s")
        assert seen.returncode == 0, seen.stdout
        assert levels(seen.stdout) == dict.fromkeys(("pod", "utilization", "gpu seconds", "energy"), "ok")
        more = run(*asked, "--pod", "train", "--utilization", "1.5")
        assert [key for key, level in levels(more.stdout).items() if level == "failure"] == ["utilization"]
        nobody = run(*asked, "--pod", "tr")
        assert levels(nobody.stdout)["pod"] == "failure"
        assert (more.returncode, nobody.returncode) == (1, 1)


def test_parts_that_are_not_given_are_not_checked(world: World) -> None:
    report = run("verify", "--exporter", world.url)
    assert report.returncode == 0
    found = levels(report.stdout)
    assert found.pop("exporter") == "ok"
    assert found == dict.fromkeys(EVERYTHING[1:], "not checked")
