"""The live page of a running exporter, in a real browser and with many clients."""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme

from gputally.pages.live import MOST_STREAMS
from tests.support import browser
from tests.support.exporter import Exporter
from tests.support.http_client import Client, request
from tests.system.conftest import Watch
from tools.dependencies import programs
from tools.servers.waiting import wait_until

# The browser waits for pods and faults that come every half minute, on a busy machine for longer.
pytestmark = pytest.mark.timeout(600)

DRIVER = Path(browser.__file__).with_name("live_page.js")
SCENARIO = """
gpus = 3
[[workload]]
shape = "training"
gpus = [0]
pod = "nlp/pretrain-0"
[[workload]]
shape = "inference"
gpus = [1]
start = "10s"
stop = "20s"
every = "30s"
pod = "media/visitor-{run}"
requested = false
[[fault]]
kind = "xid"
gpus = [2]
code = 79
at = "14s"
every = "30s"
[[fault]]
kind = "lost"
gpus = [2]
start = "15s"
stop = "25s"
every = "30s"
"""
Json = dict[str, Any]


def drive(directory: Path, url: str, *parts: str, login: Json | None = None) -> dict[str, Json]:
    """What the browser found, by part."""
    pictures = browser.pictures()
    task = {
        "axe": str(programs.path("axe-core")),
        "url": url,
        "login": login,
        "pictures": str(pictures),
        "parts": parts,
    }
    return {found["part"]: found for found in browser.drive(directory, DRIVER, task)}


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    directory = tmp_path_factory.mktemp("exporter")
    scenario = directory / "scenario.toml"
    scenario.write_text(SCENARIO)
    with Exporter(
        directory / "log", "simulate", "--scenario", str(scenario), "--interval", "1s", "--process-metrics"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def seen(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    parts = ("changes", "visits", "loss", "looks", "keyboard")
    return drive(tmp_path_factory.mktemp("browser"), f"http://{exporter.address}/", *parts)


def test_values_change_without_a_reload(seen: dict[str, Json]) -> None:
    found = seen["changes"]
    assert len(found["values"]) == 3
    assert (found["loads"], found["connection"]) == (1, "live")


def test_a_pod_that_comes_and_goes_appears_and_disappears(seen: dict[str, Json]) -> None:
    found = seen["visits"]
    assert "not requested" in found["text"]
    assert "media" in found["text"]
    assert (found["isSame"], found["loads"]) == (True, 1)


def test_a_lost_gpu_turns_red_with_its_reason_and_is_announced(seen: dict[str, Json]) -> None:
    found = seen["loss"]
    assert found["before"] != found["after"]
    red, green, blue = (int(number) for number in found["after"].removeprefix("rgb(").rstrip(")").split(","))
    assert red > max(green, blue)
    assert "XID 79" in found["reason"]
    assert "XID 79" in found["announced"]
    assert "1 of 3 GPUs lost" in found["status"]
    assert found["loads"] == 1


def test_it_can_be_used_with_the_keyboard_alone(seen: dict[str, Json]) -> None:
    found = seen["keyboard"]
    assert (found["paused"], found["isFrozen"]) == ("paused", True)
    assert found["before"].startswith("Utilisation")
    assert found["after"].startswith("Memory")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_no_violation_and_nothing_is_wider_than_the_screen(
    seen: dict[str, Json], look: str
) -> None:
    found = seen["looks"][look]
    assert found["violations"] == []
    assert found["passes"] > 20
    assert not found["isTooWide"]


def test_the_browser_complains_about_nothing(seen: dict[str, Json]) -> None:
    complaints = {part: found["said"] for part, found in seen.items() if "said" in found}
    complaints |= {look: seen["looks"][look]["said"] for look in ("light", "dark", "phone")}
    assert {part: said for part, said in complaints.items() if said} == {}


def listen(stack: ExitStack, exporter: Exporter, number: int) -> list[Client]:
    """Clients with open streams, each of which has its first message."""
    clients = []
    for _ in range(number):
        client = stack.enter_context(Client(int(exporter.address.rpartition(":")[2])))
        clients.append(client.say(request("/api/v1/stream")))
    for client in clients:
        read_message(client)
    return clients


def read_message(client: Client) -> Json:
    """The next whole snapshot of a stream."""
    received = b""
    while not (received.endswith(b"}\n\n") and b"data: " in received):
        piece = client.socket.recv(65536)
        assert piece, received[-500:]
        received += piece
    found: Json = json.loads(received.rpartition(b"data: ")[2])
    return found


def test_with_fifty_open_streams_every_scrape_is_answered(exporter: Exporter, watched: Watch) -> None:
    with ExitStack() as stack, watched(exporter):
        clients = listen(stack, exporter, 50)
        times = [[read_message(client)["taken_at_seconds"] for client in clients] for _ in range(3)]
    for first, second in pairwise(times):
        assert all(before < after for before, after in zip(first, second, strict=True))


def test_a_page_without_a_stream_reads_the_json(exporter: Exporter, tmp_path: Path) -> None:
    with ExitStack() as stack:
        listen(stack, exporter, MOST_STREAMS)
        status, reason = exporter.get("/api/v1/stream")
        assert (status, str(MOST_STREAMS) in reason.decode()) == (503, True)
        found = drive(tmp_path, f"http://{exporter.address}/", "refused")["refused"]
    assert found["gpus"] == 3
    assert all("503" in text for text in found["said"])
    wait_until(lambda: can_listen(exporter), "there is room for a stream again")


def can_listen(exporter: Exporter) -> bool:
    with Client(int(exporter.address.rpartition(":")[2])) as client:
        client.say(request("/api/v1/stream"))
        return client.socket.recv(12) == b"HTTP/1.1 200"


def test_it_works_behind_tls_and_a_login(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for place, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(tmp_path / "cert.pem", append=place > 0)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
        f"basic_auth_users: {{ada: {hashed}}}\n"
    )
    arguments = ("simulate", "--interval", "1s", "--web-config", str(web))
    with Exporter(tmp_path / "log", *arguments) as exporter:
        port = int(exporter.address.rpartition(":")[2])
        context = ssl.create_default_context()
        authority.configure_trust(context)
        for path in ("/", "/live.js", "/api/v1/snapshot", "/api/v1/history", "/api/v1/stream"):
            with Client(port, context) as stranger:
                assert stranger.get(path).status == 401
        login = {"username": "ada", "password": "secret"}
        found = drive(tmp_path, f"https://{exporter.address}/", "changes", login=login)["changes"]
    assert (len(found["values"]), found["connection"]) == (3, "live")


def test_without_the_live_page_there_is_neither_page_nor_json(tmp_path: Path) -> None:
    with Exporter(tmp_path / "log", "simulate", "--live-page", "false") as exporter:
        assert [
            exporter.get(path)[0] for path in ("/", "/live.js", "/api/v1/snapshot", "/api/v1/stream")
        ] == [
            200,
            404,
            404,
            404,
        ]
