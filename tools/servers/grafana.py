"""A Grafana for tests and the demo: on this machine alone, set up from files, and calling nobody."""

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
# Newer Grafanas call home in more ways than older ones know; they ignore what they do not know.
CALLS_NOBODY = {
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
Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Grafana:
    """Everything that is decided before it starts."""

    program: Path
    folder: Path
    """Its own: settings, database and log go there."""
    port: int
    prometheus: str
    """Address of the data source, whose uid is PROMETHEUS_UID."""
    dashboards: Path
    """A folder of dashboards (JSON); folders in it become folders in Grafana. Changes show in seconds."""
    alertmanager: str | None = None
    scrape_seconds: int = 15
    """How often Prometheus scrapes: no panel asks for finer steps."""
    home_dashboard: Path | None = None
    viewers_log_in: bool = True
    """False shows the dashboards to anybody on this machine; changing anything takes the password."""
    password: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, children: Children, seconds: float = 90) -> Child:
        """Start it and wait until it is ready. Raises Failed."""
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
                shutil.rmtree(self.folder / "data")
                children.start(child)

        wait_until(self.is_ready, f"Grafana is ready; its log: {child.log}", seconds, check=check)
        return child

    def prepare(self) -> Child:
        """Write its files, and return what to start."""
        home, server = installation(self.program)
        settings = self.folder / "grafana.ini"
        provisioning = self.folder / "provisioning"
        for name in ("dashboards", "datasources", "plugins", "notifiers", "alerting"):
            (provisioning / name).mkdir(parents=True)
        # The password is in there.
        settings.touch(mode=0o600)
        settings.write_text(ini(self.settings()))
        # JSON is YAML, too.
        (provisioning / "datasources" / "gputally.yaml").write_text(json.dumps(self.data_sources()))
        (provisioning / "dashboards" / "gputally.yaml").write_text(json.dumps(self.dashboard_provider()))
        command: list[str | Path] = [server, "server", f"--homepath={home}", f"--config={settings}"]
        return Child("grafana", command, self.folder, self.folder / "grafana.log")

    def settings(self) -> Settings:
        home = {} if self.home_dashboard is None else {"default_home_dashboard_path": self.home_dashboard}
        return {
            **CALLS_NOBODY,
            "paths": {
                "data": self.folder / "data",
                "logs": self.folder / "data" / "log",
                "plugins": self.folder / "data" / "plugins",
                "provisioning": self.folder / "provisioning",
            },
            "server": {"http_addr": HOST, "http_port": self.port},
            "database": {"type": "sqlite3", "wal": True},
            "security": {
                "admin_user": ADMINISTRATOR,
                "admin_password": self.password,
                "secret_key": secrets.token_urlsafe(16),
                "disable_gravatar": True,
                # The libraries of these old plugins are not in the Grafana of tools/grafana_build.
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
        """Whether it answers and has all the dashboards, which it reads after its first answers."""
        wanted = len(list(self.dashboards.rglob("*.json")))
        try:
            return len(self.api("/api/search?type=dash-db&limit=5000")) >= wanted
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def api(self, path: str) -> Any:
        """What its API says, as the administrator."""
        credentials = base64.b64encode(f"{ADMINISTRATOR}:{self.password}".encode()).decode()
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Basic {credentials}"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def _has_failed_on_its_database(child: Child) -> bool:
    """Now and then Grafana 10 finds in its new database what it has just put there, and gives up."""
    ended = child.process is not None and child.process.poll() is not None
    return ended and _DATABASE_ERROR in child.log.read_bytes()


def installation(program: Path) -> tuple[Path, Path]:
    """The home path of a Grafana and the server in it: packages put mere launchers on PATH. Raises Failed."""
    prefix = program.resolve().parents[1]
    for home in (prefix, prefix / "share" / "grafana", Path("/usr/share/grafana")):
        if (home / "conf" / "defaults.ini").exists():
            inside = home / "bin" / "grafana"
            return home, inside if inside.exists() else program
    raise Failed(f"{program} is a Grafana without its files: there is no conf/defaults.ini near it")


def ini(settings: Settings) -> str:
    """Grafana's settings file; booleans are lower case there."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        for name, value in values.items():
            lines.append(f"{name} = {str(value).lower() if isinstance(value, bool) else value}")
    return "\n".join([*lines, ""])
