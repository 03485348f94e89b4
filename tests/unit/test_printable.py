"""Foreign text is one line that no terminal obeys."""

import logging
import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.cli import set_up_logging
from gputally.printable import print_lines, printable
from tools import ROOT


@given(st.text())
def test_the_result_is_one_line_without_characters_that_a_terminal_obeys(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train-0 über 東京 🚂", "train-0 über 東京 🚂"),
        ("\x1b[31m\r\n\t\0", r"\x1b[31m\r\n\t\x00"),
        ("\x85\x9b\x7f", r"\x85\x9b\x7f"),  # C1 and DEL
        ("\u202e\u2066\u200b\u2028\ufeff", r"\u202e\u2066\u200b\u2028\ufeff"),
        ("\udce4\U000e0041", r"\udce4\U000e0041"),  # a byte that was not UTF-8, and an invisible tag
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_printed_line_stays_one_line() -> None:
    out = StringIO()
    print_lines(["one\ntwo", "three"], out)
    assert out.getvalue() == "one\\ntwo\nthree\n"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_message_of_an_exception_forges_no_line(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "2026-01-01T00:00:00.000Z INFO    all is well"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logging("info", log_format, None)
        try:
            raise ValueError(f"\x1b[2J\n{forged}\u202e")
        except ValueError:
            logging.getLogger("gputally").exception("the read failed")
    finally:
        root.handlers[:], root.level = handlers, level
    log = capsys.readouterr().err
    assert "\x1b" not in log
    assert "\u202e" not in log
    assert not re.search(rf"(?:^|\\n|\n){forged}", log)
    assert "the read failed" in log


def test_commands_print_only_by_print_lines() -> None:
    package = ROOT / "exporter/gputally"
    printing = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\bprint\(|std(?:out|err)\.write\(", file.read_text())
    }
    assert printing == {"printable.py", "cli.py"}
    assert re.findall(r"print\(.*", (package / "cli.py").read_text()) == ['print(f"gputally {__version__}")']
