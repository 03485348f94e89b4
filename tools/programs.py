"""External programs (promtool, prometheus, nvidia-smi ...): found on PATH, or got once into a cache.

The cache is $GPUTALLY_CACHE/programs, or ~/.cache/gputally/programs, with one folder per kit and version.
A kit is made beside its place and renamed into it under a lock, so two runs may start together, and what
is there is whole. Versions stand in programs.toml, and how each is got in recipes.py.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import recipes
from tools.locking import locked
from tools.progress import Failed, Work

PINS = Path(__file__).with_name("programs.toml")


@dataclass(frozen=True, slots=True)
class Kit:
    """What one build or download gives: a table of programs.toml."""

    name: str
    settings: Mapping[str, Any]

    @property
    def programs(self) -> Mapping[str, str]:
        programs: Mapping[str, str] = self.settings["programs"]
        return programs

    @property
    def needed_by(self) -> Sequence[str]:
        needed_by: Sequence[str] = self.settings.get("needed_by", ())
        return needed_by

    @property
    def title(self) -> str:
        return f"{self.name} {self.settings['version']}"

    @property
    def folder(self) -> Path:
        # The digest makes a changed pin or build tag a new folder: an old build never passes for it.
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:8]
        return cache() / "programs" / f"{self.name}-{self.settings['version']}-{digest}"


def cache() -> Path:
    """Where all that is downloaded or built goes; never inside the repository."""
    if chosen := os.environ.get("GPUTALLY_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputally"


def kits(pins: Path = PINS) -> dict[str, Kit]:
    return {name: Kit(name, settings) for name, settings in tomllib.loads(pins.read_text()).items()}


def names(group: str | None = None) -> list[str]:
    """Programs that a group (test, demo, bench) needs; without a group, all that any group needs."""
    return [
        program
        for kit in kits().values()
        if (group in kit.needed_by if group else kit.needed_by)
        for program in kit.programs
    ]


def find(program: str) -> Path | None:
    """Where a program is now, if it is anywhere."""
    kit = _kit_of(program)
    return _on_path(program, kit.settings.get("at_least")) or _in_cache(program, kit)


def path(program: str) -> Path:
    """Where a program is; got first if need be. Raises Failed.

    Inside a test run nothing is got: a build takes minutes and a test has two.
    """
    found = find(program)
    if found is None and "PYTEST_VERSION" in os.environ:
        raise Failed(f"{program} is neither on PATH nor in {cache()}: run `tools/programs {program}` first")
    return found or install(_kit_of(program)) / program


def install(kit: Kit) -> Path:
    """Make a kit in the cache, unless it is there, and return its folder. Raises Failed."""
    folder = kit.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f".{folder.name}.lock"), kit.title):
        if not folder.exists():
            # Under the lock whatever stands here was left by a run that was killed.
            unfinished = folder.with_name(f".{folder.name}.unfinished")
            _remove(unfinished)
            scratch = unfinished / "scratch"
            into = unfinished / "kit"
            for new in (scratch, into):
                new.mkdir(parents=True)
            work = Work(kit.title, folder.with_name(f"{folder.name}.log"))
            recipe = recipes.RECIPES[kit.settings["recipe"]]
            recipe(
                recipes.Job(
                    version=kit.settings["version"],
                    programs=kit.programs,
                    settings=kit.settings,
                    into=into,
                    scratch=scratch,
                    work=work,
                    find=path,
                )
            )
            into.rename(folder)
            _remove(unfinished)
            work.say(f"ready in {folder}")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/programs", description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="*", help="print where these are; without any, get all")
    parser.add_argument("--for", dest="group", choices=["test", "demo", "bench"], help="only what these need")
    parser.add_argument("--list", action="store_true", help="say what is here, and get nothing")
    options = parser.parse_args(arguments)
    wanted = options.program or names(options.group)
    failed = 0
    for program in wanted:
        try:
            where = find(program) if options.list else path(program)
        except Failed as failure:
            print(failure, file=sys.stderr)
            failed += 1
            continue
        except KeyboardInterrupt:
            return 130
        print(where if options.program and not options.list else f"{program:16} {where or '-'}", flush=True)
    return 1 if failed else 0


def _kit_of(program: str) -> Kit:
    known = kits()
    for kit in known.values():
        if program in kit.programs:
            return kit
    every = ", ".join(sorted(name for kit in known.values() for name in kit.programs))
    raise Failed(f"there is no program {program!r} in {PINS.name}; there are: {every}")


def _in_cache(program: str, kit: Kit) -> Path | None:
    file = kit.folder / program
    return file if file.exists() else None


def _on_path(program: str, at_least: str | None) -> Path | None:
    found = shutil.which(program)
    if found is None:
        return None
    if at_least and _version(found) < _numbers(at_least):
        return None
    return Path(found)


def _version(program: str) -> tuple[int, ...]:
    """The first version number that a program prints about itself; () when it prints none."""
    for flag in ("--version", "version"):
        asked = subprocess.run([program, flag], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and (number := re.search(r"\d+(\.\d+)+", asked.stdout)):
            return _numbers(number.group())
    return ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _remove(folder: Path) -> None:
    """Remove a folder, also one with Go's read-only module cache in it."""
    if not folder.exists():
        return
    for inner, _, _ in os.walk(folder):
        Path(inner).chmod(0o700)
    shutil.rmtree(folder)
