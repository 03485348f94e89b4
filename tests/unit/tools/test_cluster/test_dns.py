"""The question that tells whether the cluster's name server is there."""

import struct

import pytest

from tools.test_cluster import cluster


def test_a_query_is_for_the_address_of_one_name() -> None:
    assert cluster.dns_query("a.bc") == struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + b"\1a\2bc\0\0\1\0\1"


@pytest.mark.parametrize(
    ("flags", "answers", "expected"),
    [(0x8180, 1, True), (0x8180, 0, False), (0x8183, 0, False), (0x8182, 1, False)],
    ids=["found", "no address", "no such name", "failure"],
)
def test_only_a_response_with_an_address_counts(flags: int, answers: int, expected: bool) -> None:
    assert cluster.has_address(struct.pack("!6H", 1, flags, 1, answers, 0, 0)) is expected


def test_an_incomplete_response_is_none() -> None:
    assert not cluster.has_address(b"\0\1\x81")
