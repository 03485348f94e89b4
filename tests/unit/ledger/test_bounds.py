"""However many names there are, the ledger keeps no more than those of the retention, and never too many."""

import pytest

import gputally.ledger
from gputally.ledger.state_file import Saved, decode, encode
from tests.support.ledger_samples import (
    SECOND,
    assert_balanced,
    new_ledger,
    nobodys,
    pod,
    reading,
    resident,
    settle,
)

RETENTION = 300
BOOT = "boot"


def test_fifty_thousand_pod_names_in_an_hour_leave_those_of_the_retention() -> None:
    ledger = new_ledger(boot_id=BOOT)
    per_minute, most = 840, 0
    for minute in range(60):
        names = (f"bomb-{minute}-{number}" for number in range(per_minute))
        crowd = [resident(pid, pod(name)) for pid, name in enumerate(names)]
        settle(ledger, 60 * minute, reading(100 * minute), crowd)
        ledger.expire(60 * minute * SECOND)
        most = max(most, len(ledger.charges()))
    assert 60 * per_minute > 50_000
    assert most <= (RETENTION // 60 + 1) * per_minute
    assert len(encode(Saved(ledger.state(), 1.0, 1))) < most * 400
    assert_balanced(ledger)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gputally.ledger, "MOST_OWNERS", 10)


@pytest.mark.usefixtures("few")
def test_beyond_the_limit_the_owners_that_left_first_expire_early_and_are_counted() -> None:
    ledger = new_ledger(boot_id=BOOT)
    for at in range(12):
        settle(ledger, at, reading(100 * at), [resident(1, pod(f"train-{at}"))])
    assert [charge.owner.pod for charge in ledger.charges()] == [f"train-{n}" for n in range(2, 12)]
    assert nobodys(ledger)["expired"] > 0
    assert ledger.problems() == {("owners", "limit"): 2}
    assert_balanced(ledger)


@pytest.mark.usefixtures("few")
def test_energy_of_owners_for_whom_there_is_no_room_is_of_an_unknown_owner() -> None:
    ledger = new_ledger(boot_id=BOOT)
    crowd = [resident(pid, pod(f"train-{pid}"), busy=1) for pid in range(20)]
    for at in range(3):
        settle(ledger, at, reading(1000 * at), crowd)
    assert len(ledger.charges()) == 10
    assert nobodys(ledger) == {"unknown": 1000}
    assert ledger.problems() == {("owners", "limit"): 30}
    assert_balanced(ledger)


def test_what_a_full_ledger_saves_can_be_read() -> None:
    """With the longest names that Kubernetes has."""
    ledger = new_ledger(boot_id=BOOT)
    crowd = [
        resident(
            pid,
            pod(
                f"{pid:253d}".replace(" ", "x"),
                "c" * 63,
                pod_uid="00000000-0000-4000-8000-000000000000",
                container_id="f" * 64,
            ),
        )
        for pid in range(gputally.ledger.MOST_OWNERS + 1)
    ]
    for at in (0, 5, 10):
        settle(ledger, at, reading(10 * at), crowd)
    assert len(ledger.charges()) == gputally.ledger.MOST_OWNERS
    saved = Saved(ledger.state(), 1.0, 1)
    assert decode(encode(saved)) == saved
