"""The HTML bill: one file that loads nothing, and in which foreign names are text."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from gputally.commands.bill.amounts import Amounts
from gputally.commands.bill.formats.html import write_html
from gputally.commands.bill.model import Kind, Row
from tests.support.bills import example_bill

VOID = {"meta", "rect", "br"}


class Page(HTMLParser):
    """The elements of a page, which are all closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = write_html(example_bill(), None)
    page = Page(text)
    assert not page.names & {"script", "link", "img", "iframe", "object", "embed", "form", "a", "b>"}
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href")}
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_a_name_is_text_whatever_it_is() -> None:
    evil = "\"><script>alert(1)</script><!-- --> ' \u202e"
    rows = [Row(evil, kind, Amounts(gpu_cost_nano=10**12)) for kind in Kind]
    bill = replace(example_bill(), rows=rows, cluster=evil, source=evil)
    assert "<script" not in write_html(bill, None)
    assert Page(write_html(bill, None)).names == Page(write_html(example_bill(), None)).names


def test_dark_and_print_have_colours_of_their_own() -> None:
    text = write_html(example_bill(), None)
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text


def test_the_bars_have_the_lengths_of_the_costs() -> None:
    text = write_html(example_bill(), None)
    widths = [float(width) for width in re.findall(r'class="gpu" x="[\d.]+" y="\d+" width="([\d.]+)"', text)]
    assert widths[0] / widths[1] == 1339.21 / 669.61 or abs(widths[0] / widths[1] - 2) < 0.01


def test_without_prices_the_bars_are_energy() -> None:
    rows = [replace(row, amounts=Amounts(energy_millijoules={"held": 10**9})) for row in example_bill().rows]
    text = write_html(replace(example_bill(), rows=rows), None)
    assert "<h2>Energy in kWh</h2>" in text


def test_a_bill_without_rows_has_no_chart() -> None:
    assert "<figure>" not in write_html(replace(example_bill(), rows=[]), None)
