"""The file that maps namespaces and pod labels to teams.

```yaml
teams:
  vision:
    namespaces: [vision, "vision-*"]
  nlp:
    podLabels: {team: nlp}
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gputally.metrics.families import label_name

NO_TEAM = "(no team)"
_KEYS = {"namespaces", "podLabels"}


class TeamsError(ValueError):
    """The file cannot be used; the text says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    namespaces: Sequence[str] = ()
    """Exact names, or patterns with * and ?."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    """Label of gputally_pod_info -> value. All of them match."""


@dataclass(frozen=True, slots=True)
class Teams:
    """In the order of the file: the first that matches has the pod."""

    teams: Sequence[Team]

    @property
    def labels(self) -> Sequence[str]:
        """The labels of pods that decide."""
        return sorted({label for team in self.teams for label in team.pod_labels})

    def team_of(self, namespace: str, pod_labels: Mapping[str, str]) -> str:
        """By labels of the pod, else by its namespace; empty if no team matches."""
        for team in self.teams:
            wanted = team.pod_labels
            if wanted and all(pod_labels.get(label) == value for label, value in wanted.items()):
                return team.name
        for team in self.teams:
            if any(fnmatchcase(namespace, pattern) for pattern in team.namespaces):
                return team.name
        return ""


def read_teams(path: Path) -> Teams:
    """Raises TeamsError."""
    import yaml  # noqa: PLC0415  # only for this file

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise TeamsError(f"--teams {path} cannot be read: {reason}") from None
    teams = content.get("teams") if isinstance(content, dict) else None
    if not isinstance(teams, dict) or not teams:
        raise TeamsError(f"--teams {path}: it takes the key `teams` with the names of teams")
    return Teams([_team(path, name, rules) for name, rules in teams.items()])


def _team(path: Path, name: Any, rules: Any) -> Team:
    where = f"--teams {path}: team {name}"
    if not isinstance(rules, dict) or not rules or not rules.keys() <= _KEYS:
        raise TeamsError(f"{where}: it takes the keys {' and '.join(sorted(_KEYS))}")
    namespaces = rules.get("namespaces") or []
    labels = rules.get("podLabels") or {}
    if not isinstance(namespaces, list) or not all(isinstance(one, str) and one for one in namespaces):
        raise TeamsError(f"{where}: namespaces takes a list of names, in which * and ? match any characters")
    if not isinstance(labels, dict) or not all(isinstance(one, str) for one in [*labels, *labels.values()]):
        raise TeamsError(f"{where}: podLabels takes labels and their values, in quotes if they are numbers")
    return Team(str(name), tuple(namespaces), {label_name(label): value for label, value in labels.items()})
