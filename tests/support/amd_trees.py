"""Hosts with AMD GPUs: the trees of sysfs and procfs that tests/fixtures/amdgpu describes, one file each.

A description has a line for each thing in a directory, under the directory's path in brackets:

    unique_id = 4c7b1d52e60893af            a file with one line
    pp_dpm_sclk |                           a file; its lines follow, indented by two
    gpu_metrics @ 1.3                       a binary table; its fields follow, each with its numbers
    drm/card0/device -> ../..               a link, which need not lead anywhere
    queues/                                 an empty directory
"""

import atexit
import tempfile
from functools import cache
from pathlib import Path

from tests.support.gpu_metrics_tables import build
from tools.standin.procfs import uid

FIXTURES = Path(__file__).parents[1] / "fixtures" / "amdgpu"
HOSTS = tuple(sorted(path.stem for path in FIXTURES.glob("*.tree")))


def plant(name: str, directory: Path) -> Path:
    """Build a host in a new directory below `directory`; its sys and proc are below what is returned."""
    root = directory / name
    for place, line, block in _read(FIXTURES / f"{name}.tree"):
        _make(root / place, line, block)
    return root


@cache
def planted(name: str) -> Path:
    """A host that all tests of this process share: for those that only read it."""
    shared = tempfile.TemporaryDirectory(prefix="amd-trees-")
    atexit.register(shared.cleanup)
    return plant(name, Path(shared.name))


def log_pods(directory: Path) -> Path:
    """The kubelet's directories of the pods whose processes are in the trees."""
    for namespace, pod, container, number in (
        ("team-a", "vllm-0", "server", 0xA1),
        ("team-b", "train-0", "main", 0xB2),
        ("team-c", "notebook-7", "jupyter", 0xC3),
    ):
        (directory / f"{namespace}_{pod}_{uid(number)}" / container).mkdir(parents=True)
    return directory


def _read(path: Path) -> list[tuple[str, str, list[str]]]:
    """The directory, the line and the indented lines of each thing."""
    place = ""
    found: list[tuple[str, str, list[str]]] = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            place = line.strip("[]")
        elif line.startswith("  "):
            found[-1][2].append(line[2:])
        elif line:
            found.append((place, line, []))
    return found


def _make(directory: Path, line: str, block: list[str]) -> None:
    if line.endswith("/"):
        (directory / line).mkdir(parents=True)
        return
    name, sign, value = (line + " ").split(" ", 2)
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    match sign:
        case "=":
            path.write_text(f"{value.strip()}\n")
        case "|":
            path.write_text("".join(f"{text}\n" for text in block))
        case "@":
            path.write_bytes(_table(value, block))
        case "->":
            path.symlink_to(value.strip())
        case _:
            raise ValueError(f"what is {line!r}?")


def _table(version: str, block: list[str]) -> bytes:
    major, minor = map(int, version.split("."))
    fields = (line.split() for line in block)
    return build((major, minor), **{name: [int(number) for number in numbers] for name, *numbers in fields})
