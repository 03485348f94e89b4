"""Where the runbook of an alert is."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "runbooks"
BASE_URL = "https://github.com/gputally/gputally/blob/main/docs/runbooks"
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "False positives")


def runbook_url(alert: str, base_url: str = BASE_URL) -> str:
    """The one place that makes this address; in the chart, `base_url` is a reference to a value."""
    return f"{base_url}/{alert}.md"
