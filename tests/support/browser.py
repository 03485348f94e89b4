"""Dashboards in a real, headless browser."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dashboards.reading import column_names, panel_name, panels, variables
from tools import ROOT
from tools.dependencies import programs

Json = dict[str, Any]
Seen = dict[tuple[str, int], Json]

_DRIVER = Path(__file__).with_name("browser.js")
_PICTURES = "GPUTALLY_SCREENSHOTS"
_DEFAULT_PICTURES = ROOT / "build/screenshots"
_SECONDS_FOR_A_PAGE = 180
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <cachedir>{cache}</cachedir>
  <match target="pattern">
    <edit name="hinting" mode="assign"><bool>false</bool></edit>
    <edit name="hintstyle" mode="assign"><const>hintnone</const></edit>
  </match>
</fontconfig>
"""
"""The same fonts and widths of letters on every machine: hinting would round them to whole pixels."""


@dataclass(frozen=True, slots=True)
class Page:
    """One dashboard to open."""

    name: str
    widths: Sequence[int]
    query: str
    """Parameters of its URL: times and variables."""
    picture: str
    """Name of the file, without the width."""
    follow: bool = False
    """Whether to follow a link of a panel as well."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str


def look(directory: Path, grafana: str, pages: Sequence[Page], user: User | None = None) -> Seen:
    """The content of each page, by the name of the dashboard and the width.

    With $GPUTALLY_SCREENSHOTS there is a screenshot of each page in that directory; without, in
    build/screenshots of this repository, of each page with an error, an empty panel or a text cut off.
    """
    directory_of_pictures = pictures()
    task = {
        "grafana": grafana,
        "user": asdict(user) if user else None,
        "pictures": _PICTURES in os.environ,
        "pages": [{**asdict(page), "picture": str(directory_of_pictures / page.picture)} for page in pages],
    }
    return {(page["name"], page["width"]): page for page in drive(directory, _DRIVER, task)}


def pictures() -> Path:
    """The directory of screenshots."""
    directory = Path(os.environ.get(_PICTURES) or _DEFAULT_PICTURES)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def drive(directory: Path, driver: Path, task: Json) -> list[Json]:
    """What a script that drives the browser prints, one line of JSON after another."""
    written, fonts = directory / "task.json", directory / "fonts.conf"
    browser = {
        "playwright": str(programs.path("playwright-core")),
        "chromium": str(programs.path("chromium")),
        "seconds": _SECONDS_FOR_A_PAGE,
    }
    written.write_text(json.dumps({**browser, **task}))
    fonts.write_text(_FONTS.format(fonts=programs.path("dejavu-fonts"), cache=directory / "fonts"))
    command: list[str | Path] = [programs.path("node"), driver, written]
    environment = {**os.environ, "FONTCONFIG_FILE": str(fonts)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def errors(page: Json) -> list[str]:
    """All errors, as the page shows them."""
    if "failed" in page:
        return [page["failed"], *page["said"]]
    shown = page["panels"]
    failures = [f"{panel['title']} fails" for panel in shown if panel["hasFailed"]]
    complaints = [f"{panel['title']} complains" for panel in shown if panel["hasComplaint"]]
    return [*failures, *complaints, *page["alerts"], *page["said"]]


def missing(page: Json, dashboard: Json) -> list[str]:
    """Panels of the dashboard that the page lacks."""
    shown = {panel["id"] for panel in page["panels"] if not panel["isRow"]}
    return [panel_name(panel) for panel in panels(dashboard) if panel["id"] not in shown]


def blank(page: Json) -> list[str]:
    """Panels without any content, not even "No data"."""
    return [panel["title"] for panel in page["panels"] if panel["isBlank"]]


def strays(page: Json, dashboard: Json) -> set[tuple[str, str]]:
    """Table headings, with their panels, that the dashboard does not define: raw names of Prometheus."""
    named = {panel["id"]: set(column_names(panel).values()) for panel in panels(dashboard)}
    return {
        (panel["title"], heading)
        for panel in page["panels"]
        for heading in panel["headings"]
        if heading not in named[panel["id"]]
    }


def empty(page: Json, dashboard: Json) -> set[str]:
    """Panels that show "No data"."""
    titles = {panel["id"]: panel_name(panel) for panel in panels(dashboard)}
    return {titles[panel["id"]] for panel in page["panels"] if panel["isEmpty"]}


def unfilled(page: Json, dashboard: Json) -> list[str]:
    """Variables without a value, or with no choice except All."""
    shown: list[str] = page["variables"]
    names = list(variables(dashboard))
    if len(shown) != len(names):
        return [f"{names} are shown as {shown}"]
    unchosen = {name for name, value in zip(names, shown, strict=True) if value in ("", "None")}
    # Choices are read once, on pages that were opened and not on pages reached by a link.
    offered: list[list[str]] = page.get("offered", [])
    unoffered = {name for name, values in zip(names, offered, strict=False) if set(values) <= {"All", "None"}}
    return sorted(unchosen | unoffered)
