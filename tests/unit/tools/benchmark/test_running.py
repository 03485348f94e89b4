"""The GPUs that tools/bench measures on."""

from hypothesis import given
from hypothesis import strategies as st

from tools.benchmark.running import in_parts, spread_out


@given(st.integers(0, 2000), st.integers(1, 16))
def test_processes_are_spread_evenly_and_none_is_lost(processes: int, gpus: int) -> None:
    counts = spread_out(processes, gpus)
    assert len(counts) == gpus
    assert sum(counts) == processes
    assert max(counts) - min(counts) <= 1


@given(st.integers(0, 1000), st.integers(1, 100))
def test_parts_are_small_enough_and_add_up(count: int, most: int) -> None:
    parts = in_parts(count, most)
    assert sum(parts) == count
    assert all(0 < part <= most for part in parts)
