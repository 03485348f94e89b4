"""Waiting for a condition."""

import pytest

from tools import Failed
from tools.servers.waiting import responds, wait_until


def test_the_first_true_result_is_returned() -> None:
    results = iter(["", "", "third", "fourth"])
    assert wait_until(lambda: next(results), "there is one") == "third"


def test_a_timeout_names_the_condition_the_last_error_and_the_state() -> None:
    def fail() -> bool:
        raise OSError("refused")

    with pytest.raises(Failed, match=r"0\.01 s: data arrive: refused\nnothing yet"):
        wait_until(fail, "data arrive", 0.01, ignore=(OSError,), state=lambda: "nothing yet")


def test_an_error_that_is_not_ignored_and_a_failed_check_end_the_wait() -> None:
    def fail() -> bool:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        wait_until(fail, "data arrive")
    with pytest.raises(OSError, match="refused"):
        wait_until(lambda: False, "data arrive", check=fail)


def test_a_closed_port_does_not_respond() -> None:
    assert not responds("http://127.0.0.1:1/readyz")
