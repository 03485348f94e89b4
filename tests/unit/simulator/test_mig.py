"""GPUs in MIG mode."""

from statistics import mean

import pytest

from gputally.model import Reading
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import GPU_MODELS, MigLayout, Scenario, Shape, Workload


def play(model: str, profiles: tuple[str, ...], *workloads: Workload) -> Engine:
    return Engine(Scenario(gpus=2, model=model, workloads=workloads, mig=(MigLayout((0,), profiles),)))


def work(shape: Shape, instance: int, **how: int) -> Workload:
    return Workload(shape=shape, gpus=(0,), instance=instance, **how)  # type: ignore[arg-type]


def cut_gpu(engine: Engine, second: float = 300) -> Reading:
    return engine.readings(second, since=second - 5)[0]


def test_instances_have_the_values_of_their_profiles() -> None:
    reading = cut_gpu(play("a100", ("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")))
    assert reading.mig_mode is True
    assert [mig.instance.profile for mig in reading.mig] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
    assert [mig.multiprocessors for mig in reading.mig] == [42, 28, 14, 14]
    assert [(mig.memory_total_bytes or 0) // 2**20 for mig in reading.mig] == [19968, 9856, 4864, 4864]
    assert [mig.instance.gpu_instance_id for mig in reading.mig] == [1, 3, 7, 8]
    assert len({mig.instance.uuid for mig in reading.mig}) == 4
    for mig in reading.mig:
        assert mig.instance.uuid.startswith("MIG-")
        assert mig.instance.parent_uuid == reading.gpu.uuid
        assert (mig.memory_used_bytes or 0) + (mig.memory_free_bytes or 0) == mig.memory_total_bytes


def test_the_parent_has_exactly_the_fields_of_mig_mode() -> None:
    engine = play("h100", ("3g.40gb",), work(Shape.TRAINING, 0))
    parent, whole = engine.readings(300, since=295)
    for name in ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa"):
        assert getattr(parent, f"{name}_utilization_ratio") is None
        assert getattr(whole, f"{name}_utilization_ratio") == 0
    assert parent.process_samples is None
    assert parent.remapped_rows is None
    assert parent.power_watts is not None
    assert parent.energy_millijoules is not None
    assert whole.mig_mode is False
    assert whole.mig == ()


def test_a_job_is_listed_on_its_instance_and_on_the_parent() -> None:
    engine = play("h100", ("3g.40gb", "1g.10gb"), work(Shape.TRAINING, 0, count=2), work(Shape.NOTEBOOK, 1))
    reading = cut_gpu(engine)
    large, small = reading.mig
    assert len(large.processes or ()) == 2
    assert len(small.processes or ()) == 1
    together = sorted((large.processes or ()) + (small.processes or ()), key=lambda process: process.pid)
    assert list(reading.processes or ()) == together
    assert {process.gpu_instance_id for process in large.processes or ()} == {large.instance.gpu_instance_id}
    assert (large.memory_used_bytes or 0) > 30 * 2**30
    assert reading.memory_used_bytes == (large.memory_used_bytes or 0) + (small.memory_used_bytes or 0)


def test_activity_of_an_instance_is_a_share_of_the_parent() -> None:
    reading = cut_gpu(play("h100", ("1g.10gb", "1g.10gb"), work(Shape.TRAINING, 0)))
    busy, idle = reading.mig
    assert (busy.sm_active_ratio or 0) > 0.8
    assert (busy.tensor_active_ratio or 0) > 0.3
    assert idle.sm_active_ratio == 0
    assert reading.sm_active_ratio == pytest.approx((busy.sm_active_ratio or 0) / 7, abs=0.002)


def test_an_instance_draws_its_share_of_the_power() -> None:
    def watts(engine: Engine) -> float:
        return mean(cut_gpu(engine, second).power_watts or 0 for second in range(300, 330))

    one = watts(play("h100", ("1g.10gb",) * 7, work(Shape.TRAINING, 0)))
    all_seven = watts(play("h100", ("1g.10gb",) * 7, *(work(Shape.TRAINING, n) for n in range(7))))
    assert GPU_MODELS["h100"].idle_watts + 70 < one < GPU_MODELS["h100"].idle_watts + 130
    assert all_seven > 600


def test_activity_of_instances_requires_hopper() -> None:
    reading = cut_gpu(play("a100", ("7g.40gb",), work(Shape.TRAINING, 0)))
    assert reading.mig[0].sm_active_ratio is None
    assert reading.mig[0].tensor_active_ratio is None


@pytest.mark.parametrize("model", [model for model, card in GPU_MODELS.items() if card.mig_profiles])
def test_every_profile_of_every_card_can_be_used(model: str) -> None:
    for profile in GPU_MODELS[model].mig_profiles:
        names = (profile.name,) * profile.most
        reading = cut_gpu(play(model, names, *(work(Shape.TRAINING, n) for n in range(profile.most))), 60)
        assert len(reading.mig) == profile.most
        assert len({mig.instance.gpu_instance_id for mig in reading.mig}) == profile.most
        assert (reading.power_watts or 0) <= (reading.power_limit_watts or 0)
        free = reading.memory_free_bytes or 0
        assert free >= 0
