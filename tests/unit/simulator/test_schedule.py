"""Spans and moments, against counting them second by second."""

from hypothesis import example, given
from hypothesis import strategies as st

from gputally.simulator.schedule import Moment, Span

UNTIL = 120


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, 40))
    stop = draw(st.none() | st.integers(start + 1, start + 40))
    every = None if stop is None else draw(st.none() | st.integers(stop - start, stop - start + 30))
    return Span(start, stop, every)


def runs_of(span: Span) -> list[range]:
    """The span spelled out."""
    if span.stop is None:
        return [range(span.start, UNTIL * 2)]
    length = span.stop - span.start
    if span.every is None:
        return [range(span.start, span.stop)]
    return [range(start, start + length) for start in range(span.start, UNTIL * 2, span.every)]


@given(spans(), st.integers(0, UNTIL))
def test_a_span_gives_the_run_of_a_second(span: Span, second: int) -> None:
    runs = [(number, run) for number, run in enumerate(runs_of(span)) if second in run]
    assert span.began(second) == (runs[0][1].start if runs else None)
    if runs:
        assert span.run(second) == runs[0][0]


@given(spans(), st.integers(0, UNTIL), st.integers(0, UNTIL))
@example(Span(0, 1, 2), 1, 3)
def test_a_span_gives_the_runs_of_a_period(span: Span, first: int, end: int) -> None:
    runs = runs_of(span)
    touched = [number for number, run in enumerate(runs) if any(s in run for s in range(first, end))]
    assert list(span.runs(first, end)) == touched
    assert [span.start_of(number) for number in touched] == [runs[number].start for number in touched]


@given(spans(), st.integers(0, UNTIL), st.integers(0, UNTIL))
def test_a_span_counts_its_seconds_without_iterating(span: Span, first: int, end: int) -> None:
    covered = {second for run in runs_of(span) for second in run}
    assert span.overlap(end) == len([second for second in range(end) if second in covered])
    if first <= end:
        assert span.touches(first, end) == any(second in covered for second in range(first, end))


def test_a_span_is_settled_when_only_its_repetition_remains() -> None:
    assert Span(10, 20).settled == 20
    assert Span(10).settled == 10
    assert Span(10, 20, 30).settled == 10


@given(st.integers(0, 50), st.none() | st.integers(1, 40), st.integers(0, UNTIL))
def test_a_moment_counts_its_occurrences(at: int, every: int | None, second: int) -> None:
    times = [at] if every is None else list(range(at, UNTIL * 2, every))
    passed = [time for time in times if time <= second]
    moment = Moment(at, every)
    assert moment.count(second) == len(passed)
    assert moment.last(second) == (passed[-1] if passed else None)
