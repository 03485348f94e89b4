"""The repository's Python environment, .venv: created and updated by the tools that need it."""

import hashlib
import json
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import ROOT, Failed
from tools.dependencies import programs
from tools.dependencies.locking import locked
from tools.dependencies.progress import Work

CONSTRAINTS = "tools/constraints.txt"
STAMP = "gputally-installed.json"


def python(*groups: str, root: Path = ROOT) -> Path:
    """The environment's Python, with the exporter (editable) and these dependency groups installed.

    Groups of earlier calls stay installed. Raises Failed.
    """
    directory = root / ".venv"
    interpreter = directory / "bin" / "python"
    stamp = directory / STAMP
    # The lock is on a file that always exists: two runs that start at the same time create one environment.
    with locked(root / "pyproject.toml", ".venv"):
        wanted = _source(root)
        installed = _read(stamp) if interpreter.exists() else {}
        if not same_source(installed, wanted):
            installed = {}
        missing = sorted(set(groups) - _with_included(installed.get("groups", ()), root))
        if installed and not missing:
            return interpreter
        log = programs.cache() / "environment.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        work = Work(".venv", log)
        if not interpreter.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _make(work, directory)
        everything = sorted({*groups, *installed.get("groups", ())})
        work.run(
            f"installing gputally{''.join(f', {group}' for group in everything)}",
            [
                *(interpreter, "-m", "pip", "install", "--disable-pip-version-check"),
                *("--constraint", root / CONSTRAINTS, "--editable", root),
                *(requirement for group in everything for requirement in requirements(group, root)),
            ],
        )
        stamp.write_text(json.dumps(wanted | {"groups": everything}))
    return interpreter


def requirements(group: str, root: Path = ROOT) -> list[str]:
    """The requirements of a dependency group (PEP 735), which the pip of older Pythons cannot read."""
    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    found: list[str] = []
    for entry in groups[group]:
        found += [entry] if isinstance(entry, str) else requirements(entry["include-group"], root)
    return found


def _with_included(groups: Sequence[str], root: Path) -> set[str]:
    """These groups, and those that they include."""
    known = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    found = set(groups)
    for group in groups:
        included = [entry["include-group"] for entry in known.get(group, ()) if not isinstance(entry, str)]
        found |= _with_included(included, root)
    return found


def same_source(installed: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(installed.get(key) == value for key, value in wanted.items())


def _source(root: Path) -> dict[str, str]:
    """The sources of an environment: when they change, it is updated."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", CONSTRAINTS):
        digest.update((root / name).read_bytes())
    return {"root": str(root), "digest": digest.hexdigest()}


def _read(stamp: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(stamp.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content


def _make(work: Work, directory: Path) -> None:
    try:
        work.run("creating it", [sys.executable, "-m", "venv", directory])
    except Failed as failure:
        shutil.rmtree(directory, ignore_errors=True)
        raise Failed(f"{failure}\nOn Debian and Ubuntu, run `apt-get install python3-venv`.") from None
