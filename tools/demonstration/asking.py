"""Asks the servers of the demo how far they are."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any


class Prometheus:
    """Over its API; `url` is as in http://127.0.0.1:9090. While it does not answer, it knows of nothing."""

    def __init__(self, url: str) -> None:
        self.url = url

    def number(self, query: str) -> float | None:
        """The value of a query that gives one sample; None while it gives none."""
        result = self._ask(f"query?{urllib.parse.urlencode({'query': query})}").get("result")
        return float(result[0]["value"][1]) if result else None

    def targets_up(self) -> int:
        """How many of them have been scraped: unlike `up`, this knows no past."""
        return sum(target["health"] == "up" for target in self._ask("targets").get("activeTargets", ()))

    def firing(self) -> set[str]:
        """The alerts that fire, and where: a line for each."""
        alerts = self._ask("alerts").get("alerts", ())
        return {alert_line(alert["labels"]) for alert in alerts if alert["state"] == "firing"}

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=5) as response:
                answer: dict[str, Any] = json.load(response)["data"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}
        return answer


def alert_line(labels: Mapping[str, str]) -> str:
    gpu = f"GPU {labels['gpu']}" if labels.get("gpu") else ""
    pod = "/".join(labels[name] for name in ("namespace", "pod") if labels.get(name))
    where = ", ".join(filter(None, (labels.get("node"), gpu, pod)))
    return f"{labels['severity']}: {labels['alertname']}: {where}"


def answers(address: str) -> bool:
    """Whether a server says 200 to this."""
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
