"""The demo's lines and its progress."""

import io

from tools.demonstration.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_overwritten_and_lines_stay() -> None:
    out = Terminal()
    console = Console(out)
    console.progress("building one")
    console.progress("building two")
    console.say("ready")
    console.progress("")
    shown = [line.rpartition("\r\x1b[K")[2] for line in out.getvalue().split("\n")]
    assert shown == ["ready", ""]


def test_in_a_file_progress_is_a_line_now_and_then() -> None:
    out = io.StringIO()
    console = Console(out)
    for _ in range(100):
        console.progress("building")
    console.say("ready")
    assert out.getvalue() == "ready\n"
