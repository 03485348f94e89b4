"""The lines that the demo prints."""

import pytest

from tools.demonstration.words import alert_line


@pytest.mark.parametrize(
    ("labels", "location"),
    [
        ({"node": "n1", "gpu": "7", "uuid": "GPU-1"}, "n1, GPU 7"),
        ({"node": "n1", "namespace": "nlp", "pod": "train-0"}, "n1, nlp/train-0"),
        ({"namespace": "nlp"}, "nlp"),
    ],
)
def test_the_line_of_an_alert_has_its_severity_and_location(labels: dict[str, str], location: str) -> None:
    assert alert_line({"alertname": "Lost", "severity": "info", **labels}) == f"info: Lost: {location}"
