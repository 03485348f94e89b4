"""Finds terms of terms.toml in all texts that people read, and prints each with the term to use instead.

Read are the comments, strings and test names of Python files, Markdown without its code, and the other text
files whole.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TERMS = Path(__file__).with_name("terms.toml")
_TEXTS = ("*.py", "*.md", "*.j2", "*.tpl", "*.yaml", "*.txt", "*.toml", "*.service", "Dockerfile")
_NOT_READ = (
    ":!tests/fixtures",  # output of other programs
    ":!tests/unit/tools/wording",
    ":!tools/wording",
    ":!tools/constraints.txt",
    ":!docs/migrate.md",  # quotes the metrics of other tools
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)

NumberedLine = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Term:
    """A term that texts do not use."""

    pattern: re.Pattern[str]
    instead: str
    exceptions: re.Pattern[str] | None

    def found_in(self, text: str) -> str | None:
        match = self.pattern.search(text)
        if match is None or (self.exceptions and self.exceptions.search(text)):
            return None
        return match.group()


def read_terms(path: Path = TERMS) -> list[Term]:
    return [
        Term(
            re.compile(rf"(?<![\w-])(?:{row['pattern']})(?![\w-])", re.IGNORECASE),
            row["instead"],
            re.compile("|".join(row["except"]), re.IGNORECASE) if "except" in row else None,
        )
        for row in tomllib.loads(path.read_text())["term"]
    ]


def prose_of(path: str, text: str) -> Iterable[NumberedLine]:
    """The lines of a file that are meant for people, with their numbers."""
    if path.endswith(".py"):
        return _prose_of_python(text)
    if path.endswith(".md"):
        # The line breaks of what is left out stay, so that the numbers of the lines are right.
        text = _CODE.sub(lambda code: "\n" * code.group().count("\n"), text)
    return enumerate(text.splitlines(), start=1)


def _prose_of_python(text: str) -> Iterator[NumberedLine]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A string without a blank is a name or a key, not a text.
            for offset, line in enumerate(node.value.splitlines()):
                if " " in line.strip():
                    yield node.lineno + offset, line


def findings(files: Iterable[str], root: Path = ROOT, terms: Iterable[Term] | None = None) -> Iterator[str]:
    """One line per term that was found: file, line, term, and the term to use instead."""
    chosen = list(read_terms() if terms is None else terms)
    for file in files:
        for number, line in prose_of(file, (root / file).read_text()):
            for term in chosen:
                if found := term.found_in(line):
                    yield f"{file}:{number}: {found!r}: use {term.instead}"


def tracked_texts(root: Path = ROOT) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *_TEXTS, *_NOT_READ], cwd=root, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def main() -> int:
    found = sorted(set(findings(tracked_texts())))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} terms to replace: see {TERMS.relative_to(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
