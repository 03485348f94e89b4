"""What a client accepts: pure functions of the Accept and Accept-Encoding headers (RFC 9110, section 12.5).

Scrapers send the same header every time, so answers are remembered by the header's text. Only short
headers are: a hostile client can send many long ones.
"""

from functools import lru_cache

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_VERSIONS = ("", "1.0.0", "0.0.1")
TEXT_VERSIONS = ("", "0.0.4")
REMEMBERED_HEADERS = 64
REMEMBERED_LENGTH = 1024


def wants_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics is asked for by name, and nothing that means plain text is liked better."""
    return _openmetrics(accept) if len(accept) > REMEMBERED_LENGTH else _remembered_openmetrics(accept)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether a gzipped body is acceptable and not liked less than an uncompressed one."""
    if len(accept_encoding) > REMEMBERED_LENGTH:
        return _gzip(accept_encoding)
    return _remembered_gzip(accept_encoding)


def _openmetrics(accept: str) -> bool:
    openmetrics = 0.0
    plain = {"text/plain": -1.0, "text/*": -1.0, "*/*": -1.0}
    for kind, parameters, quality in _elements(accept):
        if parameters.get("charset", "utf-8").lower() != "utf-8":
            continue
        version = parameters.get("version", "")
        if kind == OPENMETRICS and version in OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif kind in plain and version in TEXT_VERSIONS:
            plain[kind] = max(plain[kind], quality)
    # The most specific range that was given decides for plain text.
    text = next((quality for quality in plain.values() if quality >= 0), 0.0)
    return openmetrics > 0 and openmetrics >= text


def _gzip(accept_encoding: str) -> bool:
    qualities: dict[str, float] = {}
    for coding, _, quality in _elements(accept_encoding):
        name = "gzip" if coding == "x-gzip" else coding
        qualities[name] = max(qualities.get(name, 0.0), quality)
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


_remembered_openmetrics = lru_cache(REMEMBERED_HEADERS)(_openmetrics)
_remembered_gzip = lru_cache(REMEMBERED_HEADERS)(_gzip)


def _elements(header: str) -> list[tuple[str, dict[str, str], float]]:
    """`a;version=1;q=0.5, b` -> [("a", {"version": "1"}, 0.5), ("b", {}, 1.0)]; never fails."""
    elements = []
    for element in header.split(","):
        name, *rest = element.split(";")
        parameters = {}
        for parameter in rest:
            key, _, value = parameter.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        if name.strip():
            elements.append((name.strip().lower(), parameters, _quality(parameters.get("q", "1"))))
    return elements


def _quality(text: str) -> float:
    """A weight between 0 and 1; what is no weight counts as "do not send this"."""
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
