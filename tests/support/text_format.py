"""Judges a scrape as the strictest of its readers would, in Python: what one of them rejects is refused.

The lexer is that of Prometheus (model/textparse/promlex.l), which rejects a scrape for one line; unique label
names, its TSDB (labels.HasDuplicateLabelNames); whole families with one HELP and TYPE, client_golang
(expfmt/text_parse.go) and client_python. tests/system/attacks asks the real Prometheus the same.
"""

import math
import re
from collections.abc import Iterator

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_PAIR = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^\\"\n\x00]|\\[\\"n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_PAIR}(?:,{_PAIR})*)\}})? ([^{{ \t\n]+)(?: ([0-9]+))?")
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n\x00]|\\[\\n])*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")


def check_text(body: bytes) -> None:
    """Raises for a body in the text format 0.0.4 that a scraper could reject."""
    check_lines(body)
    for _ in parse_text(body.decode()):
        pass


def check_lines(body: bytes) -> None:
    """The same without client_python's parser, which is slow."""
    if not body:
        return
    text = body.decode()
    assert text.endswith("\n")
    series: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    sampled: set[str] = set()
    declared: set[str] = set()
    finished: set[str] = set()
    current = ""
    for line in text[:-1].split("\n"):
        metadata = _HELP.fullmatch(line) or _TYPE.fullmatch(line)
        if metadata is not None:
            name, keyword = metadata[1], line[:6]
            assert keyword + name not in declared, line
            declared.add(keyword + name)
        else:
            name, labels = _check_sample(line)
            assert (name, labels) not in series, line
            series.add((name, labels))
            sampled.add(name)
        if name != current:
            finished.add(current)
            current = name
        assert name not in finished, f"the family is not whole: {line}"
        if metadata is not None:
            assert name not in sampled, f"metadata after samples: {line}"


def _check_sample(line: str) -> tuple[str, frozenset[tuple[str, str]]]:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    labels = re.findall(_PAIR, match[2] or "")
    names = [name for name, _ in labels]
    assert len(set(names)) == len(names), line
    assert not any(name.startswith("__") for name in names), line
    value = match[7]
    assert math.isfinite(float(value)) or value in ("NaN", "+Inf", "-Inf"), line
    assert match[8] is None or int(match[8]) < 2**63, line
    return match[1], frozenset((name, each) for name, each in labels if each)


def check_openmetrics(body: bytes) -> None:
    """Raises for a body in OpenMetrics 1.0 that client_python's strict parser rejects."""
    text = body.decode()
    assert "\0" not in text
    for _ in parse_openmetrics(text):
        pass
    for line in _samples(text):
        _check_sample(line)


def _samples(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if line and not line.startswith("#"))
