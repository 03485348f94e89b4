"""Where files belong: shared helpers in tests/support, unit tests as the packages, tools in packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import ROOT

TESTS = ROOT / "tests"
ENTRY_POINTS = {
    *(
        "accuracy",
        "bench",
        "cluster",
        "demo",
        "fuzz",
        "hashes",
        "history",
        "live_bill",
        "pictures",
        "programs",
        "release",
        "render",
        "soak",
        "test",
    ),
    "verify",
}
DATA = {"__init__.py", "constraints.txt", "programs.toml"}


def modules(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[str]:
    """Every module, and every name of a module, that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_test_module(name: str) -> bool:
    parents = [Path(*name.split(".")[:end]) for end in range(1, name.count(".") + 2)]
    return any(path.name.startswith("test_") and (ROOT / f"{path}.py").is_file() for path in parents)


def test_no_module_imports_a_test_module() -> None:
    found = {path: [name for name in imported(path) if is_test_module(name)] for path in modules(TESTS)}
    assert {path: names for path, names in found.items() if names} == {}


def test_an_import_of_a_test_module_is_found(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text("from tests.unit.test_layout import ROOT\nfrom tests.unit import test_layout\n")
    assert [is_test_module(name) for name in imported(file)] == [True, True]


def test_the_top_level_of_tools_has_entry_points_only() -> None:
    files = {path.name for path in (ROOT / "tools").iterdir() if path.is_file()}
    assert files == ENTRY_POINTS | DATA
    assert all((ROOT / "tools" / name).stat().st_mode & 0o111 for name in ENTRY_POINTS)


@pytest.mark.parametrize(
    ("tests", "package"), [("unit", "exporter/gputally"), ("unit/tools", "tools")], ids=["gputally", "tools"]
)
def test_every_directory_of_unit_tests_has_the_name_of_a_package(tests: str, package: str) -> None:
    directories = {path.parent.relative_to(TESTS / tests) for path in modules(TESTS / tests)}
    ours = {path for path in directories if tests != "unit" or path.parts[:1] != ("tools",)}
    assert [path for path in sorted(ours) if not (ROOT / package / path).is_dir()] == []


def test_the_top_level_of_tests_has_no_helpers() -> None:
    assert {path.name for path in TESTS.glob("*.*") if path.is_file()} == {"conftest.py"}
