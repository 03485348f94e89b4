"""A Grafana of our own: what it is told, and that the real one does as told."""

import configparser
import json
import re
import stat
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools import Failed
from tools.dependencies import programs
from tools.servers.children import Children
from tools.servers.grafana import ALERTMANAGER_UID, PROMETHEUS_UID, Grafana, ini, installation
from tools.servers.ports import free_port

PROMETHEUS = "http://127.0.0.1:9090"


def installed(directory: Path) -> Path:
    """What a Grafana looks like on disk; returns its program."""
    for name in ("bin/grafana", "conf/defaults.ini"):
        (directory / name).parent.mkdir(parents=True)
        (directory / name).touch()
    return directory / "bin" / "grafana"


def grafana(directory: Path, **more: Any) -> Grafana:
    own = directory / "own"
    own.mkdir()
    program = installed(directory / "home")
    return Grafana(program, own, 3000, PROMETHEUS, directory / "dashboards", **more)


def written(plan: Grafana) -> configparser.RawConfigParser:
    settings = configparser.RawConfigParser()
    settings.read(plan.directory / "grafana.ini")
    return settings


def test_grafana_listens_on_loopback_and_stores_everything_in_its_directory(tmp_path: Path) -> None:
    plan = grafana(tmp_path)
    child = plan.prepare()
    settings = written(plan)
    assert settings["server"]["http_addr"] == "127.0.0.1"
    assert settings["server"]["http_port"] == "3000"
    assert all(Path(place).is_relative_to(plan.directory) for place in settings["paths"].values())
    assert child.command == [
        *(tmp_path / "home" / "bin" / "grafana", "server"),
        *(f"--homepath={tmp_path / 'home'}", f"--config={plan.directory / 'grafana.ini'}"),
    ]


def test_grafana_connects_to_no_external_service(tmp_path: Path) -> None:
    plan = grafana(tmp_path)
    plan.prepare()
    settings = written(plan)
    assert set(settings["analytics"].values()) == {"false"}
    assert settings["news"]["news_feed_enabled"] == "false"
    assert settings["snapshots"]["external_enabled"] == "false"
    assert settings["security"]["disable_gravatar"] == "true"
    assert settings["plugins"]["plugin_admin_enabled"] == "false"
    assert settings["plugins"]["preinstall_disabled"] == "true"


def test_every_grafana_has_its_own_password_readable_by_its_owner_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = grafana(tmp_path / "one"), grafana(tmp_path / "two")
    assert one.password != two.password
    assert one.password not in repr(one)
    child = one.prepare()
    assert written(one)["security"]["admin_password"] == one.password
    assert stat.S_IMODE((one.directory / "grafana.ini").stat().st_mode) == 0o600
    assert not any(one.password in str(part) for part in child.command)


@pytest.mark.parametrize(("viewers_log_in", "anonymous"), [(True, "false"), (False, "true")])
def test_anonymous_users_can_at_most_view(tmp_path: Path, viewers_log_in: bool, anonymous: str) -> None:
    plan = grafana(tmp_path, viewers_log_in=viewers_log_in)
    plan.prepare()
    assert dict(written(plan)["auth.anonymous"]) == {"enabled": anonymous, "org_role": "Viewer"}


def test_data_sources_have_the_uids_that_dashboards_name(tmp_path: Path) -> None:
    plan = grafana(tmp_path, alertmanager="http://127.0.0.1:9093", scrape_seconds=5)
    plan.prepare()
    file = plan.directory / "provisioning" / "datasources" / "gputally.yaml"
    prometheus, alertmanager = json.loads(file.read_text())["datasources"]
    assert (prometheus["uid"], prometheus["url"]) == (PROMETHEUS_UID, PROMETHEUS)
    assert prometheus["isDefault"]
    assert prometheus["jsonData"]["timeInterval"] == "5s"
    assert (alertmanager["uid"], alertmanager["url"]) == (ALERTMANAGER_UID, "http://127.0.0.1:9093")


def test_without_an_alertmanager_there_is_no_data_source_for_one(tmp_path: Path) -> None:
    (only,) = grafana(tmp_path).data_sources()["datasources"]
    assert only["uid"] == PROMETHEUS_UID


def test_a_home_dashboard_is_set_only_if_there_is_one(tmp_path: Path) -> None:
    assert "default_home_dashboard_path" not in ini(grafana(tmp_path).settings())
    (tmp_path / "other").mkdir()
    file = tmp_path / "home.json"
    assert f"default_home_dashboard_path = {file}\n" in ini(
        grafana(tmp_path / "other", home_dashboard=file).settings()
    )


def test_a_launcher_on_path_is_resolved_to_its_installation(tmp_path: Path) -> None:
    program = installed(tmp_path / "share" / "grafana")
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin" / "grafana"
    launcher.touch()
    assert installation(launcher) == (tmp_path / "share" / "grafana", program)


def test_a_link_is_resolved_to_its_installation(tmp_path: Path) -> None:
    program = installed(tmp_path / "home")
    link = tmp_path / "grafana"
    link.symlink_to("home/bin/grafana")
    assert installation(link) == (tmp_path / "home", program)


def test_a_program_without_its_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with pytest.raises(Failed, match=re.escape("conf/defaults.ini")):
        installation(tmp_path / "bin" / "grafana")


def test_waiting_for_a_grafana_that_does_not_start_ends(tmp_path: Path) -> None:
    plan = replace(grafana(tmp_path), port=free_port())
    plan.program.write_text("#!/bin/sh\nexec sleep 60\n")
    plan.program.chmod(0o755)
    with Children() as children, pytest.raises(Failed, match=re.escape(str(plan.directory / "grafana.log"))):
        plan.start(children, seconds=0.5)


def test_waiting_for_a_grafana_that_exits_ends(tmp_path: Path) -> None:
    plan = replace(grafana(tmp_path), port=free_port())
    plan.program.write_text("#!/bin/sh\necho no database\nexit 1\n")
    plan.program.chmod(0o755)
    with Children() as children, pytest.raises(Failed, match="no database"):
        plan.start(children)


def test_a_grafana_that_fails_on_its_new_database_is_started_again(tmp_path: Path) -> None:
    plan = replace(grafana(tmp_path), port=free_port())
    plan.program.write_text(
        '#!/bin/sh\necho start >> "$0.starts"\nmkdir data\n'
        "echo failed to create default organization: UNIQUE constraint failed\nexit 1\n"
    )
    plan.program.chmod(0o755)
    with Children() as children, pytest.raises(Failed, match="failed to create default organization"):
        plan.start(children)
    assert (plan.program.parent / "grafana.starts").read_text() == "start\n" * 5


def test_the_real_grafana_shows_provisioned_dashboards_read_only_without_a_login(
    tmp_path: Path,
) -> None:
    dashboards, own = tmp_path / "dashboards", tmp_path / "own"
    for directory in (dashboards / "GPUs", own):
        directory.mkdir(parents=True)
    (dashboards / "GPUs" / "one.json").write_text(json.dumps({"uid": "one", "title": "One", "panels": []}))
    plan = Grafana(
        programs.path("grafana"),
        own,
        free_port(),
        PROMETHEUS,
        dashboards,
        alertmanager="http://127.0.0.1:9093",
        viewers_log_in=False,
    )
    with Children() as children:
        plan.start(children)
        assert plan.api("/api/dashboards/uid/one")["meta"]["folderTitle"] == "GPUs"
        uids = {source["uid"] for source in plan.api("/api/datasources")}
        assert uids == {PROMETHEUS_UID, ALERTMANAGER_UID}
        with urllib.request.urlopen(f"{plan.url}/d/one", timeout=10) as page:
            assert b"public/build/app." in page.read()
        change = urllib.request.Request(
            f"{plan.url}/api/dashboards/db",
            data=json.dumps({"dashboard": {"title": "Two"}}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(change, timeout=10)
