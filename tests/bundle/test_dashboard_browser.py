"""Every dashboard in a real Grafana and a real browser, on a wide screen and on a narrow one.

Screenshots of pages with faults are in build/screenshots afterwards, with $GPUTALLY_SCREENSHOTS those of all
pages in that directory.
"""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from dashboards import Json, registry
from dashboards.build import dashboard, row, text_of
from dashboards.panels import heatmap, now, over_time, rows, stat, text, timeseries
from dashboards.tables import column, table
from dashboards.variables import Variable
from tests.bundle.lab.choices import SHOWN, SHOWN_EMPTY, default_range_seconds
from tests.bundle.lab.data import END, STEP
from tests.support.browser import Page, Seen, blank, empty, errors, look, missing, strays, unfilled
from tools.dependencies import programs
from tools.servers.children import Children
from tools.servers.grafana import Grafana
from tools.servers.ports import free_port
from tools.servers.prometheus import Prometheus

# All pages are opened before the first test; that takes two minutes, on a busy machine more.
pytestmark = pytest.mark.timeout(1500)

WIDTHS = (1920, 1280)
KNOWN_MESSAGES = (
    "logger=local.finder",  # searches for plugins, and there are none
    "logger=migrator",  # of its own database
    "logger=modules",
    "logger=settings",  # a default that Grafana itself calls deprecated
    "parse error: unclosed left parenthesis",  # the broken one
)
DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in registry.texts().items()}
PAGES = [(name, width) for width in WIDTHS for name in DASHBOARDS]
BROKEN = dashboard(
    "broken",
    "Broken",
    "All faults that the tests look for.",
    row(
        "",
        timeseries("Wrong query", "d", over_time("sum("), unit="watt"),
        timeseries("Nothing there", "d", over_time("vector(1) > 2"), unit="watt"),
        heatmap("Not drawn", "d", over_time("vector(1) > 2"), unit="percentunit", counted=True),
        stat(
            "A title that is far too long for a panel of this size",
            "d",
            now("vector(1)"),
            unit="watt",
            width=2,
        ),
        table(
            "More than fits", "d", rows("gputally_gpu_info"), columns=[column("uuid", width=1500)], width=12
        ),
        table(
            "A heading",
            "d",
            rows("gputally_gpu_info"),
            columns=[column("uuid", name="Far too long", width=50)],
            width=24,
        ),
        text(""),
    ),
    row("Collapsed", stat("Found all the same", "d", now("vector(1)"), unit="watt"), collapsed=True),
    variables=(
        Variable("cluster", "Cluster", "there_is_no_such_metric", multi=False),
        Variable("node", "Node", "there_is_no_such_metric"),
    ),
)
"""Proves that the tests find each kind of fault."""
BROKEN_PAGE = ("broken", WIDTHS[-1])


@pytest.fixture(scope="module")
def grafana(lab: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grafana]:
    folder, files = tmp_path_factory.mktemp("grafana"), tmp_path_factory.mktemp("dashboards")
    for name, written in (*registry.texts().items(), ("broken", text_of(BROKEN))):
        (files / f"{name}.json").write_text(written)
    made = Grafana(
        program=programs.path("grafana"),
        directory=folder,
        port=free_port(),
        prometheus=lab.url,
        dashboards=files,
        # Half a step: Grafana draws an alert as one span only if its points are a minute apart at most.
        scrape_seconds=STEP // 2,
        viewers_log_in=False,
    )
    with Children() as children:
        made.start(children, seconds=180)
        yield made


@pytest.fixture(scope="module")
def seen(grafana: Grafana, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The contents of each page, by dashboard and width."""
    pages = [Page(name, WIDTHS, query(name), picture=name) for name in DASHBOARDS]
    pages.insert(0, Page("broken", WIDTHS[-1:], query("broken"), picture="broken"))
    return look(tmp_path_factory.mktemp("pictures"), grafana.url, pages)


def query(name: str) -> str:
    """The time range of the data, and values for variables without All."""
    seconds = default_range_seconds(DASHBOARDS[name]) if name in DASHBOARDS else 3600
    times = {"from": (END - seconds) * 1000, "to": END * 1000}
    return urlencode({**times, **{f"var-{each}": value for each, value in SHOWN.get(name, {}).items()}})


@pytest.mark.parametrize(("name", "width"), PAGES)
def test_a_page_shows_every_panel_without_an_error(name: str, width: int, seen: Seen) -> None:
    page = seen[name, width]
    assert errors(page) == []
    assert missing(page, DASHBOARDS[name]) == []
    assert blank(page) == []


@pytest.mark.parametrize(("name", "width"), PAGES)
def test_every_panel_shows_data(name: str, width: int, seen: Seen) -> None:
    known = {panel for dashboard, panel in SHOWN_EMPTY if dashboard == name}
    assert empty(seen[name, width], DASHBOARDS[name]) == known


@pytest.mark.parametrize(("name", "width"), PAGES)
def test_every_variable_has_a_value(name: str, width: int, seen: Seen) -> None:
    assert unfilled(seen[name, width], DASHBOARDS[name]) == []


@pytest.mark.parametrize(("name", "width"), PAGES)
def test_every_column_has_a_name(name: str, width: int, seen: Seen) -> None:
    assert strays(seen[name, width], DASHBOARDS[name]) == set()


@pytest.mark.parametrize(("name", "width"), PAGES)
def test_no_title_and_no_column_is_cut_off(name: str, width: int, seen: Seen) -> None:
    shown = seen[name, width]["panels"]
    assert {(panel["title"], text) for panel in shown for text in panel["cut"]} == set()
    assert [panel["title"] for panel in shown if panel["isTooWide"]] == []


def test_faults_are_found(seen: Seen) -> None:
    page = seen[BROKEN_PAGE]
    shown = {panel["title"]: panel for panel in page["panels"]}
    assert shown["Wrong query"]["hasComplaint"]
    assert shown["Nothing there"]["isEmpty"]
    assert shown["Not drawn"]["hasFailed"]
    assert blank(page) == [""]
    assert ("A heading", "__name__") in strays(page, json.loads(text_of(BROKEN)))
    assert shown["More than fits"]["isTooWide"]
    assert "Far too long" in shown["A heading"]["cut"]
    assert any("far too long for a panel" in text for panel in page["panels"] for text in panel["cut"])
    assert not shown["Found all the same"]["hasComplaint"]
    assert page["variables"] == ["Prometheus", "None", "All"]
    assert unfilled(page, json.loads(text_of(BROKEN))) == ["cluster", "node"]
    assert page["said"] != []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_stores_a_dashboard_unchanged(name: str, grafana: Grafana) -> None:
    kept = grafana.api(f"/api/dashboards/uid/{DASHBOARDS[name]['uid']}")["dashboard"]
    assert {**kept, "version": 1, "id": None} == {**DASHBOARDS[name], "id": None}


def test_grafana_logs_no_migration_and_no_problem(seen: Seen, grafana: Grafana) -> None:
    log = (grafana.directory / "grafana.log").read_text().splitlines()
    bad = [line for line in log if "level=warn" in line or "level=error" in line]
    assert [line for line in bad if not any(known in line for known in KNOWN_MESSAGES)] == []
