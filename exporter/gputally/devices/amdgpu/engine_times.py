"""How long each client of the driver ran on each engine between two looks."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gputally.devices.amdgpu.fdinfo import ClientKey, Held, Task


@dataclass(frozen=True, slots=True)
class _Known:
    engine_ns: Mapping[str, int]
    holders: frozenset[Task]


class EngineTimes:
    """Remembers the counters of the last look."""

    def __init__(self) -> None:
        self._known: dict[ClientKey, _Known] = {}

    def advance(
        self, held: Iterable[Held], pids: Collection[int], elapsed_ns: int | None
    ) -> dict[ClientKey, Mapping[str, int] | None]:
        """By client and engine, the time since the last look; None when it cannot be told.

        `elapsed_ns` is None on the first look. `pids` are the processes that still are: what is known of
        a client stays until the last of its holders ends, since a file that cannot be read today may be
        read tomorrow.
        """
        times: dict[ClientKey, Mapping[str, int] | None] = {}
        known = {
            key: one for key, one in self._known.items() if any(task.pid in pids for task in one.holders)
        }
        for one in held:
            before = self._known.get(one.client.key)
            if before is not None and _other_client(before, one):
                before = None
            times[one.client.key] = _time_since(before, one, elapsed_ns)
            known[one.client.key] = _Known(_highest(before, one), one.holders)
        self._known = known
        return times


def _other_client(before: _Known, one: Held) -> bool:
    """Whether a reloaded driver gave the id again: less time than before, and nobody of those who had it."""
    now = one.client.engine_ns
    return before.holders.isdisjoint(one.holders) and any(
        now.get(engine, 0) < ns for engine, ns in before.engine_ns.items()
    )


def _time_since(before: _Known | None, one: Held, elapsed_ns: int | None) -> dict[str, int] | None:
    if elapsed_ns is None:
        return None
    most = {engine: elapsed_ns * one.client.capacity.get(engine, 1) for engine in one.client.engine_ns}
    if before is not None:
        return {
            engine: min(max(ns - before.engine_ns.get(engine, 0), 0), most[engine])
            for engine, ns in one.client.engine_ns.items()
        }
    # What ran longer than there was time was open before, wherever it was.
    if one.fresh and all(ns <= most[engine] for engine, ns in one.client.engine_ns.items()):
        return dict(one.client.engine_ns)
    return None


def _highest(before: _Known | None, one: Held) -> dict[str, int]:
    """Counters may step back for a while; the larger value holds until they have caught up."""
    highest = dict(before.engine_ns) if before is not None else {}
    for engine, ns in one.client.engine_ns.items():
        highest[engine] = max(ns, highest.get(engine, 0))
    return highest
