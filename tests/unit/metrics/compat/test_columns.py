"""Units of other tools: what was a whole number there is one again."""

from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.compat.columns import counter, gauge, mebibytes, megahertz, microseconds, percent
from gputally.model import Gpu, Reading

GPU = Gpu("GPU-a", 0, "nvidia", "H100")


@given(st.integers(0, 100))
def test_a_whole_percent_stays_whole(number: int) -> None:
    assert percent(number / 100) == number


@given(st.integers(0, 2**24))
def test_whole_mebibytes_megahertz_and_microseconds_stay_whole(number: int) -> None:
    assert mebibytes(number << 20) == number
    assert megahertz(number * 1e6) == number
    assert microseconds(number / 1e6) == number


def test_a_column_is_silent_where_the_reading_is_and_zero_where_it_is_zero() -> None:
    power = gauge("watts", "Power.", "power_watts", scale=percent)
    errors = counter("errors", "Errors.", "ecc_errors", "corrected", "volatile")
    assert power.value(Reading(gpu=GPU)) is None
    assert power.value(Reading(gpu=GPU, power_watts=0.0)) == 0
    assert errors.value(Reading(gpu=GPU)) is None
    assert errors.value(Reading(gpu=GPU, ecc_errors={("uncorrected", "volatile"): 3})) is None
    assert errors.value(Reading(gpu=GPU, ecc_errors={("corrected", "volatile"): 0})) == 0


def test_a_column_knows_which_metric_of_ours_says_the_same() -> None:
    assert gauge("watts", "Power.", "power_watts").row.ours == "gputally_gpu_power_watts"
    assert counter("x", "X.", "throttle_seconds", "thermal").row.ours == "gputally_gpu_throttle_seconds_total"
