"""A store with records of the bill, which evaluates the queries of `gputally bill`, at the level of HTTP."""

import http.server
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Labels = Mapping[str, str]
_AGGREGATED = re.compile(r"(sum|max) by \((.*?)\) \((\w+)\(\{(.*)\}\[(\d+)ms\]\)\)( > 0)?")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)"((?:[^"\\]|\\.)*)"')
_OVER_TIME: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum_over_time": sum,
    "count_over_time": len,
    "present_over_time": lambda _: 1.0,
    "last_over_time": lambda values: values[-1],
}


@dataclass(slots=True)
class BillStore:
    """Samples by series. `asked` are the parameters and headers of each request."""

    left_closed: bool = False
    """As Prometheus before 3.0: a range has the sample at its left edge."""
    token: str = ""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """More members of each answer, such as warnings."""
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = field(default_factory=dict)
    asked: list[tuple[dict[str, str], Mapping[str, str]]] = field(default_factory=list)
    url: str = ""

    def add(self, name: str, at: float, value: float, **labels: str) -> None:
        """A sample at a time in seconds."""
        key = tuple(sorted({"__name__": name, **{k: v for k, v in labels.items() if v}}.items()))
        self.series.setdefault(key, []).append((at, value))

    def query(self, text: str, at: float) -> list[tuple[Labels, float]]:
        if text == "count_over_time(vector(1)[1m:1m])":
            return [({}, 2 if self.left_closed else 1)]
        found = _AGGREGATED.fullmatch(text)
        assert found, text
        operator, by, function, matchers, milliseconds, above_zero = found.groups()
        groups: dict[tuple[tuple[str, str], ...], list[float]] = defaultdict(list)
        start = at - int(milliseconds) / 1000
        for labels, samples in self._matching(matchers):
            values = [v for t, v in samples if (start <= t if self.left_closed else start < t) and t <= at]
            if values:
                kept = [(name, labels.get(name, "")) for name in by.split(", ") if labels.get(name)]
                groups[tuple(kept)].append(_OVER_TIME[function](values))
        combined = sum if operator == "sum" else max
        result = [(dict(key), float(combined(values))) for key, values in groups.items()]
        return [(labels, value) for labels, value in result if not above_zero or value > 0]

    def _matching(self, matchers: str) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
        wanted = [
            (name, how, value.replace('\\"', '"').replace("\\\\", "\\"))
            for name, how, value in _MATCHER.findall(matchers)
        ]
        for key, samples in self.series.items():
            labels = dict(key)
            if all(_matches(labels.get(name, ""), how, value) for name, how, value in wanted):
                yield labels, samples


def _matches(value: str, how: str, wanted: str) -> bool:
    if how == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) == (how == "=")


@contextmanager
def bill_store(store: BillStore) -> Iterator[BillStore]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            store.asked.append((given, {name.lower(): value for name, value in self.headers.items()}))
            if store.token and self.headers.get("Authorization") != f"Bearer {store.token}":
                return self._say(401, {"error": "who are you?"})
            if parts.path.endswith("/api/v1/query"):
                result = [
                    {"metric": labels, "value": [float(given["time"]), str(value)]}
                    for labels, value in store.query(given["query"], float(given["time"]))
                ]
            else:
                result = self._range(given)
            return self._say(200, {"status": "success", "data": {"result": result}, **store.answer})

        def _range(self, given: Mapping[str, str]) -> list[dict[str, Any]]:
            values: dict[tuple[tuple[str, str], ...], list[list[Any]]] = defaultdict(list)
            for at in range(int(given["start"]), int(given["end"]) + 1, int(given["step"])):
                for labels, value in store.query(given["query"], at):
                    values[tuple(labels.items())].append([at, str(value)])
            return [{"metric": dict(labels), "values": found} for labels, found in values.items()]

        def _say(self, status: int, answer: Mapping[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """What was asked is kept."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield store
        finally:
            server.shutdown()
