"""The cost of the ledger is measured on what it says: 200 processes on 8 GPUs."""

from tools.benchmark.books import GPUS, PROCESSES, _look, measure_window


def test_a_look_has_as_many_gpus_and_processes_as_it_says() -> None:
    readings, residents = _look(3)
    assert len(readings) == GPUS
    assert len({resident.process.pid for resident in residents}) == PROCESSES


def test_a_window_takes_some_time() -> None:
    assert measure_window(windows=5) > 0
