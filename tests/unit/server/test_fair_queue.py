"""Who is verified next."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.fair_queue import REMEMBERED_FAILURES, FairQueue, source_of


@dataclass(eq=False)
class Login:
    source: bytes
    number: int = 0
    gone: bool = False


def queue_of(sources: str, limit: int = 1000) -> FairQueue[Login]:
    queue: FairQueue[Login] = FairQueue(limit)
    for number, source in enumerate(sources):
        queue.add(Login(source.encode(), number))
    return queue


def order(queue: FairQueue[Login]) -> str:
    taken = ""
    while login := queue.take():
        taken += login.source.decode()
    return taken


def test_addresses_take_turns() -> None:
    assert order(queue_of("aaaabbc")) == "abcabaa"


def test_an_address_keeps_the_order_of_its_logins() -> None:
    queue = queue_of("aaa")
    assert [login.number for _ in range(3) if (login := queue.take())] == [0, 1, 2]


def test_a_newcomer_waits_for_one_login_of_each_other_address() -> None:
    queue = queue_of("aaaabbbb")
    assert queue.take()
    queue.add(Login(b"c"))
    assert order(queue).index("c") == 2


def test_addresses_whose_last_login_was_wrong_come_last() -> None:
    queue = queue_of("aabbc")
    queue.failed(b"a")
    queue.failed(b"b")
    queue.add(Login(b"b"))
    assert order(queue) == "cababb"


def test_a_right_login_ends_the_penalty() -> None:
    queue = queue_of("ab")
    queue.failed(b"a")
    queue.succeeded(b"a")
    queue.add(Login(b"a"))
    assert order(queue) == "baa"


def test_clients_that_have_gone_are_left_out() -> None:
    queue = queue_of("ab")
    queue.add(Login(b"c", gone=True))
    queue.add(Login(b"b"))
    assert order(queue) == "abb"


def test_a_full_queue_drops_clients_that_have_gone_first() -> None:
    queue = queue_of("ab", limit=3)
    queue.add(Login(b"c", gone=True))
    assert queue.add(Login(b"d")) is None
    assert order(queue) == "abd"


def test_a_flood_displaces_itself() -> None:
    queue = queue_of("aaaa", limit=4)
    displaced = [queue.add(Login(source.encode(), 9)) for source in "bcda"]
    assert [login.number for login in displaced if login] == [3, 2, 1, 9]
    assert order(queue) == "abcd"


def test_an_address_without_a_wrong_login_displaces_one_with() -> None:
    queue = queue_of("ab", limit=2)
    queue.failed(b"a")
    displaced = queue.add(Login(b"c"))
    assert displaced is not None
    assert displaced.source == b"a"
    refused = queue.add(Login(b"a"))
    assert refused is not None
    assert refused.source == b"a"


def test_wrong_logins_of_endless_addresses_use_bounded_memory() -> None:
    queue = queue_of("")
    for number in range(2 * REMEMBERED_FAILURES):
        queue.failed(number.to_bytes(4))
    assert len(queue._failures) == REMEMBERED_FAILURES


@given(
    st.text(st.sampled_from("abcdefgh"), max_size=60),
    st.sets(st.sampled_from("abcdefgh")),
    st.integers(1, 20),
)
def test_no_login_waits_for_two_of_another_address(sources: str, wrong: set[str], limit: int) -> None:
    queue: FairQueue[Login] = FairQueue(limit)
    for source in wrong:
        queue.failed(source.encode())
    displaced = [queue.add(Login(source.encode())) for source in sources]
    assert len(queue) == min(limit, len(sources))
    taken = order(queue)
    assert len(taken) + sum(login is not None for login in displaced) == len(sources)
    for source in set(taken) - wrong:
        ahead = Counter(taken[: taken.index(source)])
        assert all(count == 1 for count in ahead.values())
        assert not wrong & ahead.keys()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "192.0.2.1", False),
    ],
)
def test_a_host_counts_once_whatever_ipv6_addresses_it_takes(one: str, other: str, same: bool) -> None:
    assert (source_of(one) == source_of(other)) is same
