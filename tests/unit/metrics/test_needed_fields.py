"""Fields of a reading that other parts than the metrics use are read with every set of metrics."""

import ast
from collections.abc import Iterator
from pathlib import Path

from gputally.metrics.catalog import GPU_METRICS
from gputally.metrics.sets import NEEDED_FIELDS

PACKAGE = Path(__file__).parents[3] / "exporter" / "gputally"
OTHERS = ("attribution", "commands", "ledger", "relay", "sampling", "app.py")
"""All but the live page, which shows what is read."""


def attributes(path: Path) -> Iterator[str]:
    for file in [path] if path.is_file() else path.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                yield node.attr


def test_a_field_that_another_part_uses_is_needed() -> None:
    exported = {one.field for one in GPU_METRICS}
    used = {name for part in OTHERS for name in attributes(PACKAGE / part)}
    assert {"power_watts", "compute_mode"} <= used & exported
    assert sorted(used & exported - NEEDED_FIELDS) == []
