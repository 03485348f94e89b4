"""Who owns which pid: remembers where a process lives, for as long as it is the same process."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gputally.attribution.join import Directory, Whose, name_owner
from gputally.attribution.procfs import ProcessFacts, read_process, read_start_time, sees_host
from gputally.model import Owner, Unknown


@dataclass(slots=True)
class _Known:
    facts: ProcessFacts
    owner: Whose


class Owners:
    """A process is its pid and its start time: a pid that was given to another process is looked up anew."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._known: dict[int, _Known] = {}

    def find(self, pids: Iterable[int], directory: Directory) -> dict[int, Whose]:
        """Whose these processes are; what is not asked for any more is forgotten."""
        known: dict[int, _Known] = {}
        owners: dict[int, Whose] = {}
        for pid in dict.fromkeys(pids):
            one = self._look(pid)
            if isinstance(one, Unknown):
                owners[pid] = one
                continue
            known[pid] = one
            whose = name_owner(one.facts.place, one.facts.name, directory)
            # A name that was known stays, also when the kubelet has cleaned up after the pod.
            if isinstance(whose, Owner) or not isinstance(one.owner, Owner):
                one.owner = whose
            owners[pid] = one.owner
        self._known = known
        if not sees_host(self._procfs, owners) and set(owners.values()) == {Unknown("exited")}:
            return dict.fromkeys(owners, Unknown("pid_namespace"))
        return owners

    def _look(self, pid: int) -> _Known | Unknown:
        before = self._known.get(pid)
        if before is not None:
            started = read_start_time(self._procfs, pid)
            if started is None or started == before.facts.start_time_ticks:
                return before  # it has ended since the driver listed it, or still runs: the same process
        facts = read_process(self._procfs, pid)
        return facts if isinstance(facts, Unknown) else _Known(facts, Unknown("unknown_pod"))
