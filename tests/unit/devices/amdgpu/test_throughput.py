"""PCIe throughput, of all cards at once."""

import errno
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices import Errors
from gputally.devices.amdgpu import files, parse_packets, read_throughput
from tests.support.amd_trees import plant, planted
from tests.unit.devices.amdgpu.trees import device, fail_files

MI250 = [device(planted("mi250"), card) for card in (0, 1)]


def test_throughput_is_packets_times_their_maximum_size() -> None:
    errors: Errors = Counter()
    measured = read_throughput(MI250, errors)
    assert measured == {card: {("rx",): 1834 * 256, ("tx",): 20711 * 256} for card in MI250}
    assert not errors


def test_a_card_without_support_is_omitted() -> None:
    errors: Errors = Counter()
    assert read_throughput([device(planted("apu"), 1)], errors) == {}
    assert not errors


def test_all_cards_measure_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(len(MI250), timeout=30)
    read = files.read_file

    def read_together(path: str) -> bytes:
        if path.endswith("/pcie_bw"):
            together.wait()
        return read(path)

    monkeypatch.setattr(files, "read_file", read_together)
    errors: Errors = Counter()
    assert read_throughput(MI250, errors).keys() == set(MI250)
    assert not errors


def test_failures_and_malformed_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = plant("mi250", tmp_path)
    directories = [device(tree, card) for card in (0, 1)]
    (directories[0] / "pcie_bw").write_text("12 34\n")
    fail_files(monkeypatch, errno.EBUSY, lambda path: path == directories[1] / "pcie_bw")
    errors: Errors = Counter()
    assert read_throughput(directories, errors) == {}
    field = "pcie_throughput_bytes_per_second"
    assert errors == {(field, "malformed"): 1, (field, "ebusy"): 1}


def test_a_suspended_card_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = device(plant("mi210", tmp_path), 0)
    (directory / "power").mkdir()
    (directory / "power/runtime_status").write_text("suspended\n")
    fail_files(monkeypatch, errno.EIO, lambda path: path.name == "pcie_bw")
    errors: Errors = Counter()
    assert read_throughput([directory], errors) == {}
    assert not errors


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(128, 4096))
def test_received_is_the_first_value(received: int, sent: int, most_bytes: int) -> None:
    assert parse_packets(f"{received} {sent} {most_bytes}") == {
        ("rx",): received * most_bytes,
        ("tx",): sent * most_bytes,
    }


@given(st.text() | st.text(alphabet="0123456789 -\n"))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    parse_packets(text)
