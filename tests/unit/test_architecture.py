"""docs/architecture.md, CONTRIBUTING.md and README.md name files that exist, and every package and layer."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "exporter" / "gputally"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = (ARCHITECTURE, CONTRIBUTING, ROOT / "README.md")
TOP = "|".join(
    re.escape(path.name) for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
)
IN_REPOSITORY = re.compile(rf"(?<![\w./-])(?:{TOP})/[\w./<>*-]*[\w>*/]")
FILE = re.compile(r"[\w<>-][\w./<>-]*(?:/|\.(?:py|md|toml|yaml|yml|tpl|json|txt))")


def code_spans(text: str) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def paths_in(text: str) -> set[str]:
    """The paths in a page: those from the top of the repository anywhere, others in code spans.

    Not those in build/, which the tools write.
    """
    files = {span for span in code_spans(text) if FILE.fullmatch(span)}
    return {path for path in {*IN_REPOSITORY.findall(text), *files} if not path.startswith("build/")}


def exists(path: str) -> bool:
    """From the top of the repository, from docs/, or in the exporter. `<name>` stands for any name."""
    pattern = re.sub(r"<[^<>]+>", "*", path).rstrip("/")
    return any(any(start.glob(pattern)) for start in (ROOT, ROOT / "docs", PACKAGE))


def section(page: Path, heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = paths_in(page.read_text())
    assert len(named) > 5
    assert [path for path in sorted(named) if not exists(path)] == []


def test_a_path_that_does_not_exist_is_found() -> None:
    named = paths_in(
        "See `ledger/nothing.py`, tools/nothing and `docs/runbooks/<Alert>.md`; `--flag` is none."
    )
    assert {path for path in named if not exists(path)} == {"ledger/nothing.py", "tools/nothing"}


def test_the_architecture_names_every_package_and_module_of_the_exporter() -> None:
    named = set(code_spans(section(ARCHITECTURE, "The exporter: `exporter/gputally`")))
    modules = {path.name for path in PACKAGE.glob("[!_]*.py")}
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert len(modules) > 3
    assert len(packages) > 5
    assert (modules | packages) - named == set()


def test_the_architecture_names_every_directory_of_the_repository() -> None:
    named = set(code_spans(section(ARCHITECTURE, "The rest of the repository")))
    tracked = {
        "dashboards/",
        "alerts/",
        "helm/gputally/",
        "deploy/",
        "packaging/",
        "docs/",
        "tools/",
        "tests/",
    }
    assert tracked - named == set()


def test_the_import_layers_are_those_that_import_linter_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["gputally"])
    (listed,) = re.findall(
        r"^```\n(.*?)^```", section(CONTRIBUTING, "Import layers"), re.MULTILINE | re.DOTALL
    )
    checked = [{name.strip() for name in re.split(r"[|:]", layer)} for layer in reversed(layers)]
    assert [set(line.split(", ")) for line in listed.splitlines()] == checked


def test_each_question_is_answered_by_at_most_two_files() -> None:
    answers = rows(section(ARCHITECTURE, "Where to find it"))
    assert len(answers) == 12
    assert {
        question: paths_in(files) for question, files, _ in answers if not 1 <= len(paths_in(files)) <= 2
    } == {}
