"""The relay beside the other sources: guarded, and labelled by the snapshot."""

import threading
from collections.abc import Callable
from dataclasses import replace

from gputally.model import Snapshot, Unavailable
from gputally.relay import Relay, Relayed, Upstream
from tests.unit.relay.dcgm_texts import OLD, node, snapshot
from tests.unit.relay.texts import parsed, rendered

WHOLE = Relayed(parsed(OLD).families(), 6, errors={("line", "invalid"): 3})


class Scripted(Relay):
    """A relay that follows a script, read by read."""

    def __init__(self, *looks: Callable[[], Relayed]) -> None:
        super().__init__("/nowhere", timeout_seconds=1, max_age_seconds=60)
        self._looks = list(looks)
        self.closed = False

    def read(self) -> Relayed:
        return self._looks.pop(0)()

    def close(self) -> None:
        self.closed = True


def fails() -> Relayed:
    raise Unavailable("it is gone", "start it")


def text_of(upstream: Upstream, now: Snapshot) -> str:
    relayed = upstream.relabelled(now)
    assert relayed is not None
    return b"".join(text for _, text in relayed).decode()


def look(upstream: Upstream, wait_seconds: float = 60) -> None:
    upstream.start()
    upstream.finish(wait_seconds, 4)


def test_the_text_of_the_upstream_is_labelled_by_the_current_snapshot() -> None:
    upstream = Upstream(Scripted(lambda: WHOLE), 60)
    assert upstream.relabelled(node()) is None, "it has not been asked yet"
    look(upstream)
    assert text_of(upstream, node()).count('pod_name="train-0"') == 3
    assert text_of(upstream, snapshot()) == rendered(OLD)
    state = upstream.state()
    assert (state.name, state.up, state.errors) == ("relay", True, {("line", "invalid"): 3})


def test_a_failing_upstream_has_a_reason_and_no_text_until_it_returns() -> None:
    upstream = Upstream(Scripted(lambda: WHOLE, fails, lambda: WHOLE), 60)
    look(upstream)
    look(upstream)
    assert upstream.relabelled(node()) is None
    state = upstream.state()
    assert (state.up, state.reason, state.fix, state.failures) == (False, "it is gone", "start it", 1)
    look(upstream)
    assert upstream.relabelled(node()) is not None
    assert upstream.state().up


def test_a_hanging_upstream_does_not_block_and_its_last_text_is_served_until_it_is_stale() -> None:
    gate = threading.Event()
    hanging = Scripted(lambda: WHOLE, lambda: WHOLE if gate.wait(100) else fails())
    upstream = Upstream(hanging, 60)
    look(upstream)
    look(upstream, wait_seconds=0)
    look(upstream, wait_seconds=0)
    state = upstream.state()
    assert (state.up, state.reason, state.overruns) == (False, "no answer within 4 s", 2)
    assert text_of(upstream, snapshot()) == rendered(OLD)
    gate.set()
    upstream.finish(60, 4)
    assert upstream.state().up


def test_stale_text_is_not_served() -> None:
    upstream = Upstream(Scripted(lambda: WHOLE), max_age_seconds=-1)
    look(upstream)
    assert upstream.relabelled(node()) is None


def test_truncated_text_is_served_and_reported() -> None:
    cut = replace(WHOLE, partial=("too long", "look at it"))
    upstream = Upstream(Scripted(lambda: cut), 60)
    look(upstream)
    assert upstream.relabelled(node()) is not None
    state = upstream.state()
    assert (state.up, state.reason, state.fix) == (False, "too long", "look at it")


def test_the_upstream_is_closed_once_and_then_fails() -> None:
    source = Scripted(lambda: WHOLE)
    upstream = Upstream(source, 60)
    look(upstream)
    upstream.close(1)
    assert source.closed
