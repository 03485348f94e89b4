"""The location of the runbooks."""

from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "runbooks"
BASE_URL = "https://github.com/gputally/gputally/blob/main/docs/runbooks"
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "False positives", "Silence")


def runbook_url(alert: str, base_url: str = BASE_URL) -> str:
    """Returns the URL of an alert's runbook; in the chart, `base_url` is a reference to a Helm value."""
    return f"{base_url}/{alert}.md"
