"""How a cluster is started, and what is left of one that does not come up: nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from tools import Failed
from tools.test_cluster import cluster, preflight, record
from tools.test_cluster.command import main
from tools.test_cluster.layout import Layout


class Start:
    """An attempt on a machine that has all, up to the moment when programs are to be started."""

    def __init__(self, directory: Path) -> None:
        self.place = Layout(directory / "cluster")
        self.former = directory / "former"
        self.done: list[str] = []

    def launch(self, place: Layout, *_: object) -> None:
        place.make()
        raise Failed("it does not start")

    def up(self) -> None:
        cluster.up(self.place.directory, self.done.append, with_images=False)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    found = Start(tmp_path)
    monkeypatch.setattr(preflight, "check", lambda _: None)
    monkeypatch.setattr(record, "running", lambda: None)
    monkeypatch.setattr(record, "recorded", lambda: found.former)
    monkeypatch.setattr(record, "take", lambda _: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(record, "end", lambda: found.done.append("end"))
    monkeypatch.setattr(record, "forget", lambda: found.done.append("forget"))
    monkeypatch.setattr(
        cluster, "_remove_leftovers", lambda place: found.done.append(f"remove {place.directory.name}")
    )
    monkeypatch.setattr(cluster, "_launch", found.launch)
    return found


def test_leftovers_of_an_older_cluster_in_another_directory_are_removed(start: Start) -> None:
    with pytest.raises(Failed, match="does not start"):
        start.up()

    assert sorted(start.done[:2]) == ["remove cluster", "remove former"]


def test_the_clusters_logs_are_kept_and_everything_else_is_removed(start: Start) -> None:
    with pytest.raises(Failed, match="does not start"):
        start.up()

    kept = start.place.directory.with_name("cluster-failed-logs")
    assert start.done[2:4] == [f"logs are in {kept}", "end"]
    assert start.done[-1] == "forget"
    assert kept.is_dir()


def test_the_cluster_is_stopped_even_without_space_for_its_logs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("shutil.copytree", no_room)

    with pytest.raises(OSError, match="no space left"):
        start.up()

    assert start.done[2] == "end"
    assert start.done[-1] == "forget"


@pytest.mark.parametrize(
    "failure",
    [OSError(28, "No space left on device"), subprocess.CalledProcessError(2, ["ip", "link", "add"])],
)
def test_an_error_of_the_system_is_one_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(preflight, "check_user", lambda: None)
    monkeypatch.setattr(cluster, "up", fail)

    assert main(["up"]) == 1
    assert capsys.readouterr() == ("", f"tools/cluster: {failure}\n")
