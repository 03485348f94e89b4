"""How an alert is told in a line."""

import pytest

from tools.demonstration.asking import Prometheus, alert_line, answers


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        ({"node": "n1", "gpu": "7", "uuid": "GPU-1"}, "n1, GPU 7"),
        ({"node": "n1", "namespace": "nlp", "pod": "train-0"}, "n1, nlp/train-0"),
        ({"namespace": "nlp"}, "nlp"),
    ],
)
def test_an_alert_says_how_bad_it_is_and_where(labels: dict[str, str], where: str) -> None:
    assert alert_line({"alertname": "Lost", "severity": "info", **labels}) == f"info: Lost: {where}"


def test_while_prometheus_does_not_answer_it_knows_of_nothing() -> None:
    nobody = Prometheus("http://127.0.0.1:1")
    assert nobody.number("up") is None
    assert nobody.targets_up() == 0
    assert nobody.firing() == set()
    assert not answers("http://127.0.0.1:1/readyz")
