"""The series and labels of PromQL expressions: unknown names and lost labels are reported."""

import pytest

from alerts import promql

SCHEMA: promql.SeriesLabels = {
    "power": frozenset({"node", "gpu", "uuid"}),
    "info": frozenset({"node", "gpu", "uuid", "model"}),
    "pods": frozenset({"node", "pod", promql.ANY}),
    "pod_power": frozenset({"node", "gpu", "uuid", "pod"}),
}


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        ("power", {"node", "gpu", "uuid"}),
        ("sum(power)", set()),
        ("sum by (node) (rate(power[5m]))", {"node"}),
        ("max without (uuid) (power)", {"node", "gpu"}),
        ('count_values("watts", power)', {"watts"}),
        ('count_values by (node) ("watts", power)', {"node", "watts"}),
        ("topk(3, sum by (node, gpu) (power))", {"node", "gpu"}),
        ("power > 3", {"node", "gpu", "uuid"}),
        ("100 - power", {"node", "gpu", "uuid"}),
        ("time() - power > 60", {"node", "gpu", "uuid"}),
        ("power * on (uuid) group_left (model) info", {"node", "gpu", "uuid", "model"}),
        ("info * on (uuid) group_right () pod_power", {"node", "gpu", "uuid", "pod"}),
        ("power / on (uuid) info", {"uuid"}),
        ("power / ignoring (model) info", {"node", "gpu", "uuid"}),
        ("power and on (uuid) info", {"node", "gpu", "uuid"}),
        ("sum by (node) (power) or sum by (gpu) (power)", {"node", "gpu"}),
        ("max_over_time(sum by (node) (power)[6h:5m])", {"node"}),
        ('absent(power{node="a", gpu=~"b"})', {"node"}),
        ('label_replace(power, "card", "$1", "gpu", "(.*)")', {"node", "gpu", "uuid", "card"}),
        ("vector(1)", set()),
        ("sum(power) or vector(0)", set()),
        ('count({__name__=~"po.+"})', set()),
        ("sum by (anything_of_a_pod) (pods)", {"anything_of_a_pod"}),
        ("-power", {"node", "gpu", "uuid"}),
    ],
)
def test_the_labels_of_a_result(expression: str, labels: set[str]) -> None:
    assert promql.labels_of(expression, SCHEMA) == labels


@pytest.mark.parametrize(
    ("expression", "keeps"),
    [
        ("power", True),
        ("topk(3, power)", True),
        ("topk(3, sum by (node) (power))", False),
        ("power > 3", True),
        ("3 < power", True),
        ("power > bool 3", False),
        ("power > on (uuid) info", False),
        ("power > on (uuid) group_left () info", True),
        ("power / 2", False),
        ("time() - power > 60", False),
        ("power and on (uuid) info", True),
        ("sum(power) or power", True),
        ("sum(power) unless power", False),
        ("last_over_time(power[5m])", True),
        ("max_over_time(power[5m])", False),
        ("max_over_time(power[5m:1m])", False),
        ('label_replace(power, "card", "$1", "gpu", "(.*)")', True),
        ("sort(power offset 5m)", True),
        ("-power", False),
        ("(power)", True),
    ],
)
def test_whether_a_result_may_keep_a_metric_name(expression: str, keeps: bool) -> None:
    assert promql.keeps_name(expression) is keeps


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("sum(powr)", "there is no metric powr"),
        ('power{pod="x"}', "power has no label pod"),
        ("sum by (pod) (power)", "has no label pod"),
        ("power / on (model) info", "the left side has no label model"),
        ("power * on (uuid) group_left (pod) info", "the right side has no label pod"),
        ("power / info", "differ in their labels (model)"),
        ('label_replace(power, "x", "$1", "pod", "(.*)")', "there is no label pod"),
        ('{__name__=~"nothing.+"}', "no metric has a name like nothing.+"),
        ('{node="a"}', "without a metric's name"),
        ("sum(power", "not PromQL"),
    ],
)
def test_an_error_is_reported_in_one_line(expression: str, words: str) -> None:
    with pytest.raises(promql.Wrong) as wrong:
        promql.labels_of(expression, SCHEMA)
    assert words in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_the_series_that_an_expression_reads() -> None:
    read = promql.names_in('sum(power) / count(info) + sum({__name__=~"pod.+"})', SCHEMA)
    assert read == {"power", "info", "pods", "pod_power"}
