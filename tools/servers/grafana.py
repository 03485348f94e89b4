"""A Grafana for tests and the demo: on the loopback address, configured by files, without calls to the
internet.
"""

import base64
import json
import secrets
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import Failed
from tools.servers.children import Child, Children
from tools.servers.ports import HOST
from tools.servers.waiting import wait_until

ADMINISTRATOR = "admin"
_DATABASE_ERROR = b"failed to create default organization"
_MOST_RESTARTS = 4
PROMETHEUS_UID = "prometheus"
ALERTMANAGER_UID = "alertmanager"
# Older versions ignore the settings that only newer versions have.
NO_EXTERNAL_CALLS = {
    "analytics": {
        "enabled": False,
        "reporting_enabled": False,
        "check_for_updates": False,
        "check_for_plugin_updates": False,
        "feedback_links_enabled": False,
    },
    "news": {"news_feed_enabled": False},
    "snapshots": {"external_enabled": False},
    "plugins": {
        "plugin_admin_enabled": False,
        "public_key_retrieval_disabled": True,
        "preinstall_disabled": True,
    },
}
GrafanaSettings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Grafana:
    """The settings of a Grafana, complete before it starts."""

    program: Path
    directory: Path
    """Its directory for settings, database and log."""
    port: int
    prometheus: str
    """URL of the data source; its uid is PROMETHEUS_UID."""
    dashboards: Path
    """A directory of dashboards (JSON). Subdirectories become folders in Grafana; changes appear in seconds.
    """
    alertmanager: str | None = None
    scrape_seconds: int = 15
    """Scrape interval of Prometheus: the smallest step of a panel."""
    home_dashboard: Path | None = None
    viewers_log_in: bool = True
    """False shows the dashboards without a login; changes need the password."""
    password: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, children: Children, seconds: float = 90) -> Child:
        """Starts it and waits until it is ready. Raises Failed."""
        child = children.start(self.prepare())
        restarts = 0

        def check() -> None:
            nonlocal restarts
            try:
                children.check()
            except Failed:
                if restarts == _MOST_RESTARTS or not _has_failed_on_its_database(child):
                    raise
                restarts += 1
                children.dismiss(child)
                shutil.rmtree(self.directory / "data")
                children.start(child)

        wait_until(self.is_ready, f"Grafana is ready; its log: {child.log}", seconds, check=check)
        return child

    def prepare(self) -> Child:
        """Writes its files and returns the child to start."""
        home, server = installation(self.program)
        settings = self.directory / "grafana.ini"
        provisioning = self.directory / "provisioning"
        for name in ("dashboards", "datasources", "plugins", "notifiers", "alerting"):
            (provisioning / name).mkdir(parents=True)
        # It contains the password.
        settings.touch(mode=0o600)
        settings.write_text(ini(self.settings()))
        # JSON is valid YAML.
        (provisioning / "datasources" / "gputally.yaml").write_text(json.dumps(self.data_sources()))
        (provisioning / "dashboards" / "gputally.yaml").write_text(json.dumps(self.dashboard_provider()))
        command: list[str | Path] = [server, "server", f"--homepath={home}", f"--config={settings}"]
        return Child("grafana", command, self.directory, self.directory / "grafana.log")

    def settings(self) -> GrafanaSettings:
        home = {} if self.home_dashboard is None else {"default_home_dashboard_path": self.home_dashboard}
        return {
            **NO_EXTERNAL_CALLS,
            "paths": {
                "data": self.directory / "data",
                "logs": self.directory / "data" / "log",
                "plugins": self.directory / "data" / "plugins",
                "provisioning": self.directory / "provisioning",
            },
            "server": {"http_addr": HOST, "http_port": self.port},
            "database": {"type": "sqlite3", "wal": True},
            "security": {
                "admin_user": ADMINISTRATOR,
                "admin_password": self.password,
                "secret_key": secrets.token_urlsafe(16),
                "disable_gravatar": True,
                # The Grafana of tools/dependencies/grafana_build lacks the libraries of Angular plugins.
                "angular_support_enabled": False,
            },
            "auth.anonymous": {"enabled": not self.viewers_log_in, "org_role": "Viewer"},
            "users": {"allow_sign_up": False, "default_theme": "dark"},
            "dashboards": {"min_refresh_interval": "1s", **home},
            "log": {"mode": "console", "level": "info"},
        }

    def data_sources(self) -> dict[str, Any]:
        prometheus: dict[str, Any] = {
            "name": "Prometheus",
            "uid": PROMETHEUS_UID,
            "type": "prometheus",
            "url": self.prometheus,
            "isDefault": True,
            "jsonData": {"httpMethod": "POST", "timeInterval": f"{self.scrape_seconds}s"},
        }
        alertmanager: dict[str, Any] = {
            "name": "Alertmanager",
            "uid": ALERTMANAGER_UID,
            "type": "alertmanager",
            "url": self.alertmanager,
            "jsonData": {"implementation": "prometheus"},
        }
        wanted = [prometheus] if self.alertmanager is None else [prometheus, alertmanager]
        return {
            "apiVersion": 1,
            "datasources": [{**source, "access": "proxy", "editable": False} for source in wanted],
        }

    def dashboard_provider(self) -> dict[str, Any]:
        provider = {
            "name": "gputally",
            "type": "file",
            "allowUiUpdates": False,
            "disableDeletion": True,
            "updateIntervalSeconds": 10,
            "options": {"path": str(self.dashboards), "foldersFromFilesStructure": True},
        }
        return {"apiVersion": 1, "providers": [provider]}

    def is_ready(self) -> bool:
        """Whether it responds and has all dashboards, which it reads after its first responses."""
        wanted = len(list(self.dashboards.rglob("*.json")))
        try:
            return len(self.api("/api/search?type=dash-db&limit=5000")) >= wanted
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def api(self, path: str) -> Any:
        """A response of its API to the administrator."""
        credentials = base64.b64encode(f"{ADMINISTRATOR}:{self.password}".encode()).decode()
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Basic {credentials}"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def _has_failed_on_its_database(child: Child) -> bool:
    """Whether Grafana 10 failed on a row of its new database that it had just written: a known race."""
    ended = child.process is not None and child.process.poll() is not None
    return ended and _DATABASE_ERROR in child.log.read_bytes()


def installation(program: Path) -> tuple[Path, Path]:
    """The home path of a Grafana and its server: packages put only launchers on PATH. Raises Failed."""
    prefix = program.resolve().parents[1]
    for home in (prefix, prefix / "share" / "grafana", Path("/usr/share/grafana")):
        if (home / "conf" / "defaults.ini").exists():
            inside = home / "bin" / "grafana"
            return home, inside if inside.exists() else program
    raise Failed(f"{program} has no conf/defaults.ini in its directory; allowed: a Grafana with its files")


def ini(settings: GrafanaSettings) -> str:
    """Grafana's settings file, where booleans are lower case."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        for name, value in values.items():
            lines.append(f"{name} = {str(value).lower() if isinstance(value, bool) else value}")
    return "\n".join([*lines, ""])
