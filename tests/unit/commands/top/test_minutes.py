"""The values of the last minutes."""

from gputally.commands.top.minutes import GRAPH_SECONDS, MOST_SAMPLES, Minutes, filled


def test_steps_are_means_and_the_last_sample_is_in_the_last_one() -> None:
    minutes = Minutes()
    for at, ratio in ((0, 0.2), (GRAPH_SECONDS - 60, 0.4), (GRAPH_SECONDS - 1, 0.6), (GRAPH_SECONDS, 1.0)):
        minutes.add(at, ratio, None)
    utilization, power = minutes.graphs(10)
    assert utilization[-1] == 0.8
    assert utilization[-2] == 0.4
    assert power == (None,) * 10


def test_only_gaps_between_samples_are_filled() -> None:
    assert filled([None, 1.0, None, 3.0, None]) == (None, 1.0, 1.0, 3.0, None)


def test_the_number_of_samples_is_bounded_and_old_ones_are_not_added_again() -> None:
    minutes = Minutes()
    for at in range(2 * MOST_SAMPLES):
        minutes.add(at, 0.5, 1.0)
    minutes.add(1.0, 0.0, 0.0)
    assert len(minutes._samples) == MOST_SAMPLES
    assert minutes.graphs(5)[0][-1] == 0.5


def test_without_samples_there_is_no_graph() -> None:
    assert Minutes().graphs(10) == ((), ())
