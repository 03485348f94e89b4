"""Starting and stopping."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server import Limits, ListenError, format_address, open_sockets, parse_address
from tests.support.http_client import HOUR, PATIENT, Client, StaticPages, request, serving

SLEEPY = """
import signal, sys
from gputally.server import Endpoint, Limits, Response, Server
class Page(Endpoint):
    def respond(self, openmetrics, gzip): return Response(200, "text/plain", b"x")
limits = Limits(idle_seconds=3600, request_seconds=3600, shutdown_seconds=3600)
server = Server({"/metrics": Page()}, Page(), listen="127.0.0.1:0", limits=limits)
signal.signal(signal.SIGTERM, lambda *_: server.stop())
server.open()
print(server.port, flush=True)
server.run()
print("stopped", flush=True)
print(*sorted({"yaml", "bcrypt"} & set(sys.modules)), "loaded", flush=True)
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_signal_handler_stops_it_without_waiting_for_clients() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPY], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with Client(port) as idle, Client(port) as silent:
            assert idle.get("/healthz").status == 200
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopped\n"
            assert idle.is_hung_up()
            assert silent.is_hung_up()
        # YAML and bcrypt cost memory: without --web-config they stay out.
        assert process.stdout.read().split() == ["loaded"]
        assert process.wait(60) == 0


def test_a_response_in_progress_is_finished() -> None:
    limits = replace(PATIENT, shutdown_seconds=HOUR)
    with serving(StaticPages(size=8_000_000), limits=limits) as server, Client(server.port) as client:
        client.say(request())
        while not client.socket.recv(1, socket.MSG_PEEK):
            pass
        server.stop()
        answer = client.hear()
        assert len(answer.body) == 8_000_005
        assert client.is_hung_up()


def test_a_client_that_does_not_read_does_not_prevent_the_stop() -> None:
    server = StaticPages(size=50_000_000).server(listen="127.0.0.1:0")
    server.open()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with Client(server.port) as client:
        client.say(request())
        client.socket.recv(1, socket.MSG_PEEK)
        server.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_stop_before_run_takes_effect() -> None:
    server = StaticPages().server(listen="127.0.0.1:0")
    server.stop()
    server.run()
    server.stop()  # and after it, nothing happens


def test_two_servers_cannot_share_a_port() -> None:
    with serving() as server:
        second = StaticPages().server(listen=f"127.0.0.1:{server.port}")
        with pytest.raises(ListenError, match="another program"):
            second.open()


def test_connections_use_at_most_half_of_the_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        server = StaticPages().server(limits=replace(Limits(), connections=1000))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server._limits.connections == 100


STARVED = """
import asyncio.constants, resource, sys, threading
from gputally.server import Endpoint, Limits, Response, Server
class Page(Endpoint):
    def respond(self, openmetrics, gzip): return Response(200, "text/plain", b"x")
asyncio.constants.ACCEPT_RETRY_DELAY = 0.05  # of a second: several times in this test
limits = Limits(connections=1000, request_seconds=3600)
server = Server({"/metrics": Page()}, Page(), listen="127.0.0.1:0", limits=limits)
server.open()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
print(server.port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.stop())).start()
server.run()
"""


def test_running_out_of_descriptors_is_handled_and_logged_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARVED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline())
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        try:
            with Client(port) as client:
                assert client.get("/healthz").status == 200
        finally:
            for one in silent:
                one.close()
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read().count("cannot accept connections") == 1


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9500", "127.0.0.1", 9500),
        (":9400", "", 9400),
        ("", "", 9400),
        ("0.0.0.0", "0.0.0.0", 9400),
        ("[::1]:9401", "::1", 9401),
        ("[::1]", "::1", 9400),
        ("::1", "::1", 9400),
        ("localhost:0", "localhost", 0),
        ("gpu-node-7", "gpu-node-7", 9400),
    ],
)
def test_addresses_are_parsed(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["localhost:http", ":-1", ":65536", "[::1", "[::1]9400", ":9400x", ":٩٤٠٠"])
def test_an_invalid_address_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ListenError, match="cannot listen on") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        _, port = parse_address(text)
    except ListenError:
        return
    assert 0 <= port <= 65535


def test_a_port_in_use_is_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            open_sockets("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: another program uses it"


def test_a_port_in_use_is_detected_on_the_wildcard_address() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(ListenError, match="another program"):
        open_sockets("", taken.getsockname()[1])


def test_an_unknown_host_is_an_error_of_one_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on no-such-host\.invalid:9400: "):
        open_sockets("no-such-host.invalid", 9400)


def test_an_address_of_another_machine_is_an_error_of_one_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0: "):
        open_sockets("192.0.2.1", 0)


def test_the_wildcard_address_listens_on_both_families() -> None:
    with serving(listen=":0") as server:
        hosts = ["127.0.0.1", *(["::1"] if _has_ipv6() else [])]
        for host in hosts:
            with Client(server.port, host=host) as client:
                assert client.get("/healthz").status == 200
        assert server.url == f"http://localhost:{server.port}/"


def test_the_chosen_port_is_reported() -> None:
    with serving(listen="127.0.0.1:0") as server:
        assert server.port > 0
        assert server.url == f"http://127.0.0.1:{server.port}/"


def test_a_name_with_several_addresses_gets_one_port() -> None:
    opened = open_sockets("localhost", 0)
    try:
        assert len({found.getsockname()[1] for found in opened}) == 1
    finally:
        for found in opened:
            found.close()


def test_ipv6_addresses_are_printed_in_brackets() -> None:
    assert format_address("::1", 9400) == "[::1]:9400"
    assert format_address("127.0.0.1", 9400) == "127.0.0.1:9400"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_response_in_several_parts_does_not_wait_for_acknowledgements(host: str) -> None:
    (listening,) = open_sockets(host, 0)
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1])) as client:
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted, client:
            assert accepted.proto == socket.IPPROTO_TCP, "by which asyncio knows to turn Nagle's delay off"
