"""The paths of the live page, and what they cost while no one asks."""

import json
import re
import zlib
from dataclasses import replace

import pytest

from gputally.model import Gpu, Reading, Snapshot, SourceState
from gputally.pages import Endpoints, document
from gputally.pages.about import About
from gputally.pages.live import MOST_STREAMS
from gputally.server import Response

ABOUT = About(version="1.2.3", hostname="gpu-node-7", interval_seconds=5)
PATHS = ("/api/v1/snapshot", "/api/v1/history", "/api/v1/stream")
SNAPSHOT = Snapshot(
    taken_at_seconds=1_800_000_000.0,
    age_seconds=0,
    readings=(Reading(gpu=Gpu("GPU-0", 0, "nvidia", "H100"), gpu_utilization_ratio=0.5),),
    sources=(SourceState(name="nvml", up=True),),
)


def endpoints(about: About | None = ABOUT, metrics_path: str = "/metrics") -> Endpoints:
    return Endpoints(
        lambda _: [], metrics_path=metrics_path, hostname="gpu-node-7", max_age_seconds=60, about=about
    )


def get(served: Endpoints, target: str, gzip: bool = False) -> Response:
    path, _, query = target.partition("?")
    return served.by_path[path].narrowed(query).respond(False, gzip)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The snapshots of which a document was made."""
    made: list[Snapshot] = []
    build = document.build_document

    def counted(snapshot: Snapshot, previous: Snapshot | None, about: About) -> dict[str, object]:
        made.append(snapshot)
        return build(snapshot, previous, about)

    monkeypatch.setattr(document, "build_document", counted)
    return made


class Listener:
    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def offer(self, message: bytes) -> None:
        self.messages.append(message)

    def beat(self, heartbeat: bytes) -> None:
        self.messages.append(heartbeat)


class Loop:
    """As much of an event loop as a broadcast uses."""

    def call_soon_threadsafe(self, call: object, *arguments: object) -> None:
        call(*arguments)  # type: ignore[operator]

    def call_soon(self, call: object, *arguments: object) -> None:
        call(*arguments)  # type: ignore[operator]

    def call_later(self, seconds: float, call: object) -> "Loop":  # noqa: ARG002
        return self

    def cancel(self) -> None:
        pass


def test_the_snapshot_is_served_as_json() -> None:
    served = endpoints()
    served.publish(SNAPSHOT)
    response = get(served, "/api/v1/snapshot")
    found = json.loads(response.body)
    assert (response.status, response.content_type) == (200, "application/json")
    assert found["gpus"][0]["utilization_ratio"] == 0.5
    packed = get(served, "/api/v1/snapshot", gzip=True)
    assert dict(packed.headers)["Content-Encoding"] == "gzip"
    assert zlib.decompress(packed.body, wbits=31) == response.body


def test_the_history_has_the_published_snapshots() -> None:
    served = endpoints()
    served.publish(SNAPSHOT)
    found = json.loads(get(served, "/api/v1/history").body)
    assert (found["version"], found["gpus"][0]["utilization_ratio"]) == (1, [0.5])
    packed = get(served, "/api/v1/history", gzip=True)
    assert json.loads(zlib.decompress(packed.body, wbits=31)) == found


def test_before_the_first_sample_it_waits() -> None:
    assert json.loads(get(endpoints(), "/api/v1/snapshot").body)["severity"] == "waiting"
    assert json.loads(get(endpoints(), "/api/v1/history").body)["gpus"] == []


def test_nothing_is_made_while_no_one_asks_and_once_for_all_who_do(made: list[Snapshot]) -> None:
    served = endpoints()
    served.publish(SNAPSHOT)
    assert made == []
    for _ in range(3):
        get(served, "/api/v1/snapshot")
        get(served, "/api/v1/snapshot", gzip=True)
        get(served, "/api/v1/stream")
    assert made == [SNAPSHOT]


def test_listeners_share_one_message_for_each_snapshot(made: list[Snapshot]) -> None:
    served = endpoints()
    stream = get(served, "/api/v1/stream").stream
    assert stream is not None
    listeners = [Listener() for _ in range(20)]
    for listener in listeners:
        stream.join(listener, Loop())  # type: ignore[arg-type]
    made.clear()
    served.publish(SNAPSHOT)
    served.publish(replace(SNAPSHOT, taken_at_seconds=SNAPSHOT.taken_at_seconds + 5))
    assert len(made) == 2
    assert len({id(listener.messages[-1]) for listener in listeners}) == 1
    event, data, *end = listeners[0].messages[-1].split(b"\n")
    assert (event, end) == (b"event: snapshot", [b"", b""])
    assert json.loads(data.removeprefix(b"data: "))["taken_at_seconds"] == SNAPSHOT.taken_at_seconds + 5


def test_a_stream_begins_with_the_newest_snapshot() -> None:
    served = endpoints()
    served.publish(SNAPSHOT)
    response = get(served, "/api/v1/stream")
    assert response.content_type == "text/event-stream"
    first = b"".join(map(bytes, (response.body, *response.more)))
    assert first.startswith(b"retry: 5000\n\nevent: snapshot\ndata: {")
    assert first.endswith(b"}\n\n")


def test_the_number_of_streams_is_bounded() -> None:
    served = endpoints()
    stream = get(served, "/api/v1/stream").stream
    assert stream is not None
    for _ in range(MOST_STREAMS):
        assert get(served, "/api/v1/stream").status == 200
        stream.join(Listener(), Loop())  # type: ignore[arg-type]
    refused = get(served, "/api/v1/stream")
    assert (refused.status, refused.stream) == (503, None)
    assert dict(refused.headers)["Retry-After"] == "60"


def test_the_page_loads_only_its_own_files_and_lets_no_text_become_html() -> None:
    page = get(endpoints(), "/")
    policy = dict(page.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy
    assert "require-trusted-types-for 'script'" in policy
    text = page.body.decode()
    assert "<style" not in text
    assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", text)


def test_its_files_are_kept_by_browsers_for_as_long_as_they_are_the_same() -> None:
    served = endpoints()
    named = re.findall(r'(?:href|src)="(live\.\w+\?\w+)"', get(served, "/").body.decode())
    assert [name.partition("?")[0] for name in named] == ["live.svg", "live.css", "live.js"]
    for name in named:
        kept = get(served, f"/{name}")
        assert "immutable" in dict(kept.headers)["Cache-Control"]
        plain = get(served, f"/{name.partition('?')[0]}")
        other = get(served, f"/{name.partition('?')[0]}?00000000")
        assert dict(plain.headers)["Cache-Control"] == dict(other.headers)["Cache-Control"] == "no-cache"
        packed = get(served, f"/{name}", gzip=True)
        assert zlib.decompress(packed.body, wbits=31) == kept.body == plain.body


def test_it_can_be_disabled() -> None:
    served = endpoints(about=None)
    served.publish(SNAPSHOT)
    assert list(served.by_path) == ["/", "/metrics"]
    assert b"script" not in get(served, "/").body


def test_metrics_keep_a_path_of_the_page_that_they_were_given() -> None:
    served = endpoints(metrics_path="/api/v1/snapshot")
    assert get(served, "/api/v1/snapshot").content_type.startswith("text/plain")


def test_other_paths_can_be_served_with_metrics_at_the_root() -> None:
    served = endpoints(metrics_path="/")
    assert get(served, "/").content_type.startswith("text/plain")
    assert set(PATHS) < set(served.by_path)
