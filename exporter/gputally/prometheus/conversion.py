"""Families of the exporter -> metrics of prometheus_client."""

from prometheus_client import Metric

from gputally.metrics.catalog import Kind
from gputally.metrics.catalog import Metric as Declared
from gputally.metrics.families import Family

_SUFFIX = {Kind.COUNTER: "_total", Kind.INFO: "_info"}
"""What prometheus_client appends to the name of such a metric."""


def described(declared: Declared) -> Metric:
    """The metric without samples."""
    name = declared.name.removesuffix(_SUFFIX.get(declared.kind, ""))
    return Metric(name, declared.help, declared.kind)


def client_metric(family: Family) -> Metric:
    metric = described(family.metric)
    for values, value in family.samples:
        labels = dict(zip(family.metric.labels, values, strict=True))
        metric.add_sample(family.metric.name, labels, value)
    return metric
