"""External programs (promtool, prometheus, nvidia-smi ...): found on PATH, or got once into a cache.

The cache is $GPUTALLY_CACHE/programs, or ~/.cache/gputally/programs, with one folder per kit and version.
A kit is made beside its place and renamed into it under a lock, so two runs may start together, and what
is there is whole. Versions stand in programs.toml, and how each is got in recipes.py.

Kits that are got together share a folder, for Go's caches, so that what they have in common is downloaded and
compiled once. For all kits it grows to 15 GB, and it goes when the last one is ready.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from tools import ROOT, Failed
from tools.dependencies import recipes
from tools.dependencies.locking import locked, used_together
from tools.dependencies.progress import Work

PINS = ROOT / "tools" / "programs.toml"


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
    def minutes(self) -> float:
        minutes: float = self.settings.get("minutes", 0)
        return minutes

    @property
    def title(self) -> str:
        return f"{self.name} {self.settings['version']}"

    @property
    def folder(self) -> Path:
        # The digest makes a changed pin or build tag a new folder: an old build never passes for it.
        made_from = {name: value for name, value in self.settings.items() if name != "minutes"}
        digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:8]
        return cache() / "programs" / f"{self.name}-{self.settings['version']}-{digest}"


@dataclass(frozen=True, slots=True)
class Together:
    """What the kits that are got in one call have in common."""

    folder: Path
    alone: bool
    """Whether it is one kit only, so that its progress has the screen for itself."""
    stop: Event


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
    """Where a program is; got first if need be. Raises Failed."""
    found = find(program)
    if found is None:
        if failures := get([program]):
            raise failures[0]
        found = _kit_of(program).folder / program
    return found


def get(wanted: Iterable[str]) -> list[Failed]:
    """Get those of these programs that are not here, two kits at a time, and return what went wrong.

    Inside a test run nothing is got: a build takes minutes and a test has two.
    """
    missing = {program: _kit_of(program) for program in wanted if find(program) is None}
    if missing and "PYTEST_VERSION" in os.environ:
        advice = "is neither on PATH nor in {}: run `tools/programs {}` first"
        return [Failed(f"{program} {advice.format(cache(), program)}") for program in missing]
    kits_to_get = {kit.name: kit for kit in missing.values()}
    together = Together(cache() / "programs" / ".shared", len(kits_to_get) == 1, Event())
    # A folder that is there although nothing is to be got was left by a run that was killed.
    if not kits_to_get and not together.folder.exists():
        return []
    with used_together(together.folder, _remove):
        return _install_all(kits_to_get.values(), together)


def install(kit: Kit, together: Together) -> Path:
    """Make a kit in the cache, unless it is there, and return its folder. Raises Failed."""
    folder = kit.folder
    with locked(folder.with_name(f".{folder.name}.lock"), kit.title, together.stop):
        if not folder.exists():
            # Under the lock whatever stands here was left by a run that was killed.
            unfinished = folder.with_name(f".{folder.name}.unfinished")
            _remove(unfinished)
            scratch = unfinished / "scratch"
            into = unfinished / "kit"
            for new in (scratch, into):
                new.mkdir(parents=True)
            log = folder.with_name(f"{folder.name}.log")
            work = Work(kit.title, log, alone=together.alone, stop=together.stop)
            recipe = recipes.RECIPES[kit.settings["recipe"]]
            recipe(
                recipes.Job(
                    version=kit.settings["version"],
                    programs=kit.programs,
                    settings=kit.settings,
                    into=into,
                    scratch=scratch,
                    shared=together.folder,
                    work=work,
                    find=lambda program: find(program) or install(_kit_of(program), together) / program,
                )
            )
            into.rename(folder)
            _remove(unfinished)
            work.say(f"ready after {time.monotonic() - work.started:.0f} s, in {folder}")
    return folder


def _install_all(kits_to_get: Iterable[Kit], together: Together) -> list[Failed]:
    """One thread begins with the longest, the other with the shortest: downloads go on beside compilers."""
    line = deque(sorted(kits_to_get, key=lambda kit: kit.minutes, reverse=True))
    failures: list[Failed] = []

    def work_off(next_kit: Callable[[], Kit]) -> None:
        while not together.stop.is_set():
            try:
                kit = next_kit()
            except IndexError:
                return
            try:
                install(kit, together)
            except Failed as failure:
                failures.append(failure)

    with ThreadPoolExecutor() as threads:
        try:
            for thread in [threads.submit(work_off, end) for end in (line.popleft, line.pop)]:
                thread.result()
        except BaseException:
            together.stop.set()
            raise
    return failures


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
