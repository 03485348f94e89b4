"""The checks of the soak: what each of them objects to."""

import pytest

from tools.soaking.scrapes import Invalid, Memory, Scrape, grown, read

RETENTION = 15.0


def scrape(
    *, joules: float = 10.5, pod: float = 4.25, active: int = 1, at: float = 100.0, begin: float = 1.0
) -> str:
    gpu = 'gpu="0",uuid="GPU-a"'
    names = f'{{{gpu},namespace="ml",pod="train",container="main"'
    return f"""# TYPE gputally_gpu_energy_joules counter
gputally_gpu_energy_joules_total{{{gpu}}} {joules}
gputally_gpu_unattributed_energy_joules_total{{{gpu},reason="idle"}} 6.25
gputally_gpu_ledger_start_timestamp_seconds{{{gpu}}} {begin}
gputally_pod_energy_joules_total{names},basis="measured"}} {pod}
gputally_pod_active{names}}} {active}
gputally_source_up{{source="nvml"}} 1
gputally_snapshot_timestamp_seconds {at}
process_start_time_seconds 7
other_relayed{{text="a \\"b\\" \\\\ {{}}"}} 3
"""


def problems(memory: Memory, text: str) -> list[str]:
    return list(memory.problems(read(text)))


def test_a_scrape_is_read() -> None:
    found = read(scrape())
    assert found.totals == {"GPU-a": 10_500}
    assert found.accounts["GPU-a"] == {("unattributed", "idle"): 6_250, ("pod", "ml", "train", "main"): 4_250}
    assert found.active == {("pod", "ml", "train")}
    assert (found.sources, found.snapshot_at, found.started_at) == ({"nvml": 1.0}, 100.0, 7.0)
    assert not found.missing()


def test_every_scrape_that_is_right_is_accepted() -> None:
    memory = Memory(RETENTION)
    texts = (scrape(), scrape(joules=11.5, pod=5.25), scrape(joules=11.5, pod=5.25, active=0, at=101))
    assert [problems(memory, text) for text in texts] == [[], [], []]


def test_a_millijoule_in_no_account_is_found() -> None:
    assert problems(Memory(RETENTION), scrape(joules=10.501)) == [
        "GPU GPU-a: 1 mJ of its counter are in no account"
    ]


def test_a_counter_that_decreases_is_found() -> None:
    memory = Memory(RETENTION)
    problems(memory, scrape())
    assert any("energy_joules_total" in one for one in problems(memory, scrape(joules=9.5, pod=3.25)))


def test_a_ledger_that_begins_again_may_count_from_less() -> None:
    memory = Memory(RETENTION)
    problems(memory, scrape())
    assert problems(memory, scrape(joules=9.5, pod=3.25, begin=2.0)) == []


def test_series_that_outlive_the_retention_are_found() -> None:
    memory = Memory(RETENTION)
    problems(memory, scrape(active=0, at=100))
    assert problems(memory, scrape(active=0, at=115)) == []
    assert problems(memory, scrape(active=0, at=128)) == [
        "pod/ml/train/main is still served 13.0 s after its retention"
    ]


@pytest.mark.parametrize(
    "line", ["no value", 'up{a="1} 2', 'up{a="1"b="2"} 3 {', "gputally_gpu_energy_joules_total 1"]
)
def test_what_prometheus_cannot_read_is_invalid(line: str) -> None:
    with pytest.raises(Invalid):
        read(f"{scrape()}{line}\n")


def test_a_series_that_is_there_twice_is_invalid() -> None:
    with pytest.raises(Invalid, match="twice"):
        read(scrape() * 2)


def test_what_expired_owners_leave_is_no_charge() -> None:
    expired = ("unattributed", "expired")
    before = {("pod", "ml", "gone"): 5, ("pod", "ml", "here"): 1, expired: 2}
    after = {("pod", "ml", "here"): 4, ("pod", "ml", "new"): 1, expired: 7}
    assert grown(before, after) == {("pod", "ml", "here"): 3, ("pod", "ml", "new"): 1}


def test_a_scrape_without_gpus_is_read() -> None:
    assert read("").totals == Scrape().totals
