"""Images as containerd keeps them, unpacked: made once, so that a cluster has them as soon as it starts.

A cluster's containerd works in the store itself. Before the next one starts, what it has added is taken away
and its books are put back.
"""

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import Failed
from tools.dependencies import programs
from tools.dependencies.locking import locked
from tools.servers.children import Child, Children

_BOOKS = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
_LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
_SECONDS_TO_START = 60
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with one set of images."""

    folder: Path

    @property
    def root(self) -> Path:
        """What containerd calls its root."""
        return self.folder / "root"

    @property
    def contents(self) -> Path:
        """The layers that belong to images; written last, so that with it the store is whole."""
        return self.folder / "layers.json"

    def reset(self) -> None:
        """Make it as it was before any cluster used it. None may use it now."""
        ours = set(json.loads(self.contents.read_text()))
        for layer in (self.root / _LAYERS).iterdir():
            if layer.name not in ours:
                remove(layer)
        for book in _BOOKS:
            shutil.copy(self.folder / "books" / book, self.root / book)


def remove(folder: Path) -> None:
    """Whole, also when somebody else is just doing the same. Raises OSError."""
    for _ in range(_MOST_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def stores() -> list[Store]:
    """All that are whole."""
    found = [Store(folder) for folder in (programs.cache() / "images").glob("store-*")]
    return [store for store in found if store.contents.exists()]


def filled(archives: Sequence[Path], say: Callable[[str], None]) -> Store:
    """The store with exactly these images, made if need be; others are removed. Raises Failed.

    No cluster may run, nor start meanwhile.
    """
    names = "\n".join(sorted(archive.name for archive in archives))
    digest = hashlib.sha256(names.encode()).hexdigest()[:12]
    store = Store(programs.cache() / "images" / f"store-{digest}")
    with locked(store.folder.parent / ".lock", "images"):
        if not store.contents.exists():
            begin = time.monotonic()
            for old in store.folder.parent.glob("store-*"):
                remove(old)
            _fill(store, archives)
            say(f"{len(archives)} images unpacked ({time.monotonic() - begin:.1f} s)")
    return store


def _fill(store: Store, archives: Sequence[Path]) -> None:
    folder = store.folder
    folder.mkdir(parents=True)
    socket = folder / "containerd.sock"
    settings = folder / "containerd.toml"
    settings.write_text(
        f'version = 2\nroot = "{store.root}"\nstate = "{folder / "state"}"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{socket}"\n'
    )
    with Children() as children:
        # What it mounts to unpack a layer, nobody else sees.
        command: list[str | Path] = [
            "unshare",
            "--mount",
            programs.path("containerd"),
            f"--config={settings}",
        ]
        children.start(Child("containerd", command, folder, folder / "containerd.log"))
        deadline = time.monotonic() + _SECONDS_TO_START
        while not socket.exists():
            children.check()
            if time.monotonic() > deadline:
                raise Failed(f"containerd did not start within {_SECONDS_TO_START} s")
            time.sleep(0.05)
        for archive in archives:
            _import(socket, archive)
    for book in _BOOKS:
        (folder / "books" / book).parent.mkdir(parents=True)
        shutil.copy(store.root / book, folder / "books" / book)
    layers = sorted(layer.name for layer in (store.root / _LAYERS).iterdir())
    unfinished = store.contents.with_suffix(".new")
    unfinished.write_text(json.dumps(layers))
    unfinished.replace(store.contents)


def _import(socket: Path, archive: Path) -> None:
    # In the namespace in which the kubelet's requests look for them.
    at = (f"--address={socket}", "--namespace=k8s.io")
    ran = subprocess.run(
        [programs.path("ctr"), *at, "images", "import", archive], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise Failed(f"containerd does not take {archive.name}: {ran.stderr.strip()}")
