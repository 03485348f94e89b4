"""Terms that texts do not use are found where people read, and nowhere else."""

from pathlib import Path

import pytest

from tools.wording.check import Term, findings, prose_of, read_terms


def found(tmp_path: Path, name: str, text: str) -> list[str]:
    (tmp_path / name).write_text(text)
    return [line.split(": ")[0] for line in findings([name], tmp_path)]


def test_a_term_in_a_comment_a_docstring_or_a_message_is_found_with_its_line(tmp_path: Path) -> None:
    python = '"""Opens the books."""\n\nx = 1  # nobody knows\nraise ValueError(f"the folder {x} is empty")\n'
    assert found(tmp_path, "a.py", python) == ["a.py:3", "a.py:1", "a.py:4"]


def test_a_term_in_the_name_of_a_test_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a.py", "def test_the_folder_is_read() -> None: ...\n") == ["a.py:1"]
    assert found(tmp_path, "a.py", "def folder() -> None: ...\n") == []


def test_code_is_not_text(tmp_path: Path) -> None:
    assert found(tmp_path, "a.py", 'books = {"folder": 1}\n') == []
    assert found(tmp_path, "a.md", "Run `nobody`.\n\n```\nnobody\n```\n\n[x](folder/page.md)\n") == []


def test_lines_after_a_block_of_code_keep_their_numbers(tmp_path: Path) -> None:
    assert found(tmp_path, "a.md", "```\ncode\n```\nfor nobody\n") == ["a.md:4"]


def test_the_line_of_a_multi_line_string_is_named() -> None:
    assert (3, "two words") in prose_of("a.py", 'x = """one word\nmore\ntwo words\n"""\n')


def test_a_term_is_accepted_in_its_exceptions(tmp_path: Path) -> None:
    assert found(tmp_path, "a.md", "The folder in Grafana.\n") == []
    assert found(tmp_path, "a.md", "The folder on disk.\n") == ["a.md:1"]


@pytest.mark.parametrize("term", read_terms(), ids=lambda term: term.instead)
def test_no_term_recommends_what_another_one_rejects(term: Term) -> None:
    assert [other for other in read_terms() if other.found_in(term.instead)] == []
