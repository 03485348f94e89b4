"""compose.yaml: valid, with images by version, and with settings that Prometheus and Alertmanager accept.

The containers themselves are not started: that needs an engine, and access to images.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tools import ROOT
from tools.dependencies import programs

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def mounts(service: str) -> dict[str, Path]:
    """Path in the container -> path here."""
    found = (volume.split(":") for volume in SERVICES[service].get("volumes", ()))
    return {inside: ROOT / outside for outside, inside, _ in found}


def checked(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_valid_by_the_specification() -> None:
    schema = json.loads(programs.path("compose-spec").read_text())
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"one": {"portz": []}}}, schema)


def test_images_have_a_version_and_a_registry() -> None:
    foreign = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(foreign) == 3
    assert all(re.fullmatch(r"docker\.io/[\w/]+:v?\d+\.\d+\.\d+", image) for image in foreign)


def test_every_mounted_file_exists_and_is_mounted_read_only() -> None:
    for name, service in SERVICES.items():
        assert all(volume.endswith(":ro") for volume in service.get("volumes", ()))
        assert all(path.exists() for path in mounts(name).values())


def test_only_this_machine_reaches_the_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_prometheus_accepts_its_settings_and_all_rules(tmp_path: Path) -> None:
    for inside, outside in mounts("prometheus").items():
        shutil.copy(outside, tmp_path / Path(inside).name)
    config = tmp_path / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus/", f"{tmp_path}/"))
    found = checked(programs.path("promtool"), "check", "config", config)
    rules = re.search(r"SUCCESS: (\d+) rules found", found)
    assert rules
    assert int(rules[1]) > 100


def test_alertmanager_accepts_its_settings() -> None:
    (file,) = mounts("alertmanager").values()
    assert "SUCCESS" in checked(programs.path("amtool"), "check-config", file)


def test_services_are_found_under_the_names_in_the_settings() -> None:
    prometheus = yaml.safe_load(mounts("prometheus")["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = prometheus["scrape_configs"]
    hosts = [target for config in job["static_configs"] for target in config["targets"]]
    hosts += prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    provisioning = mounts("grafana")["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/gputally.yml").read_text())["datasources"]
    hosts.append(source["url"].removeprefix("http://"))
    for host in hosts:
        service, port = host.split(":")
        assert SERVICES[service]["ports"][0].split(":")[2] == port


def test_grafana_finds_every_dashboard() -> None:
    provisioning, dashboards = mounts("grafana").items()
    provider = yaml.safe_load((provisioning[1] / "dashboards/gputally.yml").read_text())["providers"][0]
    assert provider["options"]["path"] == dashboards[0]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards[1] / Path(home).relative_to(dashboards[0])).exists()


def test_the_simulated_nodes_start_with_their_flags() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            metrics = checked(sys.executable, "-m", "gputally", *service["command"], "--once")
            assert f'hostname="{name}"' in metrics
