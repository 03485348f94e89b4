"""Units of other tools: what was a whole number there is one again."""

from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.compat.columns import counter, gauge, mebibytes, megahertz, microseconds, percent
from gputally.model import Gpu, Reading

GPU = Gpu("GPU-a", 0, "nvidia", "H100")


@given(st.integers(0, 100))
def test_an_integer_percentage_stays_an_integer(number: int) -> None:
    assert percent(number / 100) == number


@given(st.integers(0, 2**24))
def test_integer_mebibytes_megahertz_and_microseconds_stay_integers(number: int) -> None:
    assert mebibytes(number << 20) == number
    assert megahertz(number * 1e6) == number
    assert microseconds(number / 1e6) == number


def test_a_column_has_no_sample_for_none_and_0_for_zero() -> None:
    power = gauge("watts", "Power.", "power_watts", scale=percent)
    errors = counter("errors", "Errors.", "ecc_errors", "corrected", "volatile")
    assert power.value(Reading(gpu=GPU)) is None
    assert power.value(Reading(gpu=GPU, power_watts=0.0)) == 0
    assert errors.value(Reading(gpu=GPU)) is None
    assert errors.value(Reading(gpu=GPU, ecc_errors={("uncorrected", "volatile"): 3})) is None
    assert errors.value(Reading(gpu=GPU, ecc_errors={("corrected", "volatile"): 0})) == 0


def test_a_column_names_the_equivalent_metric() -> None:
    assert gauge("watts", "Power.", "power_watts").row.ours == "gputally_gpu_power_watts"
    assert counter("x", "X.", "throttle_seconds", "thermal").row.ours == "gputally_gpu_throttle_seconds_total"
