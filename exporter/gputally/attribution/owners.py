"""Who owns which pid: remembers where a process lives, for as long as it is the same process."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gputally.attribution import Found
from gputally.attribution.join import Directory, Whose, name_owner
from gputally.attribution.procfs import ProcessFacts, read_process, read_start_time, sees_host
from gputally.model import Owner, Unknown

_EXITED = Unknown("exited")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Known:
    facts: ProcessFacts
    owner: Whose
    started_at_seconds: float
    former: Whose | None = None
    new: bool = True


class Owners:
    """A process is its pid and its start time: a pid that was given to another process is looked up anew."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._known: dict[int, _Known] = {}

    def find(
        self, listed: Iterable[int], directory: Directory, ended: Iterable[int] = ()
    ) -> dict[int, Found]:
        """Whose these processes are, and those that have ended; what is not asked for is forgotten."""
        listed = tuple(listed)
        known: dict[int, _Known] = {}
        found: dict[int, Found] = {}
        for pid in dict.fromkeys((*listed, *ended)):
            one = self._look(pid)
            if isinstance(one, Unknown):
                found[pid] = Found(one)
                continue
            known[pid] = one
            whose = name_owner(one.facts.place, one.facts.name, directory)
            # A name that was known stays, also when the kubelet has cleaned up after the pod.
            if isinstance(whose, Owner) or not isinstance(one.owner, Owner):
                one.owner = whose
            found[pid] = Found(one.owner, one.started_at_seconds, one.new, one.former)
            one.new, one.former = False, None
        self._known = known
        if all(found[pid].owner == _EXITED for pid in listed) and not sees_host(self._procfs, listed):
            return dict.fromkeys(found, Found(Unknown("pid_namespace")))
        return found

    def _look(self, pid: int) -> _Known | Unknown:
        before = self._known.get(pid)
        if before is not None:
            started = read_start_time(self._procfs, pid)
            if started is None or started == before.facts.start_time_ticks:
                return before  # it has ended since the driver listed it, or still runs: the same process
        facts = read_process(self._procfs, pid)
        if isinstance(facts, Unknown):
            return facts
        booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        started_at = round(booted_at + facts.start_time_ticks / _TICKS, 2)
        return _Known(facts, Unknown("unknown_pod"), started_at, before.owner if before else None)
