"""Ports for servers of this machine alone."""

import socket
from collections.abc import Iterator

import pytest

from tools import Failed
from tools.servers.ports import HOST, choose_port


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_default_port_in_use_is_replaced_and_reported(
    taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    port = choose_port("Prometheus", None, taken)
    assert port != taken
    assert capsys.readouterr().out.startswith(f"port {taken} is in use: Prometheus ")


def test_a_requested_port_in_use_is_an_error(taken: int) -> None:
    with pytest.raises(Failed, match=f"port {taken} for Prometheus: Address already in use"):
        choose_port("Prometheus", taken, 9090)


def test_a_free_port_can_be_requested(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose_port("Prometheus", 0, taken) not in (0, taken)
    assert capsys.readouterr().out == ""
