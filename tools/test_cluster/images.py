"""Builds the images of the cluster's pods; no registry is used.

The exporter's image is built by the repository's Dockerfile, on a local base with Debian's Python. The others
have the names, users, paths and entry points of the images that the chart names, with the programs of
tools/programs: Grafana is another version than its tag. An image is an archive in the cache, and is rebuilt
when one of its parts changes.
"""

import ast
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import gputally
from tools import ROOT
from tools.dependencies import programs
from tools.dependencies.locking import locked
from tools.dependencies.progress import Work
from tools.test_cluster import libraries
from tools.test_cluster.components import PAUSE_IMAGE

BASE = "gputally/base:1"
WORKLOAD = "gputally/workload:1"
RELOADER = "gputally/config-reloader:1"
EXPORTER = f"gputally/gputally:{gputally.__version__}"
_NAMES = Path(__file__).with_name("containerfiles")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_UNFINISHED = ".making-"
# Options of pip that name files of this machine.
_PIP_PATHS = ("cert", "client-cert", "find-links")


@dataclass(frozen=True, slots=True)
class Image:
    """An image to build from a Dockerfile, a directory of files, and a base."""

    name: str
    dockerfile: Path
    context: Path
    made_of: tuple[str, ...]
    """Changes of these parts cause a rebuild."""
    base: "Image | None" = None
    arguments: tuple[str, ...] = ()
    asks_pip: bool = False
    """Whether the last stage runs no command: then pip's mounted configuration is not part of the image."""

    @property
    def key(self) -> str:
        digest = hashlib.sha256(self.dockerfile.read_bytes())
        for part in (self.name, *self.made_of, *self.arguments, self.base.key if self.base else ""):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:12]

    @property
    def archive(self) -> Path:
        readable = self.name.replace("/", "-").replace(":", "-")
        return programs.cache() / "images" / f"{readable}-{self.key}.tar"


def every() -> list[Image]:
    """All images, in the order of their bases."""
    root = programs.path("debian-python").resolve()
    base = Image(BASE, _NAMES / "base", root, (str(root),))
    stack = yaml.safe_load((ROOT / "helm/gputally/values.yaml").read_text())["stack"]

    def standing_on_base(name: str, file: str, program: str) -> Image:
        place = programs.path(program).resolve()
        return Image(name, _NAMES / file, place.parent, (str(place),), base)

    def of_the_stack(part: str) -> str:
        image = stack[part]["image"]
        return f"{image['repository']}:{image['tag']}"

    grafana = programs.path("grafana").resolve()
    return [
        base,
        Image(PAUSE_IMAGE, _NAMES / "pause", root, (), base),
        Image(WORKLOAD, _NAMES / "workload", root, (), base),
        Image(
            EXPORTER,
            ROOT / "Dockerfile",
            ROOT,
            tuple(_exporter_parts()),
            base,
            arguments=(f"PYTHON_IMAGE={BASE}",),
            asks_pip=True,
        ),
        standing_on_base(of_the_stack("prometheus"), "prometheus", "prometheus"),
        standing_on_base(of_the_stack("alertmanager"), "alertmanager", "alertmanager"),
        standing_on_base(of_the_stack("kubeStateMetrics"), "kube-state-metrics", "kube-state-metrics"),
        standing_on_base(RELOADER, "config-reloader", "prometheus-config-reloader"),
        Image(of_the_stack("grafana"), _NAMES / "grafana", grafana.parents[1], (str(grafana),), base),
    ]


def build_all(say: Callable[[str], None]) -> list[Path]:
    """The archives of all images; those that are missing are built. Raises Failed."""
    wanted = every()
    directory = programs.cache() / "images"
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / ".lock", "images"):
        missing = [image for image in wanted if not image.archive.exists()]
        if missing:
            begin = time.monotonic()
            _build(wanted, missing, directory)
            say(f"{len(missing)} images built ({time.monotonic() - begin:.1f} s)")
        _forget_others(directory, wanted)
    return [image.archive for image in wanted if image.name != BASE]


def _build(wanted: Sequence[Image], missing: Sequence[Image], directory: Path) -> None:
    # Under the lock, a file of this name was left by a run that was killed.
    for unfinished in directory.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(unfinished)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=directory) as scratch:
        maker = _Maker(Path(scratch), Work("images", directory / "images.log"))
        for image in wanted:
            # The base must be in buildah's own store, too.
            if image in missing or any(other.base == image for other in missing):
                maker.make(image)


class _Maker:
    """buildah with its own store and namespaces, which are removed at the end."""

    def __init__(self, scratch: Path, work: Work) -> None:
        self._scratch = scratch
        self._work = work
        self._policy = scratch / "policy.json"
        self._policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        self._registries = scratch / "registries.conf"
        self._registries.write_text("unqualified-search-registries = []\n")
        self._pip = pip_settings()
        (scratch / "pip.conf").write_text(pip_file(self._pip))
        self._with_libraries = libraries.linker_cache(scratch / "ld.so.cache", "buildah")

    def make(self, image: Image) -> None:
        build = [
            *("build", "--isolation=chroot", "--format=docker", "--pull-never", "--layers=false"),
            *(f"--signature-policy={self._policy}", f"--file={image.dockerfile}", f"--tag={image.name}"),
            *(f"--volume={here}:{there}:ro" for here, there in (self._mounts() if image.asks_pip else ())),
            # A fixed time gives the same base in every build; elsewhere it makes bytecode stale.
            *(() if image.base else ("--timestamp=0",)),
            *(f"--build-arg={argument}" for argument in image.arguments),
            str(image.context),
        ]
        self._buildah(f"making {image.name}", build)
        unfinished = self._scratch / image.archive.name
        push = [
            "push",
            f"--signature-policy={self._policy}",
            image.name,
            f"docker-archive:{unfinished}:{image.name}",
        ]
        self._buildah(f"writing {image.name}", push)
        unfinished.rename(image.archive)

    def _mounts(self) -> Iterator[tuple[Path, str]]:
        """pip's configuration of this machine, mounted during the build: never part of an image."""
        yield self._scratch / "pip.conf", "/etc/pip.conf"
        named = [Path(part) for key in _PIP_PATHS for part in self._pip.get(key, "").split()]
        for path in {_CERTIFICATES, *named}:
            if path.is_absolute() and path.exists():
                yield path, str(path)

    def _buildah(self, step: str, arguments: Sequence[str]) -> None:
        command: list[str | Path] = [
            # The kernel ends it with this process, together with its mounts and children.
            *(
                "setpriv",
                "--pdeathsig=KILL",
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ),
            *self._with_libraries,
            *(
                programs.path("buildah"),
                f"--root={self._scratch / 'store'}",
                f"--runroot={self._scratch / 'run'}",
            ),
            *("--storage-driver=overlay", f"--registries-conf={self._registries}", *arguments),
        ]
        self._work.run(step, command)


def pip_settings() -> dict[str, str]:
    """pip's configuration from files and variables: option -> value. Variables take precedence."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    return parse_pip_settings(shown.stdout)


def parse_pip_settings(shown: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for section in ("global.", ":env:."):
        for line in shown.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def pip_file(settings: dict[str, str]) -> str:
    lines = [f"{key} = {value.replace(chr(10), chr(10) + '    ')}" for key, value in settings.items()]
    return "\n".join(["[global]", *lines, ""])


def _exporter_parts() -> Iterator[str]:
    """The files that .dockerignore admits, with their digests."""
    for pattern in (
        ".dockerignore",
        "exporter/**/*.py",
        "exporter/**/py.typed",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "packaging/image/*.txt",
    ):
        for file in sorted(ROOT.glob(pattern)):
            yield f"{file.relative_to(ROOT)} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _forget_others(directory: Path, wanted: Sequence[Image]) -> None:
    """Removes older versions of the same images."""
    kept = {image.archive for image in wanted}
    for archive in directory.glob("*.tar"):
        if archive not in kept:
            archive.unlink()
