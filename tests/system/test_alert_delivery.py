"""From a fault of a GPU to the notification: grouping, inhibition, resolution, restart."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.alerting import Alertmanager, Message, inbox, stack, write_alertmanager_config
from tests.support.exporter import Exporter

TWO_LOST = """
gpus = 4
model = "h100"

[[fault]]
kind = "xid"
gpus = [1, 2]
code = 79
at = 1

[[fault]]
kind = "lost"
gpus = [1, 2]
start = 2
stop = "1d"
"""
ONE_LOST = """
gpus = 2
model = "h100"

[[fault]]
kind = "lost"
gpus = [1]
start = 2
stop = "25s"
"""
HEALTHY = 'gpus = 1\nmodel = "h100"\n'
HELD = """
gpus = 1
model = "h100"

[[workload]]
shape = "unrequested"
pod = "nlp/shadow"
"""


def play(folder: Path, name: str, scenario: str) -> Exporter:
    file = folder / f"{name}.toml"
    file.write_text(scenario)
    return Exporter(folder / f"{name}.log", "simulate", "--scenario", str(file), "--interval", "1s")


def is_about(alert: str, status: str = "firing") -> Callable[[Message], bool]:
    def wanted(message: Message) -> bool:
        return message.status == status and any(name == alert for name, _, _ in message.alerts)

    return wanted


def test_two_lost_gpus_of_a_node_are_one_notification(tmp_path: Path) -> None:
    with (
        play(tmp_path, "ill", TWO_LOST) as ill,
        play(tmp_path, "well", HEALTHY) as well,
        stack(tmp_path, {"ill": ill.address, "well": well.address}) as (_, alertmanager, box),
    ):
        page = box.wait_for(
            lambda message: message.receiver == "pagerduty" and len(message.alerts) == 2,
            "a page with both GPUs",
        )
        assert page.alerts == (("GPUTallyGpuLost", "ill", "1"), ("GPUTallyGpuLost", "ill", "2"))
        assert page.common["cluster"] == "test"
        assert page.common["action"] == "drain"
        first = page.whole["alerts"][0]
        assert first["labels"].keys() >= {"uuid", "pci_bus_id", "model"}
        assert first["annotations"]["runbook_url"].endswith("/GPUTallyGpuLost.md")
        # Its XID is explained by the loss, and is held back.
        held_back = {labels["alertname"] for labels in alertmanager.inhibited()}
        assert "GPUTallyXidCritical" in held_back
        assert "GPUTallyXidCritical" not in box.alert_names()


def test_the_return_of_the_gpu_resolves_the_alert_and_a_restart_repeats_nothing(tmp_path: Path) -> None:
    with (
        play(tmp_path, "ill", ONE_LOST) as ill,
        stack(tmp_path, {"ill": ill.address}) as (_, alertmanager, box),
    ):
        box.wait_for(is_about("GPUTallyGpuLost"), "the page")
        alertmanager.stop()
        pages = [message for message in box.messages if message.receiver == "pagerduty"]
        alertmanager.start()
        box.wait_for(is_about("GPUTallyGpuLost", "resolved"), "its resolution, after a restart in between")
        later = [m for m in box.messages if m.receiver == "pagerduty" and m.status == "firing"]
        assert {m.alerts for m in later} == {m.alerts for m in pages}


def test_an_exporter_that_is_down_is_reported_with_its_node(tmp_path: Path) -> None:
    with (
        play(tmp_path, "gone", HEALTHY) as gone,
        play(tmp_path, "well", HEALTHY) as well,
        stack(tmp_path, {"gone": gone.address, "well": well.address}) as (prometheus, _, box),
    ):
        prometheus.wait_for('sum(up{job="gputally"}) == 2')
        gone.process.kill()
        down = box.wait_for(is_about("GPUTallyExporterDown"), "the message about the exporter")
        assert down.alerts == (("GPUTallyExporterDown", "gone", ""),)


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """One that is told alerts, and has no Prometheus."""
    directory = tmp_path_factory.mktemp("alertmanager")
    with inbox() as box:
        write_alertmanager_config(directory / "alertmanager.yml", box)
        running = Alertmanager(directory)
        running.start()
        try:
            yield running
        finally:
            running.stop()


@pytest.mark.parametrize(
    ("source", "target", "other"),
    [
        (
            {"alertname": "KubeNodeNotReady", "node": "a", "severity": "warning"},
            {"alertname": "GPUTallyExporterDown", "node": "a", "severity": "warning"},
            # A warning never inhibits a critical alert.
            {"alertname": "GPUTallyNodeDark", "node": "a", "severity": "critical"},
        ),
        (
            {"alertname": "GPUTallyAllExportersDown", "severity": "critical"},
            {"alertname": "GPUTallyExporterDown", "node": "a", "severity": "warning"},
            {"alertname": "GPUTallyExporterDown", "node": "a", "severity": "warning", "cluster": "other"},
        ),
        (
            {"alertname": "GPUTallyExporterDown", "node": "a", "severity": "warning"},
            {"alertname": "GPUTallyXidWarning", "node": "a", "uuid": "1", "severity": "warning"},
            {"alertname": "GPUTallyXidCritical", "node": "a", "uuid": "1", "severity": "critical"},
        ),
        (
            {"alertname": "GPUTallyGpuLost", "node": "a", "uuid": "1", "severity": "critical"},
            {"alertname": "GPUTallyXidCritical", "node": "a", "uuid": "1", "severity": "critical"},
            {"alertname": "GPUTallyXidCritical", "node": "a", "uuid": "2", "severity": "critical"},
        ),
        (
            {"alertname": "GPUTallyDriverUnavailable", "node": "a", "severity": "critical"},
            {"alertname": "GPUTallyGpuLost", "node": "a", "uuid": "1", "severity": "critical"},
            {"alertname": "GPUTallyGpuLost", "node": "b", "uuid": "1", "severity": "critical"},
        ),
        (
            {"alertname": "GPUTallyGpuLost", "node": "a", "uuid": "1", "severity": "critical"},
            {"alertname": "GPUTallyGpusMissing", "node": "a", "severity": "warning"},
            {"alertname": "GPUTallyGpusMissing", "node": "b", "severity": "warning"},
        ),
        (
            {"alertname": "GPUTallyHeldIdleLong", "namespace": "a", "pod": "1"},
            {"alertname": "GPUTallyHeldIdle", "namespace": "a", "pod": "1"},
            {"alertname": "GPUTallyHeldIdle", "namespace": "a", "pod": "2"},
        ),
        (
            {"alertname": "GPUTallyUncorrectableEcc", "node": "a", "uuid": "1", "severity": "critical"},
            {"alertname": "GPUTallyRowRemapPending", "node": "a", "uuid": "1", "severity": "warning"},
            # Neither has a uuid: that does not make them the same GPU.
            {"alertname": "GPUTallyNoFreeGpu", "node": "a", "severity": "info"},
        ),
    ],
    ids=[
        "node down",
        "all exporters down",
        "exporter down",
        "GPU lost",
        "driver down",
        "lost is missing",
        "idle for longer",
        "critical",
    ],
)
def test_an_alert_inhibits_its_consequences_and_no_other_alert(
    source: dict[str, str],
    target: dict[str, str],
    other: dict[str, str],
    alertmanager: Alertmanager,
    request: pytest.FixtureRequest,
) -> None:
    # Alerts of one cluster do not silence those of another: each case has clusters of its own.
    case = request.node.name
    alerts = [{**labels, "cluster": labels.get("cluster", "") + case} for labels in (source, target, other)]
    alertmanager.tell(alerts)
    assert alertmanager.wait_for_inhibited(case) == [alerts[1]]


def test_alerts_about_a_team_go_to_the_team(tmp_path: Path) -> None:
    with (
        play(tmp_path, "shared", HELD) as shared,
        stack(tmp_path, {"shared": shared.address}) as (_, _, box),
    ):
        message = box.wait_for(is_about("GPUTallyUnrequestedUse"), "the message to the team")
        assert message.receiver == "email"
        assert message.common["namespace"] == "nlp"


def test_in_a_maintenance_window_only_critical_alerts_are_sent(tmp_path: Path) -> None:
    with (
        play(tmp_path, "ill", TWO_LOST + HELD.split("\n", 3)[3]) as ill,
        stack(tmp_path, {"ill": ill.address}, maintenance=True) as (_, _, box),
    ):
        box.wait_for(is_about("GPUTallyGpuLost"), "the page")
        assert {message.receiver for message in box.messages} == {"pagerduty"}
