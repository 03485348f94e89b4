"""What a Prometheus knows, and what stands between its series and the exporters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputally.commands.verify.asking import NotAnswered, Server


@dataclass(frozen=True, slots=True)
class Row:
    labels: Mapping[str, str]
    value: float

    @property
    def node(self) -> str:
        """The machine, as the scrape names it."""
        return self.labels.get("node") or self.labels.get("instance") or "?"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """All methods raise NotAnswered."""

    server: Server
    job: str
    cluster: str = ""

    @property
    def ours(self) -> str:
        """The matchers of series that the exporters gave."""
        return f'job="{self.job}"' + self._of_cluster

    @property
    def recorded(self) -> str:
        """The matchers of series that our rules gave."""
        return '__name__=~".+:gputally_.+"' + self._of_cluster

    @property
    def _of_cluster(self) -> str:
        return f',cluster="{self.cluster}"' if self.cluster else ""

    def rows(self, query: str) -> list[Row]:
        found = self._data("/api/v1/query", query=query)["result"]
        return [Row(one["metric"], float(one["value"][1])) for one in found]

    def number(self, query: str) -> float | None:
        """The value of a query that gives one sample; None when it gives none."""
        found = self.rows(query)
        return found[0].value if found else None

    def count(self, query: str) -> int:
        return round(self.number(f"count({query})") or 0)

    def rule_groups(self) -> list[dict[str, Any]]:
        """Ours, by their names."""
        groups = self._data("/api/v1/rules")["groups"]
        return [group for group in groups if group["name"].startswith("gputally")]

    def alertmanagers(self) -> list[str]:
        """Addresses of those that get its alerts."""
        return [one["url"] for one in self._data("/api/v1/alertmanagers")["activeAlertmanagers"]]

    def scrape_errors(self) -> dict[str, str]:
        """Node -> why it could not be scraped. Empty where that cannot be told (Thanos, Mimir)."""
        try:
            targets = self._data("/api/v1/targets", state="active")["activeTargets"]
        except NotAnswered:
            return {}
        return {
            Row(target["labels"], 0).node: target["lastError"]
            for target in targets
            if target["labels"].get("job") == self.job and target.get("lastError")
        }

    def _data(self, path: str, **query: str) -> Any:
        answer = self.server.get_json(path, **query)
        try:
            return answer["data"]
        except (KeyError, TypeError):
            raise NotAnswered("the answer is not Prometheus's: is something else behind this?") from None
