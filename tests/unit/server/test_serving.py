"""Starting and stopping."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from gputally.server import Limits, ListenError, Server
from tests.support.http_client import Client, StaticPages, request, serving

SLEEPY = """
import signal, sys
from gputally.server import Page, Server
class Pages:
    def metrics(self, path, openmetrics, gzip): return Page("text/plain", b"x")
    def landing(self): return Page("text/html", b"x")
    def ready(self): return True, "ready"
server = Server(Pages(), listen="127.0.0.1:0")
signal.signal(signal.SIGTERM, lambda *_: server.stop())
server.open()
print(server.port, flush=True)
server.run()
print("stopped", flush=True)
print(*sorted({"yaml", "bcrypt"} & set(sys.modules)), "loaded", flush=True)
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_signal_handler_can_stop_it_in_time() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPY], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with Client(port) as idle, Client(port) as silent:
            assert idle.get("/healthz").status == 200
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopped\n"
            assert time.monotonic() - started < 2
            assert idle.is_hung_up()
            assert silent.is_hung_up()
        # YAML and bcrypt cost memory: without --web-config they stay out.
        assert process.stdout.read().split() == ["loaded"]
        assert process.wait(10) == 0


def test_an_answer_in_flight_is_finished() -> None:
    with serving(StaticPages(size=8_000_000)) as server, Client(server.port) as client:
        client.say(request())
        while not client.socket.recv(1, socket.MSG_PEEK):
            pass
        server.stop()
        answer = client.hear()
        assert len(answer.body) == 8_000_005
        assert client.is_hung_up()


def test_a_client_that_does_not_read_cannot_keep_it_from_stopping() -> None:
    server = Server(StaticPages(size=50_000_000), listen="127.0.0.1:0")
    server.open()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with Client(server.port) as client:
        client.say(request())
        client.socket.recv(1, socket.MSG_PEEK)
        server.stop()
        thread.join(3)
        assert not thread.is_alive()


def test_stop_before_run_is_not_forgotten() -> None:
    server = Server(StaticPages(), listen="127.0.0.1:0")
    server.stop()
    server.run()
    server.stop()  # and after it, nothing happens


def test_two_servers_cannot_share_a_port() -> None:
    with serving() as server:
        second = Server(StaticPages(), listen=f"127.0.0.1:{server.port}")
        with pytest.raises(ListenError, match="already using it"):
            second.open()


def test_there_are_never_more_connections_than_half_of_the_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        server = Server(StaticPages(), limits=replace(Limits(), connections=1000))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server._limits.connections == 100


STARVED = """
import resource, sys, threading
from gputally.server import Limits, Page, Server
class Pages:
    def metrics(self, path, openmetrics, gzip): return Page("text/plain", b"x")
    def landing(self): return Page("text/html", b"x")
    def ready(self): return True, "ready"
server = Server(Pages(), listen="127.0.0.1:0", limits=Limits(connections=1000, request_seconds=3600))
server.open()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
print(server.port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.stop())).start()
server.run()
"""


def test_running_out_of_descriptors_is_survived_and_said_once() -> None:
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
        assert process.wait(10) == 0
        assert process.stderr.read().count("cannot accept connections") == 1
