"""The servers around the pages: each starts as soon as its program is there, and is announced."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tools import Failed
from tools.demonstration import servers
from tools.demonstration.builder import Builder
from tools.demonstration.machines import EVALUATION_SECONDS
from tools.demonstration.past import write_past, write_recording_rules, write_rules
from tools.demonstration.running import Running
from tools.demonstration.words import alert_line, server_line
from tools.dependencies import programs
from tools.replay.blocks import move_blocks
from tools.servers.children import Child
from tools.servers.prometheus import Prometheus
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 120


class Stack:
    """Prometheus, Alertmanager and Grafana of a plan.

    With a history Prometheus first serves what it scrapes, without alerts. When the history is written it
    starts once more on both, so that an alert that fired before fires at once.
    """

    def __init__(self, running: Running, builder: Builder) -> None:
        self._plan = plan = running.plan
        self._directory = running.directory
        self._children = running.children
        self._inbox = running.inbox
        self._console = running.console
        self._builder = builder
        self._prometheus: Prometheus | None = None
        self._child: Child | None = None
        self._rule_files = write_rules(running.directory)
        self._alerts_printed: set[str] = set()
        self._next_query = 0.0
        self._waiting: dict[str, Callable[[], None]] = {}
        if plan.prometheus:
            self._waiting["Prometheus"] = self._start_prometheus
        if plan.alertmanager:
            self._waiting["Alertmanager"] = self._start_alertmanager
        if plan.grafana:
            self._waiting["Grafana"] = self._start_grafana
        if plan.prometheus and plan.past_seconds:
            self._waiting["history"] = self._write_history

    def start_next(self) -> bool:
        """Starts the first part whose program is there; False if none is."""
        for name, start in self._waiting.items():
            if self._can_start(name):
                del self._waiting[name]
                start()
                return True
        return False

    @property
    def complete(self) -> bool:
        return not self._waiting

    def failures(self) -> list[tuple[str, str]]:
        """The parts whose programs could not be installed, with the reason; they are given up."""
        if self._builder.running:
            return []
        found = [name for name, program in self._programs().items() if not programs.find(program)]
        if "Prometheus" in found:
            found = [*self._waiting]
        for name in found:
            del self._waiting[name]
        return [(", ".join(found), self._builder.failures())] if found else []

    def watch(self) -> None:
        """Looks after all that runs: raises Failed if a server has ended, prints messages and new alerts."""
        self._children.check()
        self._inbox.poll()
        if self._prometheus and time.monotonic() >= self._next_query:
            self._next_query = time.monotonic() + EVALUATION_SECONDS
            with suppress(Failed):
                alerts = self._prometheus.api("alerts")["alerts"]
                firing = {alert_line(alert["labels"]) for alert in alerts if alert["state"] == "firing"}
                for alert in sorted(firing - self._alerts_printed):
                    self._console.say(f"alert fires: {alert}")
                self._alerts_printed |= firing

    def _programs(self) -> dict[str, str]:
        """Part that waits -> its program."""
        plan = self._plan
        every = {"Prometheus": plan.prometheus, "Alertmanager": plan.alertmanager, "Grafana": plan.grafana}
        return {name: server.program for name, server in every.items() if server and name in self._waiting}

    def _can_start(self, name: str) -> bool:
        if name == "history":
            return self._prometheus is not None
        if name == "Prometheus" and self._plan.pages and self._builder.running:
            return bool(programs.find("prometheus") and programs.find(self._plan.pages))
        if name == "Grafana" and self._prometheus is None:
            return False
        return programs.find(self._programs()[name]) is not None

    def _start_prometheus(self) -> None:
        early = write_recording_rules(self._directory) if self._plan.past_seconds else self._rule_files
        self._run_prometheus(early)
        assert self._prometheus
        assert self._plan.prometheus
        self._console.say(server_line("Prometheus", self._plan.prometheus.url))
        prometheus = self._prometheus
        self._wait(lambda: prometheus.query("gputally_gpu_info"), "Prometheus has data")
        gpus = _number(prometheus, "count(count by (node, uuid) (gputally_gpu_info))")
        series = _number(prometheus, 'count({__name__=~"gputally_.+"})')
        self._console.say(f"data has arrived: {gpus:.0f} GPUs, {series:.0f} series")

    def _run_prometheus(self, rule_files: list[Path]) -> None:
        plan = self._plan
        assert plan.prometheus
        program = programs.path(plan.prometheus.program)
        pages = programs.find(plan.pages) if plan.pages and _built_here(program) else None
        child = servers.prometheus(plan, program, pages, self._directory, rule_files)
        self._child = self._children.start(child)
        prometheus = Prometheus(plan.prometheus.url)
        # Not the metric `up`, which the history has too.
        self._wait(lambda: _targets_up(prometheus) == len(plan.machines), "Prometheus scrapes")
        self._prometheus = prometheus

    def _start_alertmanager(self) -> None:
        server = self._plan.alertmanager
        assert server
        child = servers.alertmanager(server, programs.path(server.program), self._directory, self._inbox.url)
        self._children.start(child)
        self._wait(partial(responds, f"{server.url}/-/ready"), "Alertmanager is ready")
        self._console.say(server_line("Alertmanager", server.url))

    def _start_grafana(self) -> None:
        server = self._plan.grafana
        assert server
        self._console.progress("starting Grafana")
        program = programs.path(server.program)
        servers.grafana(self._plan, server, program, self._directory).start(self._children)
        self._console.say(server_line("Grafana", server.url))

    def _write_history(self) -> None:
        past = write_past(self._plan, self._directory, self._rule_files, self._console.say)
        assert self._child
        self._prometheus = None
        self._children.end(self._child)
        move_blocks(past, self._directory / "data")
        self._run_prometheus(self._rule_files)
        self._console.say("history and alerts: ready in Prometheus")

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, _SECONDS_TO_START, check=self._children.check, ignore=(Failed,))


def _built_here(program: Path) -> bool:
    """Whether tools/programs built it, without pages; one on PATH has its own."""
    return programs.cache() in program.parents


def _number(prometheus: Prometheus, expression: str) -> float:
    (series,) = prometheus.query(expression)
    return float(series["value"][1])


def _targets_up(prometheus: Prometheus) -> int:
    return sum(target["health"] == "up" for target in prometheus.api("targets")["activeTargets"])
