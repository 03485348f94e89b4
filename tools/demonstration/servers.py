"""Configuration files and commands of the demo's Prometheus, Alertmanager and Grafana."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from alerts import manifests
from dashboards.registry import texts
from tools.demonstration.machines import EVALUATION_SECONDS, SAMPLE_SECONDS
from tools.demonstration.past import step_of
from tools.demonstration.plan import DemoServer, Plan
from tools.servers.children import Child
from tools.servers.grafana import Grafana


def prometheus(
    plan: Plan, program: Path, pages: Path | None, directory: Path, rule_files: Sequence[Path]
) -> Child:
    """Prometheus on the data in `directory`/data; `pages` are for a program without them."""
    server = plan.prometheus
    assert server
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(_prometheus_settings(plan, rule_files)))
    # A Prometheus without built-in pages reads them from a directory of this name.
    home = directory / "prometheus"
    ui = home / "web" / "ui"
    ui.mkdir(parents=True, exist_ok=True)
    if pages and not (ui / "static").exists():
        (ui / "static").symlink_to(pages)
    command: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--storage.tsdb.retention.time=1y",
        # The history's blocks overlap; merging them would slow the first queries.
        "--no-storage.tsdb.allow-overlapping-compaction",
        # Alerts that fired at the end of the history continue at once.
        "--rules.alert.for-grace-period=0s",
        f"--web.listen-address={server.address}",
        f"--web.external-url={server.url}/",
    ]
    return Child("prometheus", command, home, directory / "prometheus.log")


def alertmanager(server: DemoServer, program: Path, directory: Path, inbox: str) -> Child:
    """Alertmanager with our routes and inhibitions; one inbox replaces all receivers, which need secrets."""
    config = yaml.safe_load(manifests.alertmanager())
    config["receivers"] = [
        {"name": receiver["name"], "webhook_configs": [{"url": f"{inbox}/{receiver['name']}"}]}
        for receiver in config["receivers"]
    ]
    file = directory / "alertmanager.yml"
    file.write_text(json.dumps(config))
    command: list[str | Path] = [
        program,
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address={server.address}",
        f"--web.external-url={server.url}/",
        "--cluster.listen-address=",
    ]
    return Child("alertmanager", command, directory, directory / "alertmanager.log")


def grafana(plan: Plan, server: DemoServer, program: Path, directory: Path) -> Grafana:
    """Grafana with all our dashboards, the fleet first, without a login."""
    own, made = directory / "grafana", directory / "dashboards" / "GPUTally"
    for new in (own, made):
        new.mkdir(parents=True)
    for name, text in texts().items():
        (made / f"{name}.json").write_text(text)
    return Grafana(
        program,
        own,
        server.port,
        plan.prometheus.url if plan.prometheus else "",
        made.parent,
        alertmanager=plan.alertmanager.url if plan.alertmanager else None,
        scrape_seconds=step_of(plan.past_seconds) if plan.past_seconds else SAMPLE_SECONDS,
        home_dashboard=made / "fleet.json",
        viewers_log_in=False,
    )


def _prometheus_settings(plan: Plan, rule_files: Sequence[Path]) -> dict[str, object]:
    job = {
        "job_name": "gputally",
        "honor_labels": True,
        "static_configs": [machine.target() for machine in plan.machines],
    }
    settings: dict[str, object] = {
        "global": {
            "scrape_interval": f"{SAMPLE_SECONDS}s",
            "scrape_timeout": f"{SAMPLE_SECONDS}s",
            "evaluation_interval": f"{EVALUATION_SECONDS}s",
        },
        "rule_files": [str(file) for file in rule_files],
        "scrape_configs": [job],
    }
    if plan.alertmanager:
        receivers = [{"static_configs": [{"targets": [plan.alertmanager.address]}]}]
        settings["alerting"] = {"alertmanagers": receivers}
    return settings
