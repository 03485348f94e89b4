"""What a cluster has added to the store of images is gone before the next one starts."""

import json
from pathlib import Path

from tools.test_cluster import store
from tools.test_cluster.store import Store


def test_layers_of_containers_go_and_the_books_come_back(tmp_path: Path) -> None:
    found = Store(tmp_path)
    layers = found.root / store._LAYERS
    for layer in ("1", "2", "3"):
        (layers / layer / "fs").mkdir(parents=True)
    found.contents.write_text(json.dumps(["1", "2"]))
    for book in store._BOOKS:
        for side, text in ((found.root, "used"), (found.folder / "books", "new")):
            (side / book).parent.mkdir(parents=True, exist_ok=True)
            (side / book).write_text(text)

    found.reset()

    assert sorted(layer.name for layer in layers.iterdir()) == ["1", "2"]
    assert [(found.root / book).read_text() for book in store._BOOKS] == ["new", "new"]
