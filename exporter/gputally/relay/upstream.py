"""The relay beside the other sources: on its own thread, guarded, and labelled by what the snapshot knows."""

import time
from dataclasses import replace
from io import BytesIO

from gputally.model import Snapshot
from gputally.relay.source import Relay, Relayed
from gputally.relay.text import relabel
from gputally.relay.who import only_pods
from gputally.sampling.guard import Attempt, Guarded, Record


class Upstream(Guarded):
    """What it gave stays while it is slow, until that is too old."""

    def __init__(self, relay: Relay, max_age_seconds: float) -> None:
        super().__init__([relay], "see that the exporter that is relayed runs")
        self._max_age_seconds = max_age_seconds
        self._relayed: Relayed | None = None
        self._read_at = time.monotonic()

    def relabelled(self, snapshot: Snapshot) -> Relayed | None:
        """Its text, with the pods of the snapshot; None when there is none that could be believed."""
        if self._relayed is None or time.monotonic() - self._read_at > self._max_age_seconds:
            return None
        lines = relabel(BytesIO(self._relayed.text), only_pods(snapshot), self._relayed.told)
        return replace(self._relayed, text=b"".join(lines))

    def _take_in(self, one: Attempt, record: Record) -> None:
        self._relayed = one.result
        if self._relayed is None:
            record.fail(one)
            return
        self._read_at = one.ended_at
        record.read_errors = dict(self._relayed.errors)
        if self._relayed.partial:
            record.mark_down(*self._relayed.partial)
        else:
            record.succeed(one, f"{self._relayed.samples} samples")
