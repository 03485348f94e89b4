"""The formats of a bill: each is a function from a bill to the text of its file."""

from collections.abc import Callable, Mapping

from gputally.commands.bill.formats.csv import write_csv
from gputally.commands.bill.formats.focus import write_focus
from gputally.commands.bill.formats.html import write_html
from gputally.commands.bill.formats.json import write_json
from gputally.commands.bill.formats.table import write_table
from gputally.commands.bill.model import Bill
from gputally.commands.bill.seal import Chain

FORMATS: Mapping[str, Callable[[Bill, Chain | None], str]] = {
    "table": write_table,
    "json": write_json,
    "csv": write_csv,
    "html": write_html,
    "focus": write_focus,
}
"""With a chain, each row has a place for its hash."""
