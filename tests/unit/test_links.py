"""Links between the Markdown pages lead to files and headings that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "deploy/**/*.md", "docs/**/*.md", "helm/**/*.md", "tests/fixtures/**/*.md")
    for page in ROOT.glob(pattern)
)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> Iterator[str]:
    """The targets inside the repository."""
    text = without_code(text)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)", text, re.MULTILINE)
    return (target for target in targets if not re.match(r"[a-z]+:", target))


def anchors(text: str) -> set[str]:
    """The ids that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(page: Path) -> Iterator[str]:
    for target in links(page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_an_existing_target(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_reference_is_defined_and_used(page: Path) -> None:
    text = without_code(page.read_text())
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert used ^ defined == set()


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    listed = set(links((ROOT / "docs" / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - listed == {"README.md"}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n[x](#a-b-c) [y](#d) [z](none.md) [w](page.md#a-b-c) [v](https://x.y/z)\n")
    assert list(broken(page)) == ["#d", "none.md"]
