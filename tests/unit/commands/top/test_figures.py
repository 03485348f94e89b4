"""Numbers of the screen as text."""

import pytest

from gputally.commands.top import figures

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (figures.percent(0.974), "97%"),
        (figures.percent(0.0), "0%"),
        (figures.gibibytes(3.3 * GIB, 80 * GIB), "3.3/80G"),
        (figures.gibibytes(65 * GIB), "65G"),
        (figures.watts(611.2, 700.0), "611/700W"),
        (figures.watts(23_700.0), "23.7kW"),
        (figures.watts(2.5e6), "2.50MW"),
        (figures.joules(406_300), "406.3kJ"),
        (figures.joules(12), "12J"),
        (figures.celsius(61.0), "61C"),
        (figures.number(0.25), "0.2"),
        (figures.number(8.0), "8"),
    ],
)
def test_a_number_has_its_unit(text: str, expected: str) -> None:
    assert text == expected


def test_what_is_not_known_is_a_dash_and_never_a_zero() -> None:
    for figure in (figures.percent, figures.gibibytes, figures.watts, figures.joules, figures.celsius):
        assert figure(None) == "-"


@pytest.mark.parametrize("unicode", [True, False])
def test_a_bar_always_has_its_width(unicode: bool) -> None:
    for ratio in (None, -1.0, 0.0, 0.01, 0.5, 0.999, 1.0, 7.0):
        assert len(figures.bar(ratio, 8, unicode=unicode)) == 8


def test_a_measured_zero_is_drawn_and_a_missing_value_is_not() -> None:
    assert figures.columns((None, 0.0, 0.5, 1.0), 1.0) == [" ▁▄█"]
    assert figures.columns((0.25, 1.0), 1.0, 2) == [" █", "▄█"]
