"""The exporter does not pay for the bill: `serve` loads nothing of it."""

import subprocess
import sys


def test_the_parts_of_serve_do_not_import_the_bill() -> None:
    code = "import sys, gputally.cli, gputally.app; print([m for m in sys.modules if 'commands.bill' in m])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
