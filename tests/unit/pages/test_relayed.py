"""Another exporter's series at our endpoints."""

from dataclasses import replace

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.metrics.families import Family
from gputally.pages import JoinedEndpoint, MetricsEndpoint, RelayedEndpoint, joined
from gputally.relay import Relayed

OURS = b'# HELP a A.\n# TYPE a gauge\na 1\n# HELP b_total B.\n# TYPE b_total counter\nb_total{x="1"} 1\n'
NEW = b'# HELP c C.\n# TYPE c gauge\nc{gpu="\ra"} 1 # {trace="a"} 1\nab 1\n'
KNOWN = b'# HELP a A.\n# TYPE a gauge\na{gpu="0"} 7\n'
RELAYED = Relayed(b"# HELP theirs X.\n# TYPE theirs gauge\ntheirs 1\n", TEXT, 1)


def ours() -> MetricsEndpoint:
    family = Family(Metric("ours_total", Kind.COUNTER, Scope.EXPORTER, "", "Ours."), [((), 1)])
    return MetricsEndpoint(lambda _: [family])


def test_names_of_ours_are_removed_from_the_relayed_series() -> None:
    assert joined(OURS, KNOWN + NEW) == joined(OURS, NEW + KNOWN) == OURS + NEW


def test_it_has_the_format_of_the_upstream() -> None:
    alone = RelayedEndpoint()
    alone.publish(RELAYED, "")
    response = alone.respond(True, True)
    assert (response.status, response.content_type, response.body) == (200, TEXT, RELAYED.text)
    assert "Content-Encoding" not in dict(response.headers)


def test_without_relayed_series_the_status_is_an_error_with_the_reason() -> None:
    alone = RelayedEndpoint()
    before = alone.respond(True, True)
    alone.publish(RELAYED, "")
    alone.publish(None, "no answer within 5 s")
    after = alone.respond(False, False)
    assert [response.status for response in (before, after)] == [503, 503]
    assert b"first sample" in before.body
    assert after.body.endswith(b": no answer within 5 s\n")


def test_metrics_of_ours_come_first_in_the_format_of_the_upstream() -> None:
    together = JoinedEndpoint(ours())
    together.publish(RELAYED)
    response = together.respond(openmetrics=True, gzip=True)
    assert response.content_type == TEXT
    assert [family.name for family in parse_text(response.body.decode())] == ["ours", "theirs"]


def test_openmetrics_has_one_end_marker() -> None:
    together = JoinedEndpoint(ours())
    together.publish(replace(RELAYED, text=RELAYED.text + b"# EOF\n", content_type=OPENMETRICS))
    response = together.respond(openmetrics=False, gzip=False)
    assert response.content_type == OPENMETRICS
    assert [family.name for family in parse_openmetrics(response.body.decode())] == ["ours", "theirs"]


def test_without_relayed_series_metrics_are_unchanged() -> None:
    together = JoinedEndpoint(ours())
    together.publish(None)
    assert together.respond(openmetrics=True, gzip=False).content_type == OPENMETRICS
    assert ("Content-Encoding", "gzip") in together.respond(openmetrics=True, gzip=True).headers
