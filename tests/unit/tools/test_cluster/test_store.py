"""What a cluster has added to the store of images is gone before the next one starts."""

import json
import shutil
from pathlib import Path

import pytest

from tools.test_cluster import store
from tools.test_cluster.store import Store


def test_layers_of_containers_are_removed_and_the_databases_restored(tmp_path: Path) -> None:
    found = Store(tmp_path)
    layers = found.root / store._LAYERS
    for layer in ("1", "2", "3"):
        (layers / layer / "fs").mkdir(parents=True)
    found.contents.write_text(json.dumps(["1", "2"]))
    for database in store._DATABASES:
        for side, text in ((found.root, "used"), (found.directory / "databases", "new")):
            (side / database).parent.mkdir(parents=True, exist_ok=True)
            (side / database).write_text(text)

    found.reset()

    assert sorted(layer.name for layer in layers.iterdir()) == ["1", "2"]
    assert [(found.root / database).read_text() for database in store._DATABASES] == ["new", "new"]


def test_a_directory_is_removed_while_another_process_removes_parts_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "cluster"
    for name in ("a", "b"):
        (directory / name).mkdir(parents=True)
    real = shutil.rmtree

    def interrupted(path: Path, ignore_errors: bool = False) -> None:
        if (directory / "a").exists():
            (directory / "a").rmdir()
            assert ignore_errors
        else:
            real(path, ignore_errors)

    monkeypatch.setattr("shutil.rmtree", interrupted)

    store.remove(directory)

    assert not directory.exists()


def test_files_that_cannot_be_removed_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("shutil.rmtree", refuse)

    with pytest.raises(OSError, match="busy"):
        store.remove(tmp_path)
