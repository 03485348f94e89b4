"""Another exporter's series at our endpoints."""

from prometheus_client.parser import text_string_to_metric_families as parse_text

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.metrics.families import Family
from gputally.pages import JoinedEndpoint, MetricsEndpoint, RelayedEndpoint

RELAYED = [
    (b"theirs", b"# HELP theirs X.\n# TYPE theirs gauge\ntheirs 1\n"),
    (b"ours", b"# TYPE ours untyped\nours 1\n"),
]


def ours() -> MetricsEndpoint:
    family = Family(Metric("ours", Kind.GAUGE, Scope.EXPORTER, "", "Ours."), [((), 1)])
    return MetricsEndpoint(lambda _: [family])


def test_relayed_series_alone() -> None:
    alone = RelayedEndpoint()
    alone.publish(RELAYED, "")
    response = alone.respond(True, True)
    assert (response.status, response.content_type) == (200, TEXT)
    assert response.body == RELAYED[0][1] + RELAYED[1][1]
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


def test_a_family_of_ours_is_not_relayed_beside_it() -> None:
    together = JoinedEndpoint(ours())
    together.publish(RELAYED)
    response = together.respond(openmetrics=True, gzip=True)
    assert response.content_type == TEXT
    assert [(family.name, family.type) for family in parse_text(response.body.decode())] == [
        ("ours", "gauge"),
        ("theirs", "gauge"),
    ]


def test_without_relayed_series_metrics_are_unchanged() -> None:
    together = JoinedEndpoint(ours())
    together.publish(None)
    assert together.respond(openmetrics=True, gzip=False).content_type == OPENMETRICS
    assert ("Content-Encoding", "gzip") in together.respond(openmetrics=True, gzip=True).headers
