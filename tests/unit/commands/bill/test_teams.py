"""The file of teams: which pod is whose, and what is refused."""

from pathlib import Path

import pytest

from gputally.commands.bill.teams import TeamsError, read_teams

FILE = """
teams:
  vision:
    namespaces: [vision, "vision-*"]
  nlp:
    namespaces: ["*-nlp"]
    podLabels: {app.kubernetes.io/team: nlp, tier: "1"}
  rest:
    namespaces: ["*"]
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "teams.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("namespace", "labels", "team"),
    [
        ("vision", {}, "vision"),
        ("vision-2", {}, "vision"),
        ("Vision", {}, "rest"),
        ("vision-nlp", {}, "vision"),
        ("vision", {"label_app_kubernetes_io_team": "nlp", "label_tier": "1"}, "nlp"),
        ("vision", {"label_app_kubernetes_io_team": "nlp"}, "vision"),
    ],
    ids=["exact", "pattern", "case", "the first in the file", "labels before namespaces", "all its labels"],
)
def test_the_first_team_that_matches_has_the_pod(
    namespace: str, labels: dict[str, str], team: str, tmp_path: Path
) -> None:
    assert read_teams(written(tmp_path, FILE)).team_of(namespace, labels) == team


def test_the_labels_that_decide_are_those_of_the_metric(tmp_path: Path) -> None:
    assert read_teams(written(tmp_path, FILE)).labels == ["label_app_kubernetes_io_team", "label_tier"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot be read"),
        ("{}", "it takes the key `teams`"),
        ("teams: [a]", "it takes the key `teams`"),
        ("teams: {a: {namespace: [b]}}", "team a: it takes the keys namespaces and podLabels"),
        ("teams: {a: {namespaces: b}}", "namespaces takes a list"),
        ("teams: {a: {podLabels: {tier: 1}}}", "in quotes"),
    ],
)
def test_a_wrong_file_says_what_is_allowed(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TeamsError, match=said):
        read_teams(written(tmp_path, text))
