"""External programs (promtool, prometheus, nvidia-smi ...), installed once into a cache.

A program decides the results of tests, so the pinned one is used even if PATH has another. GPUTALLY_PROGRAMS
(`name=path,name=path`; a name alone is looked up on PATH) replaces pinned programs by the user's own.

The cache is $GPUTALLY_CACHE/programs or ~/.cache/gputally/programs. It has one directory per program set and
version. A set is built in a temporary directory and renamed under a lock: two runs may start at the same
time, and a directory is complete. tools/programs.toml has the versions, recipes.py the ways to build.

Sets that are built in the same call share Go's caches, so that common modules are downloaded and compiled
once. For all sets these caches grow to 15 GB; they are removed after the last set.
"""

import hashlib
import json
import os
import shutil
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from tools import ROOT, Failed, Missing
from tools.dependencies import fetching, recipes
from tools.dependencies.locking import locked, shared_directory
from tools.dependencies.progress import Work

PINS = ROOT / "tools" / "programs.toml"
GROUPS = ("fast", "test", "cluster", "demo", "bench")
OWN = "GPUTALLY_PROGRAMS"
CACHE = "GPUTALLY_CACHE"
NOT_OF_THE_BUILD = {"minutes", "needed_by", "any_version", "only_for"}
"""Settings that decide when a set is built, and not what is built."""


@dataclass(frozen=True, slots=True)
class ProgramSet:
    """The programs of one build or download: a table of programs.toml."""

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
    def directory(self) -> Path:
        # The digest gives a changed pin or build tag another directory: an old build is never used for it.
        made_from = {name: value for name, value in self.settings.items() if name not in NOT_OF_THE_BUILD}
        digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:8]
        return cache() / "programs" / f"{self.name}-{self.settings['version']}-{digest}"


@dataclass(frozen=True, slots=True)
class Batch:
    """What the sets that are built in one call share."""

    directory: Path
    single: bool
    """Whether it is one set only: its progress may overwrite its line on the screen."""
    stop: Event


def cache() -> Path:
    """The directory of everything that is downloaded or built; never inside the repository."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputally"


def program_sets(pins: Path = PINS) -> dict[str, ProgramSet]:
    return {name: ProgramSet(name, settings) for name, settings in tomllib.loads(pins.read_text()).items()}


def names(group: str | None = None) -> list[str]:
    """The programs that one of GROUPS needs; without a group, those of all groups."""
    return [
        program
        for each in program_sets().values()
        if (group in each.needed_by if group else each.needed_by)
        for program in each.programs
    ]


def find(program: str) -> Path | None:
    """The path of a program; None when it is not installed. Raises Failed."""
    owner = _set_of(program)
    if own := _own().get(program):
        return own
    if owner.settings.get("any_version") and (found := shutil.which(program)):
        return Path(found)
    file = owner.directory / program
    return file if file.exists() else None


def path(program: str) -> Path:
    """The path of a program, which is installed first if needed. Raises Failed; in a test run, Missing."""
    found = find(program)
    if found is None:
        if failures := install([program]):
            raise failures[0]
        found = _set_of(program).directory / program
    return found


def usual_minutes() -> dict[str, float]:
    """Of each set, by its title: how long it is built on two processors."""
    return {each.title: each.minutes for each in program_sets().values()}


def install(wanted: Iterable[str], *, in_order: bool = False) -> list[Failed]:
    """Installs the programs that are missing, two sets at a time, and returns the failures.

    With `in_order` those that are named first are begun first; otherwise the order is that of the shortest
    time in all. Inside a test run nothing is installed: a build takes minutes, and a test may take two.
    """
    missing = {program: _set_of(program) for program in wanted if find(program) is None}
    if missing and "PYTEST_VERSION" in os.environ:
        return [
            Missing(f"{program} is not in {cache()}; run `tools/programs {program}`") for program in missing
        ]
    sets = {each.name: each for each in missing.values()}
    batch = Batch(cache() / "programs" / ".shared", len(sets) == 1, Event())
    # With nothing to install, a directory that exists was left by a run that was killed.
    if not sets and not batch.directory.exists():
        return []
    with shared_directory(batch.directory, _remove):
        return _build_all(sets.values(), batch, in_order=in_order)


def build(program_set: ProgramSet, batch: Batch) -> Path:
    """The directory of a set in the cache, which is built unless it exists. Raises Failed."""
    directory = program_set.directory
    with locked(directory.with_name(f".{directory.name}.lock"), program_set.title, batch.stop):
        if not directory.exists():
            # Under the lock, a directory of this name was left by a run that was killed.
            unfinished = directory.with_name(f".{directory.name}.unfinished")
            into = unfinished / "programs"
            log = directory.with_name(f"{directory.name}.log")
            work = Work(program_set.title, log, alone=batch.single, stop=batch.stop)

            def make() -> None:
                _remove(unfinished)
                for new in (unfinished / "scratch", into):
                    new.mkdir(parents=True)
                recipes.RECIPES[program_set.settings["recipe"]](
                    recipes.BuildJob(
                        version=program_set.settings["version"],
                        programs=program_set.programs,
                        settings=program_set.settings,
                        into=into,
                        scratch=unfinished / "scratch",
                        shared=batch.directory,
                        work=work,
                        find=lambda program: find(program) or build(_set_of(program), batch) / program,
                    )
                )

            owners = program_set.settings.get("only_for")
            fetching.fetched(make, work, program_set.name, [owners] if owners else [*program_set.programs])
            into.rename(directory)
            _remove(unfinished)
            work.say(f"ready after {time.monotonic() - work.started:.0f} s, in {directory}")
    return directory


def _build_all(sets: Iterable[ProgramSet], batch: Batch, *, in_order: bool) -> list[Failed]:
    """One thread starts with the longest build, the other with the shortest, so that downloads and compilers
    run at the same time.
    """
    queue = deque(sets if in_order else sorted(sets, key=lambda each: each.minutes, reverse=True))
    ends = (queue.popleft, queue.popleft if in_order else queue.pop)
    failures: list[Failed] = []

    def work(next_set: Callable[[], ProgramSet]) -> None:
        while not batch.stop.is_set():
            try:
                program_set = next_set()
            except IndexError:
                return
            try:
                build(program_set, batch)
            except Failed as failure:
                failures.append(failure)

    with ThreadPoolExecutor() as threads:
        try:
            for thread in [threads.submit(work, end) for end in ends]:
                thread.result()
        except BaseException:
            batch.stop.set()
            raise
    return failures


def _set_of(program: str) -> ProgramSet:
    known = program_sets()
    for each in known.values():
        if program in each.programs:
            return each
    allowed = ", ".join(sorted(name for each in known.values() for name in each.programs))
    raise Failed(f"{program!r} is not in {PINS.name}; allowed: {allowed}")


def _own() -> dict[str, Path]:
    """The programs that the user chose by the variable OWN."""
    chosen: dict[str, Path] = {}
    for choice in filter(None, os.environ.get(OWN, "").split(",")):
        program, _, where = choice.partition("=")
        _set_of(program)
        where = where or program
        # Some "programs" are directories of files.
        found = where if os.sep in where and Path(where).is_dir() else shutil.which(where)
        if found is None:
            raise Failed(f"{OWN} has {choice!r}, and {where} is no executable; give {program}=PATH")
        chosen[program] = Path(found).absolute()
    return chosen


def _remove(directory: Path) -> None:
    """Removes a directory, even with Go's read-only module cache in it."""
    if not directory.exists():
        return
    for inner, _, _ in os.walk(directory):
        Path(inner).chmod(0o700)
    shutil.rmtree(directory)
