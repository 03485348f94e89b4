"""The fuzz targets: modules of tests/support/fuzz_targets.

A target has `one_input(data: bytes) -> None`, which raises when something that must hold does not, and
optionally `CORPUS: list[bytes]`, inputs to begin with. tests/fixtures/fuzz/<target>/ holds inputs that once
failed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tools import ROOT, Failed

_DIRECTORY = ROOT / "tests" / "support" / "fuzz_targets"
_FOUND_BEFORE = ROOT / "tests" / "fixtures" / "fuzz"


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, or several of the same input."""

    name: str
    one_input: Callable[[bytes], None]
    corpus: list[bytes]


def names() -> list[str]:
    return sorted(path.stem for path in _DIRECTORY.glob("[!_]*.py"))


def load(name: str) -> Target:
    """Raises Failed."""
    if name not in names():
        raise Failed(f"there is no target {name!r}; there are {', '.join(names())}")
    module = import_module(f"tests.support.fuzz_targets.{name}")
    found_before = [path.read_bytes() for path in sorted((_FOUND_BEFORE / name).glob("*"))]
    return Target(name, module.one_input, [*getattr(module, "CORPUS", []), *found_before])
