"""The log in both formats."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.cli import set_up_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(file: Path, log_format: str, level: str = "info") -> list[str]:
    set_up_logging(level, log_format, file)
    log = logging.getLogger("gputally")
    log.debug("unseen")
    log.info("source %s is up", "nvml")
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("oops")
    return file.read_text().splitlines()


def test_text_lines_have_time_level_and_message(tmp_path: Path) -> None:
    lines = logged(tmp_path / "log", "text")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    source nvml is up", lines[0])
    assert lines[-1] == "  ValueError: bad"


def test_json_lines_are_objects(tmp_path: Path) -> None:
    first, second = (json.loads(line) for line in logged(tmp_path / "log", "json"))
    assert (first["level"], first["message"], first["logger"]) == ("info", "source nvml is up", "gputally")
    assert "ValueError: bad" in second["exception"]


def test_a_rotated_file_is_reopened(tmp_path: Path) -> None:
    file = tmp_path / "log"
    logged(file, "text")
    file.rename(tmp_path / "log.1")
    logging.getLogger("gputally").info("after rotation")
    assert file.read_text().endswith("after rotation\n")
