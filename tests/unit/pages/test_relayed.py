"""Another exporter's text on our pages."""

from dataclasses import replace

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.exposition import OPENMETRICS, TEXT, Exposition
from gputally.metrics.families import Family
from gputally.model import Snapshot
from gputally.pages.relayed import Missing, OursAndRelayed, RelayedMetrics, joined
from gputally.relay.source import Relayed
from gputally.server import Page

OURS = b'# HELP a A.\n# TYPE a gauge\na 1\n# HELP b_total B.\n# TYPE b_total counter\nb_total{x="1"} 1\n'
NEW = b'# HELP c C.\n# TYPE c gauge\nc{gpu="\ra"} 1 # {trace="a"} 1\nab 1\n'
KNOWN = b'# HELP a A.\n# TYPE a gauge\na{gpu="0"} 7\n'
RELAYED = Relayed(b"# HELP theirs X.\n# TYPE theirs gauge\ntheirs 1\n", TEXT, 1)


def exposition() -> Exposition:
    nothing = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=())
    ours = Family(Metric("ours_total", Kind.COUNTER, Scope.EXPORTER, "", "Ours."), [((), 1)])
    return Exposition(lambda _: [ours], nothing)


def test_a_name_of_ours_is_left_out_of_theirs_and_the_rest_is_as_it_was() -> None:
    assert joined(OURS, KNOWN + NEW) == joined(OURS, NEW + KNOWN) == OURS + NEW


def test_it_is_served_in_the_format_in_which_it_came() -> None:
    alone = RelayedMetrics()
    alone.publish(RELAYED, "")
    assert alone.page(True, True) == Page(TEXT, RELAYED.text)


def test_while_there_is_nothing_it_says_in_one_line_why() -> None:
    alone = RelayedMetrics()
    before = alone.page(True, True)
    alone.publish(RELAYED, "")
    alone.publish(None, "no answer within 5 s")
    after = alone.page(False, False)
    plain = "text/plain; charset=utf-8"
    assert before == Missing(plain, b"nothing is relayed: the first sample is not done\n")
    assert after == Missing(plain, b"nothing is relayed: no answer within 5 s\n")
    assert Missing(plain, b"").status == 503


def test_ours_are_before_it_in_its_format() -> None:
    together = OursAndRelayed(exposition())
    together.publish(RELAYED)
    page = together.page(openmetrics=True, gzip=True)
    assert (page.content_type, page.gzipped) == (TEXT, False)
    assert [family.name for family in parse_text(page.body.decode())] == ["ours", "theirs"]


def test_openmetrics_ends_once() -> None:
    together = OursAndRelayed(exposition())
    together.publish(replace(RELAYED, text=RELAYED.text + b"# EOF\n", content_type=OPENMETRICS))
    page = together.page(openmetrics=False, gzip=False)
    assert page.content_type == OPENMETRICS
    assert [family.name for family in parse_openmetrics(page.body.decode())] == ["ours", "theirs"]


def test_while_nothing_is_relayed_ours_are_as_they_always_are() -> None:
    together = OursAndRelayed(exposition())
    together.publish(None)
    assert together.page(openmetrics=True, gzip=False).content_type == OPENMETRICS
    assert together.page(openmetrics=True, gzip=True).gzipped
