"""Each scheduled fault shows where an operator would look for it, and only there and then."""

from typing import Any

import pytest

from gputally.model import Reading
from gputally.simulator import MODEL_NAMES
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import GpuFault, GpuFaultKind, Scenario, Shape, Workload
from gputally.simulator.schedule import Moment, Span

BUSY = (Workload(shape=Shape.TRAINING, gpus=(0, 1)),)


def play(*faults: GpuFault, model: str = "h100") -> Engine:
    return Engine(Scenario(gpus=2, model=model, workloads=BUSY, faults=faults))


def fault(kind: GpuFaultKind, **how: Any) -> GpuFault:
    return GpuFault(kind=kind, gpus=(1,), **how)


def hit(engine: Engine, second: float) -> Reading:
    return engine.readings(second)[1]


def spared(engine: Engine, second: float) -> Reading:
    return engine.readings(second)[0]


def test_an_xid_is_counted_by_its_code_with_the_time_of_the_last() -> None:
    engine = play(
        fault(GpuFaultKind.XID, code=79, moment=Moment(50, 3600)),
        fault(GpuFaultKind.XID, code=31, moment=Moment(60)),
        fault(GpuFaultKind.XID, code=31, moment=Moment(70)),
    )
    assert hit(engine, 49.9).xid_errors == {}
    assert hit(engine, 50).xid_errors == {("79",): 1}
    reading = engine.readings(4000, epoch_seconds=1_000_000)[1]
    assert reading.xid_errors == {("79",): 2, ("31",): 2}
    assert reading.xid_last_timestamp_seconds == {("79",): 1_003_650, ("31",): 1_000_070}
    assert spared(engine, 4000).xid_errors == {}


def test_ecc_errors_increase_in_total_and_by_location() -> None:
    engine = play(
        fault(GpuFaultKind.ECC, moment=Moment(30, 60), corrected=2),
        fault(GpuFaultKind.ECC, moment=Moment(100), uncorrected=1, location="l2_cache"),
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


def test_some_gpus_had_errors_before_the_driver_was_loaded() -> None:
    counts = [r.ecc_errors or {} for r in Engine(Scenario(gpus=16)).readings(0)]
    assert {count["corrected", "volatile"] for count in counts} == {0}
    assert len({count["corrected", "aggregate"] for count in counts}) > 2


@pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"])
def test_throttling_limits_clocks_and_power_and_is_timed(reason: str) -> None:
    engine = play(fault(GpuFaultKind.THROTTLE, reason=reason, span=Span(200, 300)))
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


def test_thermal_throttling_has_a_high_temperature() -> None:
    engine = play(fault(GpuFaultKind.THROTTLE, reason="hw_thermal_slowdown", span=Span(200, 600)))
    assert (hit(engine, 550).temperature_celsius or 0) >= 87
    assert (spared(engine, 550).temperature_celsius or 0) < 80
    assert (hit(engine, 550).temperature_margin_celsius or 0) <= 0


def test_a_lost_gpu_has_only_its_identity_until_it_returns() -> None:
    engine = play(fault(GpuFaultKind.LOST, span=Span(100, 160)))
    who = hit(engine, 99).gpu
    assert hit(engine, 99).up
    assert hit(engine, 100) == hit(engine, 159.9) == Reading(gpu=who, up=False)
    assert spared(engine, 120).up
    assert hit(engine, 160).up
    assert (hit(engine, 160).energy_millijoules or 0) > (hit(engine, 99).energy_millijoules or 0)


def test_the_xids_with_which_a_gpu_was_lost_are_reported() -> None:
    engine = play(
        fault(GpuFaultKind.XID, code=79, moment=Moment(100)), fault(GpuFaultKind.LOST, span=Span(100, 160))
    )
    lost = engine.readings(120, epoch_seconds=1_000_000)[1]
    assert not lost.up
    assert lost.xid_errors == {("79",): 1}
    assert lost.xid_last_timestamp_seconds == {("79",): 1_000_100}
    assert lost.power_watts is None


def test_a_gpu_can_be_lost_permanently() -> None:
    engine = play(fault(GpuFaultKind.LOST, span=Span(100)))
    assert not hit(engine, 40 * 86400).up


def test_a_row_is_pending_until_a_reset_and_then_remapped() -> None:
    engine = play(fault(GpuFaultKind.ROW_REMAP_PENDING, span=Span(100, 200, 3600)))
    assert hit(engine, 99).remapped_rows_pending is False
    assert hit(engine, 150).remapped_rows_pending is True
    assert (hit(engine, 150).remapped_rows or {})["uncorrectable",] == 0
    done = hit(engine, 200)
    assert done.remapped_rows_pending is False
    assert done.remapped_rows == {("correctable",): 0, ("uncorrectable",): 1}
    assert done.remap_banks == {("max",): 2559, ("high",): 1, ("partial",): 0, ("low",): 0, ("none",): 0}
    assert (hit(engine, 3 * 3600).remapped_rows or {})["uncorrectable",] == 3
    assert done.remapped_rows_failure is False


def test_older_gpus_retire_pages() -> None:
    engine = play(fault(GpuFaultKind.ROW_REMAP_PENDING, span=Span(100, 200)), model="t4")
    assert hit(engine, 150).retired_pages_pending is True
    assert hit(engine, 300).retired_pages == {("single_bit",): 0, ("double_bit",): 1}
    assert hit(engine, 300).remapped_rows is None


def test_a_link_goes_down_and_keeps_its_errors() -> None:
    engine = play(fault(GpuFaultKind.NVLINK_DOWN, links=(2, 17), span=Span(100, 200)))
    assert set((hit(engine, 99).nvlink_up or {}).values()) == {1.0}
    assert set((hit(engine, 99).nvlink_errors or {}).values()) == {0.0}
    up = hit(engine, 150).nvlink_up or {}
    assert [link for (link,), state in up.items() if not state] == ["2", "17"]
    assert len(up) == 18
    later = hit(engine, 500)
    assert set((later.nvlink_up or {}).values()) == {1.0}
    assert {link for (link, _), count in (later.nvlink_errors or {}).items() if count} == {"2", "17"}


def test_the_most_severe_recovery_action_is_reported() -> None:
    engine = play(
        fault(GpuFaultKind.RECOVERY, action="gpu_reset", span=Span(100, 300)),
        fault(GpuFaultKind.RECOVERY, action="node_reboot", span=Span(200, 250)),
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


def test_gpu_is_not_in_the_fabric_until_it_is_registered() -> None:
    engine = play(
        fault(GpuFaultKind.FABRIC, problem="not_completed", span=Span(100, 200)),
        fault(GpuFaultKind.FABRIC, problem="failed", span=Span(200, 300)),
    )
    seen = [hit(engine, second) for second in (99, 150, 250, 300)]
    assert [(gpu.fabric_state, gpu.fabric_status) for gpu in seen] == [(3, 0), (2, None), (3, 999), (3, 0)]
    assert [gpu.fabric_clique is None for gpu in seen] == [False, True, True, False]


def test_remapping_fails_without_a_spare_row() -> None:
    engine = play(
        fault(GpuFaultKind.ROW_REMAP_PENDING, span=Span(10, 20)),
        fault(GpuFaultKind.ROW_REMAP_FAILURE, span=Span(100, 200)),
    )
    assert [hit(engine, second).remapped_rows_failure for second in (99, 100, 200)] == [False, True, False]
    banks = hit(engine, 150).remap_banks or {}
    assert banks == {("max",): 2558, ("high",): 1, ("partial",): 0, ("low",): 0, ("none",): 1}
    assert (hit(engine, 250).remap_banks or {})["none",] == 0
    assert spared(engine, 150).remapped_rows_failure is False


def test_a_link_with_errors_stays_up() -> None:
    engine = play(
        fault(GpuFaultKind.NVLINK_ERRORS, links=(4, 5), type="crc_flit", rate=0.5, span=Span(100, 200)),
        fault(GpuFaultKind.NVLINK_DOWN, links=(5,), span=Span(300, 310)),
    )
    counts = [(hit(engine, second).nvlink_errors or {})["4", "crc_flit"] for second in (100, 101, 102, 500)]
    assert counts == [0, 0, 1, 50]
    later = hit(engine, 500).nvlink_errors or {}
    assert {key: count for key, count in later.items() if count} == {
        ("4", "crc_flit"): 50,
        ("5", "crc_flit"): 50,
        ("5", "replay"): 12,
        ("5", "recovery"): 1,
    }
    assert set((hit(engine, 150).nvlink_up or {}).values()) == {1.0}


@pytest.mark.parametrize("model", ["h100", "mi300x"])
def test_a_degraded_pcie_link(model: str) -> None:
    engine = Engine(
        Scenario(
            gpus=2,
            model=model,
            workloads=BUSY,
            faults=(
                fault(GpuFaultKind.PCIE_DEGRADED, generation=1, span=Span(100, 200)),
                fault(GpuFaultKind.PCIE_DEGRADED, generation=3, width=4, span=Span(150, 300)),
            ),
        ),
        pcie_throughput=True,
    )
    seen = [hit(engine, second) for second in (99, 120, 170, 250, 300)]
    assert [(reading.pcie_generation, reading.pcie_width) for reading in seen] == [
        (5, 16),
        (1, 16),
        (1, 4),
        (3, 4),
        (5, 16),
    ]
    assert {(reading.pcie_generation_max, reading.pcie_width_max) for reading in seen} == {(5, 16)}
    moved = [(reading.pcie_throughput_bytes_per_second or {})["rx",] for reading in seen]
    assert moved[2] < moved[1] < moved[0] / 10
    assert (spared(engine, 170).pcie_generation, spared(engine, 170).pcie_width) == (5, 16)


def test_an_idle_gpu_may_be_slower_still() -> None:
    degraded = GpuFault(kind=GpuFaultKind.PCIE_DEGRADED, gpus=(0,), generation=3)
    (reading,) = Engine(Scenario(gpus=1, model="l4", faults=(degraded,))).readings(100)
    assert reading.pcie_generation == 1


@pytest.mark.parametrize("model", ["h100", "rx7900xtx"])
def test_pcie_replays_have_a_constant_rate(model: str) -> None:
    engine = play(fault(GpuFaultKind.PCIE_REPLAYS, rate=2.5, span=Span(100, 200, 3600)), model=model)
    before = hit(engine, 0).pcie_replays or 0
    counts = [(hit(engine, second).pcie_replays or 0) - before for second in (100, 110, 300, 3600 + 300)]
    assert counts == [0, 25, 250, 500]
    assert spared(engine, 300).pcie_replays == spared(engine, 0).pcie_replays


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_a_hot_gpu_is_near_its_limit_and_does_not_throttle(model: str) -> None:
    engine = play(fault(GpuFaultKind.HOT, margin_celsius=4, span=Span(600, 1800)), model=model)
    hot, cool = hit(engine, 1700), spared(engine, 1700)
    celsius = hot.temperature_celsius or 0
    if hot.temperature_slowdown_celsius is None:
        assert hot.temperature_margin_celsius in (2, 3, 4)
    else:
        assert hot.temperature_slowdown_celsius - 5 <= celsius < hot.temperature_slowdown_celsius
    assert celsius > (cool.temperature_celsius or 0) + 5
    assert (hot.throttle_active or {}).get(("hw_thermal_slowdown",)) == 0
    assert (hot.throttle_active or {}).get(("sw_thermal_slowdown",)) == 0
    after = hit(engine, 3000).temperature_celsius or 0
    assert after < celsius - 5


@pytest.mark.parametrize("model", ["a100", "mi210"])
def test_an_energy_counter_that_is_constant_and_later_has_all_energy(model: str) -> None:
    engine, well = play(fault(GpuFaultKind.ENERGY_STUCK, span=Span(100, 200)), model=model), play(model=model)
    stuck = {hit(engine, second).energy_millijoules for second in (100, 130.5, 199.9)}
    assert stuck == {hit(well, 100).energy_millijoules}
    assert (hit(engine, 150).power_watts or 0) > 0
    assert hit(engine, 200) == hit(well, 200)


def test_ras_errors_are_counted_by_block_and_in_total() -> None:
    engine = play(
        fault(GpuFaultKind.RAS, block="umc", type="corrected", count=3, moment=Moment(50, 60)),
        fault(GpuFaultKind.RAS, block="gfx", type="uncorrected", moment=Moment(100)),
        fault(GpuFaultKind.RAS, block="umc", type="deferred", count=2, moment=Moment(100)),
        model="mi300x",
    )
    assert set((hit(engine, 49).ras_errors or {}).values()) == {0}
    later = hit(engine, 120)
    assert {key: count for key, count in (later.ras_errors or {}).items() if count} == {
        ("gfx", "uncorrected"): 1,
        ("umc", "corrected"): 6,
        ("umc", "deferred"): 2,
    }
    assert later.ecc_errors == {("uncorrected", "volatile"): 1, ("corrected", "volatile"): 6}
    assert set((spared(engine, 120).ras_errors or {}).values()) == {0}


def test_an_xgmi_link_goes_down_and_comes_back() -> None:
    engine = play(fault(GpuFaultKind.XGMI_DOWN, links=(0, 6), span=Span(100, 200)), model="mi300x")
    assert set((hit(engine, 99).xgmi_up or {}).values()) == {1.0}
    assert [link for (link,), up in (hit(engine, 150).xgmi_up or {}).items() if not up] == ["0", "6"]
    assert set((hit(engine, 200).xgmi_up or {}).values()) == {1.0}
    assert set((spared(engine, 150).xgmi_up or {}).values()) == {1.0}
