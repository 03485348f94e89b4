"""The relay beside the other sources: on its own thread, guarded, and labelled by what the snapshot knows."""

import time
from dataclasses import replace
from io import BytesIO

from gputally.guard import Record, Worker, attempt
from gputally.model import Snapshot, SourceState
from gputally.relay.source import Relay, Relayed
from gputally.relay.text import relabel
from gputally.relay.who import only_pods


class Upstream:
    """For the sampling thread alone. What it gave stays while it is slow, until that is too old."""

    def __init__(self, relay: Relay, max_age_seconds: float) -> None:
        self._relay = relay
        self._max_age_seconds = max_age_seconds
        self._record = Record(relay.name)
        self._worker = Worker(relay.name, lambda: [attempt(relay.name, relay.read)])
        self._relayed: Relayed | None = None
        self._read_at = time.monotonic()

    def start(self) -> None:
        if not self._worker.busy:
            self._absorb()
            self._worker.start()

    def finish(self, wait_seconds: float, timeout_seconds: float) -> None:
        if self._worker.wait(wait_seconds):
            self._absorb()
        else:
            self._record.overrun(timeout_seconds, "see that the exporter that is relayed runs")

    def state(self) -> SourceState:
        return self._record.state()

    def close(self, wait_seconds: float) -> None:
        if self._worker.wait(wait_seconds):
            self._relay.close()

    def relabelled(self, snapshot: Snapshot) -> Relayed | None:
        """Its text, with the pods of the snapshot; None when there is none that could be believed."""
        if self._relayed is None or time.monotonic() - self._read_at > self._max_age_seconds:
            return None
        lines = relabel(BytesIO(self._relayed.text), only_pods(snapshot), self._relayed.told)
        return replace(self._relayed, text=b"".join(lines))

    def _absorb(self) -> None:
        for one in self._worker.take():
            self._relayed = one.answer
            if self._relayed is None:
                self._record.refuse(one)
                continue
            self._read_at = one.ended_at
            self._record.read_errors = dict(self._relayed.errors)
            if self._relayed.partial:
                self._record.fail(*self._relayed.partial)
            else:
                self._record.succeed(one, f"{self._relayed.samples} samples")
