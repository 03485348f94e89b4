"""The tables of docs/migrate.md are the profiles' and aliases' own, and each has its place on the page."""

from collections.abc import Sequence

import pytest

from gputally.flags import Alias
from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat import PROFILES, Row, load_rows
from tools.rendering import migrate_page

POWER = Row("OLD_POWER", Kind.GAUGE, "Watts | all of them.", "gputally_gpu_power_watts")
ODD = Row("OLD_ODD", Kind.COUNTER, "Nothing of ours.", "")
PAGE = """\
before
<!-- rows old -->
stale
<!-- /rows old -->
between
<!-- rows odd -->
<!-- /rows odd -->
<!-- flags -->
<!-- /flags -->
after
"""
ALIASES = (
    Alias("shop", "port", ("-p", "--door"), "DOOR"),
    Alias("Bakery", "interval_seconds", env="BREAK", note="in milliseconds"),
)


def rows(profile: str) -> Sequence[Row]:
    return {"old": (POWER, ODD), "odd": (ODD,)}[profile]


def stamped(page: str) -> str:
    return migrate_page.stamp(page, ("old", "odd"), rows, ALIASES)


def test_each_profile_has_its_table_between_its_markers() -> None:
    page = stamped(PAGE)
    old, odd = page.split("between\n")
    assert "| `OLD_POWER` | gauge | Watts \\| all of them. | `gputally_gpu_power_watts` |" in old
    assert "| `OLD_ODD` | counter | Nothing of ours. | none |" in old
    assert "stale" not in old
    assert "OLD_POWER" not in odd
    assert "| `OLD_ODD` |" in odd
    assert page.startswith("before\n<!-- rows old -->\n")
    assert page.endswith("<!-- /flags -->\nafter\n")


def test_every_alias_is_beside_our_flag_in_the_order_of_the_tools() -> None:
    table = stamped(PAGE).split("<!-- flags -->")[1].splitlines()
    assert table[4:6] == [
        "| Bakery | `BREAK`, in milliseconds | `--interval` |",
        "| shop | `-p`, `--door`, `DOOR` | `--port` |",
    ]


def test_an_up_to_date_page_is_unchanged() -> None:
    page = stamped(PAGE)
    assert stamped(page) == page


@pytest.mark.parametrize("mark", ["rows old", "rows odd", "flags"])
def test_a_page_without_exactly_one_marker_is_an_error(mark: str) -> None:
    with pytest.raises(SystemExit, match=f"has 0 .*<!-- {mark} -->"):
        stamped(PAGE.replace(f"<!-- {mark} -->\n", ""))
    with pytest.raises(SystemExit, match=f"has 2 .*<!-- {mark} -->"):
        stamped(f"{PAGE}<!-- {mark} -->\n<!-- /{mark} -->\n")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_equivalent_metrics_of_a_profile_are_in_the_catalogue(profile: str) -> None:
    ours = {row.ours for row in load_rows(profile)} - {""}
    assert ours <= {metric.name for metric in CATALOG}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_names_of_a_profile_are_unique(profile: str) -> None:
    names = [row.name for row in load_rows(profile)]
    assert len(names) == len(set(names)) > 0
