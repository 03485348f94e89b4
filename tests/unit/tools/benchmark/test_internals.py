"""The costs of ledger and profiles are measured on what they say: so many processes on 8 GPUs."""

from tools.benchmark import internals
from tools.benchmark.internals import GPUS, LEDGER_PROCESSES, _sample, measure_window


def test_a_sample_has_the_requested_numbers_of_gpus_and_processes() -> None:
    readings, residents = _sample(3)
    assert len(readings) == GPUS
    assert len({resident.process.pid for resident in residents}) == LEDGER_PROCESSES
    # Equal parts would leave nothing over to deal out.
    assert len({sample.sm_ratio for resident in residents for sample in resident.samples or ()}) > 2


def test_a_window_takes_some_time() -> None:
    assert measure_window(windows=5) > 0


def test_a_crowded_snapshot_has_a_pod_for_each_process_on_every_gpu() -> None:
    snapshot = internals._crowded()
    assert len(snapshot.readings) == internals.GPUS
    assert (
        len({(p.uuid, p.pid) for p in snapshot.processes})
        == len(snapshot.uses)
        == internals.RENDERED_PROCESSES
    )
    assert internals.measure_rendering(times=2) > 0
