"""The demo's past goes on in its present: an alert that fired before it began fires at once."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.demo import read_until, running_demo

LOST = """
gpus = 2

[[workload]]
shape = "training"
pod = "nlp/train"

[[fault]]
kind = "lost"
gpus = [1]
start = "5m"
"""


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def query(url: str, query: str) -> float:
    result = ask(f"{url}/api/v1/query?query={query}")["data"]["result"]
    return float(result[0]["value"][1])


def test_an_alert_of_the_history_fires_in_prometheus_and_reaches_alertmanager(tmp_path: Path) -> None:
    scenario = tmp_path / "lost.toml"
    scenario.write_text(LOST)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with running_demo(f"--scenario={scenario}", "--history=20m", scratch=scratch) as process:
        said = read_until(process, "alert fires: critical: GPUTallyGpuLost")
        prometheus, alertmanager = (
            found[1] for found in re.finditer(r"(?:Prometheus|Alertmanager) +(http://[\d.:]+)", said)
        )
        (alert,) = ask(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
        assert alert["labels"]["node"] == "simulated"
        # It waited in the past, and not once more.
        assert query(prometheus, 'count_over_time(ALERTS_FOR_STATE{alertname="GPUTallyGpuLost"}[15m])') > 10
        assert query(prometheus, "max(count_over_time(cluster:gputally_power:watts[20m]))") > 15
        known = ask(f"{alertmanager}/api/v2/alerts")
        assert {each["labels"]["alertname"] for each in known} == {"GPUTallyGpuLost"}
        process.terminate()
        assert "nothing is left running" in process.communicate()[0]
