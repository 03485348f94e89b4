"""From an expression that gives samples, or does not, to an alert that fires."""

from hypothesis import given
from hypothesis import strategies as st

from tools.replay.firing import firing_of
from tools.replay.fleet import Period
from tools.replay.rule_files import AlertRule

START = 1_794_700_800


def fires(story: str, *, waits: str = "", keeps: str = "") -> str:
    """`x` is a minute in which the expression gives a sample; the answer has `F` where the alert fires."""
    period = Period(START, START + 60 * (len(story) - 1), 60)
    alert = AlertRule("Down", "up == 0", 60 * len(waits), 60 * len(keeps))
    active = {number for number, mark in enumerate(story) if mark == "x"}
    answer = ["."] * len(story)
    for found in firing_of(alert, {(("node", "n1"),): active}, period) if active else ():
        for number in range(round((found.first - START) / 60), round((found.last - START) / 60) + 1):
            answer[number] = "F"
    return "".join(answer)


def test_an_alert_without_for_fires_with_its_expression() -> None:
    assert fires("..xx.x") == "..FF.F"


def test_an_alert_fires_after_its_for_without_interruption() -> None:
    assert fires("xxxx.xxxx.", waits="mmm") == "...F....F."
    assert fires("xxx.xxx", waits="mmm") == "......."


def test_an_alert_fires_for_its_keep_firing_for() -> None:
    assert fires("x.....", keeps="mm") == "FFF..."


def test_an_alert_that_returns_during_keep_firing_for_continues() -> None:
    assert fires("xx..x....", waits="m", keeps="mmm") == ".FFFFFFF."


def test_an_alert_that_returns_later_is_pending_again() -> None:
    assert fires("xx...xx", waits="m", keeps="m") == ".FF...F"


def test_a_pending_alert_is_not_kept() -> None:
    assert fires("x...", waits="m", keeps="mmm") == "...."


def test_a_for_that_is_not_a_multiple_of_the_step_ends_at_the_next_step() -> None:
    period = Period(START, START + 300, 60)
    (found,) = firing_of(AlertRule("Down", "up == 0", 90), {(): set(range(6))}, period)
    assert (found.first, found.last) == (START + 120, START + 300)


@given(st.text("x.", max_size=30), st.text("m", max_size=4), st.text("m", max_size=4))
def test_the_result_equals_the_evaluation_of_single_steps(story: str, waits: str, keeps: str) -> None:
    """The rule of Prometheus, evaluation by evaluation."""
    expected, active_for, kept_for, is_firing = "", 0, 0, False
    for mark in story:
        if mark == "x":
            is_firing, active_for, kept_for = is_firing or active_for >= len(waits), active_for + 1, 0
        elif is_firing and kept_for < len(keeps):
            kept_for += 1
        else:
            is_firing, active_for, kept_for = False, 0, 0
        expected += "F" if is_firing else "."
    if story:
        assert fires(story, waits=waits, keeps=keeps) == expected
