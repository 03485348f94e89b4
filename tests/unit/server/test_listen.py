import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.errors import ListenError
from gputally.server.listen import format_address, open_sockets, parse_address
from tests.support.http_client import Client, serving


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
def test_addresses_are_understood(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["localhost:http", ":-1", ":65536", "[::1", "[::1]9400", ":9400x", ":٩٤٠٠"])
def test_what_is_no_address_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ListenError, match="cannot listen on") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_breaks_the_address_parser(text: str) -> None:
    try:
        _, port = parse_address(text)
    except ListenError:
        return
    assert 0 <= port <= 65535


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            open_sockets("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: another program is already using it"


def test_a_port_in_use_is_noticed_when_listening_everywhere_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(ListenError, match="already using it"):
        open_sockets("", taken.getsockname()[1])


def test_an_unknown_host_is_one_clear_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on no-such-host\.invalid:9400: "):
        open_sockets("no-such-host.invalid", 9400)


def test_an_address_of_another_machine_is_one_clear_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0: "):
        open_sockets("192.0.2.1", 0)


def test_listening_everywhere_answers_on_both_families() -> None:
    with serving(listen=":0") as server:
        hosts = ["127.0.0.1", *(["::1"] if _has_ipv6() else [])]
        for host in hosts:
            with Client(server.port, host=host) as client:
                assert client.get("/healthz").status == 200
        assert server.address == f":{server.port}"
        assert server.url == f"http://localhost:{server.port}/"


def test_listening_on_one_address_reports_the_port_that_was_picked() -> None:
    with serving(listen="127.0.0.1:0") as server:
        assert server.port > 0
        assert server.address == f"127.0.0.1:{server.port}"


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
def test_an_answer_in_several_pieces_does_not_wait_for_acknowledgements(host: str) -> None:
    (listening,) = open_sockets(host, 0)
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1])) as client:
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted, client:
            assert accepted.proto == socket.IPPROTO_TCP, "by which asyncio knows to turn Nagle's delay off"
