"""The default scenario shows everything there is to see, on any number of any card, every day."""

import pytest

from gputally.simulator import MODEL_NAMES
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.scenario import GpuFaultKind, ScenarioError, Shape
from gputally.simulator.schedule import DAY


@pytest.mark.parametrize("gpus", [1, 2, 3, 5, 7, 8, 9, 16, 1024])
def test_all_shapes_occur_on_any_number_of_gpus(gpus: int) -> None:
    scenario = default_scenario(gpus)
    assert {workload.shape for workload in scenario.workloads} == set(Shape)
    assert {gpu for workload in scenario.workloads for gpu in workload.gpus} == set(range(gpus))


@pytest.mark.parametrize("model", MODEL_NAMES)
@pytest.mark.parametrize("gpus", [1, 8])
def test_every_model_can_run_it(model: str, gpus: int) -> None:
    assert len(Engine(default_scenario(gpus, model)).readings(1500)) == gpus


@pytest.mark.parametrize("gpus", [1, 8])
def test_an_xid_and_throttling_occur_in_the_first_half_hour_and_repeat(gpus: int) -> None:
    engine = Engine(default_scenario(gpus))

    def xids(second: int) -> float:
        return sum(sum((r.xid_errors or {}).values()) for r in engine.readings(second))

    def throttled(second: int) -> bool:
        return any((r.throttle_active or {}).get(("hw_thermal_slowdown",)) for r in engine.readings(second))

    assert xids(0) == 0
    assert not throttled(0)
    assert xids(1800) == 1
    assert throttled(25 * 60)
    assert throttled(25 * 60 + 2 * 3600)
    assert not throttled(3600)
    assert xids(5 * 3600) > 1


def test_every_kind_of_event_occurs_within_a_day() -> None:
    scenario = default_scenario(8, "h100")
    assert {fault.kind for fault in scenario.faults} == {
        GpuFaultKind.XID,
        GpuFaultKind.ECC,
        GpuFaultKind.THROTTLE,
        GpuFaultKind.LOST,
        GpuFaultKind.ROW_REMAP_PENDING,
        GpuFaultKind.NVLINK_DOWN,
        GpuFaultKind.RECOVERY,
    }
    engine = Engine(scenario)
    # 220 s is shorter than the shortest of the faults
    seen = [engine.readings(second) for second in range(0, 9 * 3600, 220)]
    gpus = [reading for readings in seen for reading in readings]
    assert any(not reading.up for reading in gpus)
    assert any(reading.remapped_rows_pending for reading in gpus)
    assert any(0 in (reading.nvlink_up or {}).values() for reading in gpus)
    assert any((reading.decoder_utilization_ratio or 0) > 0.2 for reading in gpus)
    assert any(len(reading.processes or ()) > 1 for reading in gpus)
    quiet = [reading for reading in seen[10] if not reading.processes]
    assert quiet, "and an unused GPU"


def test_amd_gpus_have_their_own_faults() -> None:
    engine = Engine(default_scenario(8, "mi300x"))
    seen = [reading for second in range(0, 4 * 3600, 220) for reading in engine.readings(second)]
    assert any(not reading.up for reading in seen)
    assert any(0 in (reading.xgmi_up or {}).values() for reading in seen)
    assert any((reading.ras_errors or {}).get(("umc", "corrected")) for reading in seen)
    assert any((reading.throttle_active or {}).get(("hw_thermal_slowdown",)) for reading in seen)
    assert all(reading.xid_errors is None for reading in seen)


def test_all_kinds_of_owners_occur_in_the_first_four_hours() -> None:
    scenario = default_scenario(8)
    owners = [workload.owner for workload in scenario.workloads if workload.span.start < 4 * 3600]
    pods = [owner for owner in owners if isinstance(owner, PodOwner)]
    assert len({pod.namespace for pod in pods}) >= 4
    assert {pod.requested for pod in pods} == {True, False}
    assert {owner.kind for owner in owners if isinstance(owner, HostOwner)} == {"docker", "slurm"}
    nameless = [w for w in scenario.workloads if w.owner is None and w.shape is not Shape.IDLE]
    assert len(nameless) == 1
    idle_holders = [w for w in scenario.workloads if w.shape is Shape.IDLE and w.owner is not None]
    assert idle_holders
    two_pods = [w.owner for w in scenario.workloads if w.shape is Shape.INFERENCE and 2 in w.gpus]
    assert len(set(two_pods)) == 2
    short = [w for w in scenario.workloads if w.span.every is not None and w.span.every <= 600]
    assert isinstance(short[0].owner, PodOwner)
    assert "{run}" in short[0].owner.pod


def test_every_day_is_the_same() -> None:
    engine = Engine(default_scenario(3, "l4", 2))
    for second in (5 * 3600, 8 * 3600 + 77):
        today, tomorrow = engine.readings(second + DAY), engine.readings(second + 2 * DAY)
        for one, other in zip(today, tomorrow, strict=True):
            assert one.power_watts == other.power_watts
            assert one.gpu_utilization_ratio == other.gpu_utilization_ratio


@pytest.mark.parametrize("gpus", [0, -3, 1025, 10**12])
def test_an_impossible_number_of_gpus_is_refused(gpus: int) -> None:
    with pytest.raises(ScenarioError, match=rf"^gpus: {gpus} .* 1 to 1024$"):
        default_scenario(gpus)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"'voodoo2'.* a100, "):
        default_scenario(1, "voodoo2")
