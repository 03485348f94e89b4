"""The programs of the demo, installed while its pages are shown."""

from pathlib import Path

import pytest

from tests.support.texts import missing
from tools.demonstration.builder import Builder
from tools.dependencies import programs
from tools.servers.waiting import wait_until


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programs.CACHE, str(tmp_path / "cache"))


def test_nothing_is_started_if_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", lambda name: Path("/usr/bin") / name)
    builder = Builder(["prometheus", "grafana"], tmp_path)
    builder.start()
    assert (builder.missing, builder.running, builder.progress()) == ([], False, "")


def test_what_could_not_be_installed_is_reported(nothing_installed: None, tmp_path: Path) -> None:
    builder = Builder(["prometheus", "alertmanager"], tmp_path)
    builder.start()
    wait_until(lambda: not builder.running, "the builder ends")
    # Inside a test run nothing is built.
    assert missing(builder.failures(), "prometheus", "alertmanager", "tools/programs") == []


def test_the_progress_names_what_is_being_built_and_the_usual_time(
    nothing_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(["prometheus", "grafana"], tmp_path)
    monkeypatch.setattr(Builder, "running", True)
    sets = {each.name: each for each in programs.program_sets().values()}
    log = [
        f"{sets['prometheus'].title}: downloading: 3.0 s",
        f"{sets['prometheus-ui'].title}: downloading: 1.0 s",
        f"{sets['prometheus-ui'].title}: ready after 60 s, in /cache",
    ]
    (tmp_path / "programs.log").write_text("\n".join(log))
    progress = builder.progress()
    assert missing(progress, sets["prometheus"].title, "usually 6 min", "0:00") == []
    assert "prometheus-ui" not in progress
