"""One bill in every format, and sealed.

`tools/test golden --update-golden` rewrites the files; read the diff before you commit it.
"""

import pytest

from gputally.commands.bill.formats import FORMATS
from gputally.commands.bill.seal import Chain, close, verify
from tests.golden.scrapes import GOLDEN
from tests.support.bills import example_bill

_SUFFIXES = {"table": "txt", "focus": "focus.csv"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_bill(name: str, update_golden: bool) -> None:
    compare(f"bill.{_SUFFIXES.get(name, name)}", FORMATS[name](example_bill(), None), update_golden)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "table"])
def test_a_sealed_bill(name: str, update_golden: bool) -> None:
    text = close(FORMATS[name](example_bill(), Chain("previous-sha256-" + "1f" * 32)))
    assert (verify(text).changed, verify(text).previous) == ((), "1f" * 32)
    compare(f"bill-sealed.{_SUFFIXES.get(name, name)}", text, update_golden)


def compare(name: str, text: str, update_golden: bool) -> None:
    file = GOLDEN / name
    if update_golden:
        file.write_text(text)
    assert text == file.read_text()
