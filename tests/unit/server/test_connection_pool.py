"""Which connection is evicted and when, with a loop whose clock the test moves."""

import asyncio
from collections.abc import Callable
from typing import cast

from gputally.server.connection import SWEEP_SECONDS, ConnectionPool


class Handle:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class StandingLoop:
    """As much of an event loop as the pool uses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.handles: list[Handle] = []
        self.wakes = 0

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> Handle:
        self.handles.append(Handle(at, call))
        return self.handles[-1]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [handle for handle in self.handles if not handle.cancelled and handle.at <= end]:
            first = min(due, key=lambda handle: handle.at)
            self.handles.remove(first)
            self.now = max(self.now, first.at)
            self.wakes += 1
            first.call()
        self.now = end


class Client:
    def __init__(self, pool: ConnectionPool, known: bool = False) -> None:
        self.pool = pool
        self.known = known
        self.deadline = 0.0
        self.aborted = False
        self.retired = False

    def abort(self) -> None:
        self.aborted = True
        self.pool.remove(self)

    def retire(self) -> None:
        self.retired = True


def pool_of(limit: int) -> tuple[StandingLoop, ConnectionPool]:
    loop = StandingLoop()
    return loop, ConnectionPool(cast(asyncio.AbstractEventLoop, loop), limit)


def join(pool: ConnectionPool, count: int, known: bool = False, seconds: float = 5.0) -> list[Client]:
    clients = [Client(pool, known) for _ in range(count)]
    for client in clients:
        pool.wait(client, seconds)
    return clients


def test_the_longest_waiting_connection_is_evicted_for_a_new_one() -> None:
    _, pool = pool_of(3)
    first, second, third = join(pool, 3)
    pool.wait(first, 5.0)  # has just been heard of
    (newcomer,) = join(pool, 1)
    assert [first.aborted, second.aborted, third.aborted, newcomer.aborted] == [False, True, False, False]
    assert len(pool) == 3


def test_connections_with_a_response_in_progress_are_not_evicted() -> None:
    _, pool = pool_of(2)
    busy, waiting = join(pool, 2)
    pool.respond(busy, 5.0)
    join(pool, 5)
    assert waiting.aborted
    assert not busy.aborted


def test_many_idle_connections_do_not_evict_scrapers() -> None:
    _, pool = pool_of(10)
    scrapers = join(pool, 4, known=True)
    join(pool, 1000)
    assert not any(scraper.aborted for scraper in scrapers)
    assert len(pool) == 10


def test_clients_that_stay_after_one_request_leave_time_for_new_ones() -> None:
    _, pool = pool_of(10)
    join(pool, 10, known=True)
    newcomer, *_ = join(pool, 4)
    assert not newcomer.aborted


def test_clients_that_do_not_read_are_evicted_if_none_is_waiting() -> None:
    _, pool = pool_of(3)
    clients = join(pool, 3)
    for client in clients:
        pool.respond(client, 5.0)
        pool.stall(client, 5.0)
    (newcomer,) = join(pool, 1)
    assert [client.aborted for client in clients] == [True, False, False]
    assert not newcomer.aborted


def test_only_connections_past_their_deadline_are_closed() -> None:
    loop, pool = pool_of(10)
    (quick,) = join(pool, 1, seconds=5.0)
    (patient,) = join(pool, 1, seconds=150.0)
    loop.pass_time(4.9)
    assert not quick.aborted
    loop.pass_time(0.1 + 2 * SWEEP_SECONDS)
    assert quick.aborted
    assert not patient.aborted
    loop.pass_time(150)
    assert patient.aborted


def test_a_scraper_every_15_seconds_needs_no_periodic_timer() -> None:
    loop, pool = pool_of(10)
    (scraper,) = join(pool, 1, known=True, seconds=150.0)
    for _ in range(240):  # an hour
        loop.pass_time(15.0)
        pool.respond(scraper, 20.0)
        pool.wait(scraper, 150.0)
    assert not scraper.aborted
    assert loop.wakes < 240
    assert len([handle for handle in loop.handles if not handle.cancelled]) == 1


def test_an_empty_pool_sets_no_timer() -> None:
    loop, pool = pool_of(10)
    (client,) = join(pool, 1)
    client.abort()
    loop.pass_time(3600)
    assert not [handle for handle in loop.handles if not handle.cancelled]
    assert pool.empty.is_set()


def test_when_descriptors_run_out_half_of_the_waiting_connections_are_closed() -> None:
    _, pool = pool_of(100)
    strangers = join(pool, 20)
    (busy,) = join(pool, 1)
    pool.respond(busy, 5.0)
    pool.shed()
    assert sum(stranger.aborted for stranger in strangers) == 10
    assert not busy.aborted


def test_on_shutdown_every_connection_is_notified() -> None:
    _, pool = pool_of(10)
    waiting, busy = join(pool, 2)
    pool.respond(busy, 5.0)
    pool.retire()
    assert waiting.retired
    assert busy.retired
    pool.abort()
    assert waiting.aborted
    assert busy.aborted
    assert pool.empty.is_set()
