"""Unpacked images for containerd, prepared once so that a cluster has them at its start.

A cluster's containerd works on the store itself. Before the next start, its additions are removed and its
database is restored.
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
from tools.servers.waiting import wait_until

_DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
_LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
_SECONDS_TO_START = 60
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Store:
    """A directory with one set of images."""

    directory: Path

    @property
    def root(self) -> Path:
        """containerd's root directory."""
        return self.directory / "root"

    @property
    def contents(self) -> Path:
        """The layers of the images; written last, it marks the store as complete."""
        return self.directory / "contents.json"

    def reset(self) -> None:
        """Restores the state before any cluster used it. No cluster may use it now."""
        ours = set(json.loads(self.contents.read_text()))
        for layer in (self.root / _LAYERS).iterdir():
            if layer.name not in ours:
                remove(layer)
        for database in _DATABASES:
            shutil.copy(self.directory / "databases" / database, self.root / database)


def remove(directory: Path) -> None:
    """Removes a directory completely, even if another process does the same. Raises OSError."""
    for _ in range(_MOST_ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
    shutil.rmtree(directory)


def stores() -> list[Store]:
    """All complete stores."""
    found = [Store(directory) for directory in (programs.cache() / "images").glob("store-*")]
    return [store for store in found if store.contents.exists()]


def filled(archives: Sequence[Path], say: Callable[[str], None]) -> Store:
    """The store with exactly these images, prepared if needed; others are removed. Raises Failed.

    No cluster may run or start meanwhile.
    """
    names = "\n".join(sorted(archive.name for archive in archives))
    digest = hashlib.sha256(names.encode()).hexdigest()[:12]
    store = Store(programs.cache() / "images" / f"store-{digest}")
    with locked(store.directory.parent / ".lock", "images"):
        if not store.contents.exists():
            begin = time.monotonic()
            for old in store.directory.parent.glob("store-*"):
                remove(old)
            _fill(store, archives)
            say(f"{len(archives)} images unpacked ({time.monotonic() - begin:.1f} s)")
    return store


def _fill(store: Store, archives: Sequence[Path]) -> None:
    directory = store.directory
    directory.mkdir(parents=True)
    socket = directory / "containerd.sock"
    settings = directory / "containerd.toml"
    settings.write_text(
        f'version = 2\nroot = "{store.root}"\nstate = "{directory / "state"}"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{socket}"\n'
    )
    with Children() as children:
        # Its mounts are private.
        command: list[str | Path] = [
            "unshare",
            "--mount",
            programs.path("containerd"),
            f"--config={settings}",
        ]
        children.start(Child("containerd", command, directory, directory / "containerd.log"))
        wait_until(socket.exists, "containerd starts", _SECONDS_TO_START, check=children.check)
        for archive in archives:
            _import(socket, archive)
    for database in _DATABASES:
        (directory / "databases" / database).parent.mkdir(parents=True)
        shutil.copy(store.root / database, directory / "databases" / database)
    layers = sorted(layer.name for layer in (store.root / _LAYERS).iterdir())
    unfinished = store.contents.with_suffix(".new")
    unfinished.write_text(json.dumps(layers))
    unfinished.replace(store.contents)


def _import(socket: Path, archive: Path) -> None:
    # The namespace of containerd that the kubelet uses.
    at = (f"--address={socket}", "--namespace=k8s.io")
    ran = subprocess.run(
        [programs.path("ctr"), *at, "images", "import", archive], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise Failed(f"containerd rejected {archive.name}: {ran.stderr.strip()}")
