"""docs/alerts.md: every alert with its runbook, every setting with its default."""

import pytest

from alerts.groups import ALERTS
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel
from tools.rendering import alerts_page
from tools.rendering.markdown import put, table


def test_every_alert_is_listed_with_its_runbook() -> None:
    page = alerts_page.alerts_tables()
    for alert in ALERTS:
        assert f"[{alert.name}](runbooks/{alert.name}.md) | {alert.severity} | {alert.for_}" in page


def test_every_setting_is_listed_with_its_default() -> None:
    page = alerts_page.settings_table()
    for name in (*(setting.name for setting in SETTINGS), *(rows.name for rows in TABLES)):
        assert f"| `{camel(name)}` |" in page
    assert "(48" not in page, "codes are written as in PromQL"


def test_a_table_escapes_cell_separators() -> None:
    assert table(("a",), [("48|79",)]).splitlines()[-1] == r"| 48\|79 |"


def test_a_page_without_the_marker_is_named() -> None:
    with pytest.raises(SystemExit, match=r"docs/x\.md has 0 .*<!-- rows -->"):
        put("fresh", "rows", "docs/x.md", "no marks")
