"""The protobuf reader against what the protobuf package writes, and against noise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.kubelet_grpc import Message
from tests.support.kubelet_server import message


@given(st.binary(max_size=200))
def test_random_bytes_are_a_value_error_or_a_message(noise: bytes) -> None:
    try:
        read = Message(noise)
        for number in range(1, 20):
            read.flag(number)
            read.text(number)
            list(read.texts(number))
            read.message(number)
            list(read.messages(number))
            read.text_map(number)
    except ValueError:
        pass


@given(st.dictionaries(st.text(), st.text()), st.integers(0, 2**63 - 1), st.text())
def test_fields_are_read_and_unknown_ones_skipped(labels: dict[str, str], generation: int, name: str) -> None:
    metadata = message("k8s.io.api.core.v1.ObjectMeta", labels=labels, generation=generation, name=name)
    read = Message(metadata.SerializeToString())

    assert read.text_map(11) == labels
    assert read.flag(7) is (generation != 0)
    assert read.text(1) == name
    assert read.text(999) == ""
    assert list(read.messages(999)) == []


def test_fixed_numbers_of_a_newer_kubelet_are_skipped() -> None:
    read = Message(b"\x31" + bytes(8) + b"\x3d" + bytes(4) + b"\x0a\x01x")  # fields 6, 7 and 1
    assert read.text(1) == "x"


def test_the_last_of_several_values_is_used_and_parts_of_a_message_are_merged() -> None:
    parts = b"\x0a\x03\x0a\x01a" + b"\x0a\x03\x12\x01b" + b"\x0a\x03\x0a\x01c"
    merged = Message(parts).message(1)

    assert (merged.text(1), merged.text(2)) == ("c", "b")


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"\x0a\x05abc", "ends after"),
        (b"\x31\x00", "ends after"),
        (b"\x08" + b"\x80" * 11, "no end"),
        (b"\x80", "no end"),
        (b"\x02\x00", "number 0"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends after"),
    ],
)
def test_malformed_bytes_are_described_in_the_error(encoded: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Message(encoded)


def test_invalid_utf8_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        Message(b"\x0a\x01\xff").text(1)
