"""Each scheduled fault shows where an operator would look for it, and only there and then."""

from typing import Any

import pytest

from gputally.devices.simulated.engine import Engine
from gputally.devices.simulated.scenario import Fault, FaultKind, Scenario, Shape, Workload
from gputally.devices.simulated.schedule import Moment, Span
from gputally.model import Reading

BUSY = (Workload(shape=Shape.TRAINING, gpus=(0, 1)),)


def play(*faults: Fault, model: str = "h100") -> Engine:
    return Engine(Scenario(gpus=2, model=model, workloads=BUSY, faults=faults))


def fault(kind: FaultKind, **how: Any) -> Fault:
    return Fault(kind=kind, gpus=(1,), **how)


def hit(engine: Engine, second: float) -> Reading:
    return engine.readings(second)[1]


def spared(engine: Engine, second: float) -> Reading:
    return engine.readings(second)[0]


def test_an_xid_is_counted_by_its_code_with_the_time_of_the_last() -> None:
    engine = play(
        fault(FaultKind.XID, code=79, moment=Moment(50, 3600)),
        fault(FaultKind.XID, code=31, moment=Moment(60)),
        fault(FaultKind.XID, code=31, moment=Moment(70)),
    )
    assert hit(engine, 49.9).xid_errors == {}
    assert hit(engine, 50).xid_errors == {("79",): 1}
    reading = engine.readings(4000, epoch_seconds=1_000_000)[1]
    assert reading.xid_errors == {("79",): 2, ("31",): 2}
    assert reading.xid_last_timestamp_seconds == {("79",): 1_003_650, ("31",): 1_000_070}
    assert spared(engine, 4000).xid_errors == {}


def test_ecc_errors_grow_in_all_and_where_they_were_found() -> None:
    engine = play(
        fault(FaultKind.ECC, moment=Moment(30, 60), corrected=2),
        fault(FaultKind.ECC, moment=Moment(100), uncorrected=1, location="l2_cache"),
    )
    before, after = hit(engine, 0), hit(engine, 151)
    assert before.ecc_errors is not None
    assert after.ecc_errors is not None
    assert before.ecc_errors["corrected", "volatile"] == 0
    assert after.ecc_errors["corrected", "volatile"] == 6
    assert after.ecc_errors["corrected", "aggregate"] == before.ecc_errors["corrected", "aggregate"] + 6
    assert after.ecc_errors["uncorrected", "volatile"] == after.ecc_errors["uncorrected", "aggregate"] == 1
    assert after.ecc_location_errors is not None
    assert after.ecc_location_errors["corrected", "volatile", "device_memory"] == 6
    assert after.ecc_location_errors["uncorrected", "volatile", "l2_cache"] == 1
    for (kind, lifetime), total in after.ecc_errors.items():
        places = [n for key, n in after.ecc_location_errors.items() if key[:2] == (kind, lifetime)]
        assert sum(places) == total


def test_some_cards_had_errors_before_their_driver_was_loaded() -> None:
    counts = [r.ecc_errors or {} for r in Engine(Scenario(gpus=16)).readings(0)]
    assert {count["corrected", "volatile"] for count in counts} == {0}
    assert len({count["corrected", "aggregate"] for count in counts}) > 2


@pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"])
def test_throttling_holds_clocks_and_power_down_and_is_timed(reason: str) -> None:
    engine = play(fault(FaultKind.THROTTLE, reason=reason, span=Span(200, 300)))
    normal, throttled, after = (hit(engine, second) for second in (199, 250, 301))
    assert normal.throttle_active is not None
    assert throttled.throttle_active is not None
    assert normal.throttle_active[reason,] == 0
    assert throttled.throttle_active[reason,] == 1
    assert throttled.throttle_active["hw_slowdown",] == float(reason.startswith("hw_"))
    assert throttled.clock_hertz is not None
    assert normal.clock_hertz is not None
    assert throttled.clock_hertz["sm",] < 0.6 * normal.clock_hertz["sm",]
    assert (throttled.power_watts or 0) < 0.75 * (normal.power_watts or 0)
    assert (after.throttle_seconds or {})[reason,] == 100
    assert (hit(engine, 250.5).throttle_seconds or {})[reason,] == 50.5
    assert (spared(engine, 400).throttle_seconds or {})[reason,] == 0


def test_thermal_throttling_comes_with_heat() -> None:
    engine = play(fault(FaultKind.THROTTLE, reason="hw_thermal_slowdown", span=Span(200, 600)))
    assert (hit(engine, 550).temperature_celsius or 0) >= 87
    assert (spared(engine, 550).temperature_celsius or 0) < 80
    assert (hit(engine, 550).temperature_margin_celsius or 0) <= 0


def test_a_lost_gpu_tells_only_who_it_is_until_it_is_back() -> None:
    engine = play(fault(FaultKind.LOST, span=Span(100, 160)))
    who = hit(engine, 99).gpu
    assert hit(engine, 99).up
    assert hit(engine, 100) == hit(engine, 159.9) == Reading(gpu=who, up=False)
    assert spared(engine, 120).up
    assert hit(engine, 160).up
    assert (hit(engine, 160).energy_millijoules or 0) > (hit(engine, 99).energy_millijoules or 0)


def test_a_gpu_can_be_lost_for_good() -> None:
    engine = play(fault(FaultKind.LOST, span=Span(100)))
    assert not hit(engine, 40 * 86400).up


def test_a_row_waits_for_a_reset_and_is_remapped_after_it() -> None:
    engine = play(fault(FaultKind.ROW_REMAP_PENDING, span=Span(100, 200, 3600)))
    assert hit(engine, 99).remapped_rows_pending is False
    assert hit(engine, 150).remapped_rows_pending is True
    assert (hit(engine, 150).remapped_rows or {})["uncorrectable",] == 0
    done = hit(engine, 200)
    assert done.remapped_rows_pending is False
    assert done.remapped_rows == {("correctable",): 0, ("uncorrectable",): 1}
    assert done.remap_banks == {("max",): 2559, ("high",): 1, ("partial",): 0, ("low",): 0, ("none",): 0}
    assert (hit(engine, 3 * 3600).remapped_rows or {})["uncorrectable",] == 3
    assert done.remapped_rows_failure is False


def test_older_cards_retire_pages_instead() -> None:
    engine = play(fault(FaultKind.ROW_REMAP_PENDING, span=Span(100, 200)), model="t4")
    assert hit(engine, 150).retired_pages_pending is True
    assert hit(engine, 300).retired_pages == {("single_bit",): 0, ("double_bit",): 1}
    assert hit(engine, 300).remapped_rows is None


def test_a_link_goes_down_and_its_errors_stay() -> None:
    engine = play(fault(FaultKind.NVLINK_DOWN, links=(2, 17), span=Span(100, 200)))
    assert set((hit(engine, 99).nvlink_up or {}).values()) == {1.0}
    assert set((hit(engine, 99).nvlink_errors or {}).values()) == {0.0}
    up = hit(engine, 150).nvlink_up or {}
    assert [link for (link,), state in up.items() if not state] == ["2", "17"]
    assert len(up) == 18
    later = hit(engine, 500)
    assert set((later.nvlink_up or {}).values()) == {1.0}
    assert {link for (link, _), count in (later.nvlink_errors or {}).items() if count} == {"2", "17"}


def test_the_recovery_action_is_the_gravest_that_is_asked_for() -> None:
    engine = play(
        fault(FaultKind.RECOVERY, action="gpu_reset", span=Span(100, 300)),
        fault(FaultKind.RECOVERY, action="node_reboot", span=Span(200, 250)),
    )

    def asked(second: int) -> list[str]:
        return [action for (action,), on in (hit(engine, second).recovery_action or {}).items() if on]

    assert [asked(second) for second in (99, 150, 220, 260, 300)] == [
        ["none"],
        ["gpu_reset"],
        ["node_reboot"],
        ["gpu_reset"],
        ["none"],
    ]
