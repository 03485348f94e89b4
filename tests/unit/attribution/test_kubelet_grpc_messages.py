"""The protobuf reader against what the protobuf package writes, and against noise."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.kubelet_grpc import Message
from gputally.attribution.pod_resources import parse_pods
from gputally.model import Unavailable
from tools.standin.kubelet import message


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


MIB = 1 << 20
TINY_FIELD = b"\x7a\0"  # field 15, which no message has, and no bytes


def chunk(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return bytes([number << 3 | 2, *_varint(len(content))]) + content


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


def pod_with_devices(nth: int, devices: int) -> bytes:
    ids = b"".join(chunk(2, b"GPU-%d-%d" % (nth, number)) for number in range(devices))
    container = chunk(1, b"main") + chunk(2, chunk(1, b"nvidia.com/gpu") + ids)
    return chunk(1, chunk(1, b"train-%d" % nth) + chunk(2, b"nlp") + chunk(3, container))


TOO_MANY_FIELDS = "the kubelet's answer is too large: more than 500000 fields, or 10000 in one message"


@pytest.mark.parametrize(
    "bomb",
    [TINY_FIELD * (8 * MIB), b"\x0a\0" * (8 * MIB)],
    ids=["tiny fields", "tiny pods"],
)
def test_a_bomb_of_tiny_fields_is_refused_before_it_fills_the_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Unavailable, match=TOO_MANY_FIELDS):
            parse_pods(bomb)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_a_bomb_of_many_small_messages_is_refused() -> None:
    with pytest.raises(Unavailable, match=TOO_MANY_FIELDS):
        parse_pods(chunk(1, TINY_FIELD * 9_999) * 60)


def test_a_message_in_thousands_of_parts_is_not_copied() -> None:
    part = chunk(1, bytes(4096))
    whole = chunk(3, part) * 4000
    tracemalloc.start()
    try:
        assert len(Message(whole).message(3).text(1)) == 4096
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_node_with_300_pods_that_share_eight_gpus_in_eight_containers_is_read() -> None:
    device = chunk(2, chunk(1, b"nvidia.com/gpu") + b"".join(chunk(2, b"GPU-%d" % nth) for nth in range(8)))
    pod = b"".join(chunk(3, chunk(1, b"container-%d" % nth) + device) for nth in range(8))
    answer = b"".join(chunk(1, chunk(1, b"pod-%d" % nth) + chunk(2, b"nlp") + pod) for nth in range(300))

    assert len(parse_pods(answer)) == 300
