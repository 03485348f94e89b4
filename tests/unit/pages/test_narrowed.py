"""`collect[]` and `exclude[]`, with the answers of node_exporter's `ServeHTTP` (node_exporter.go)."""

import zlib
from collections.abc import Callable, Iterator
from itertools import combinations
from urllib.parse import urlencode

import pytest

from gputally.metrics.families import Family, build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.metrics.sets import choose
from gputally.model import Gpu, Reading, Snapshot
from gputally.pages import MetricsEndpoint
from gputally.pages.narrowed import MOST_PARAMETERS, Narrow

FACTS = ExporterFacts(version="1", python="3", hostname="n")
CORE = choose("core")
EXPORTED = frozenset(str(one.group) for one in CORE.values())


def snapshot(watts: float) -> Snapshot:
    reading = Reading(gpu=Gpu("GPU-a", 0, "nvidia", "H100"), power_watts=watts, temperature_celsius=40.0)
    return Snapshot(taken_at_seconds=0, age_seconds=0, readings=(reading,), sources=())


class Rendering:
    """The families; counts how often they are built."""

    def __init__(self) -> None:
        self.count = 0

    def families_of(self, snapshot: Snapshot) -> list[Family]:
        self.count += 1
        return build_families(snapshot, FACTS, CORE)


@pytest.fixture
def rendering() -> Rendering:
    return Rendering()


@pytest.fixture
def endpoint(rendering: Rendering) -> MetricsEndpoint:
    endpoint = MetricsEndpoint(rendering.families_of, Narrow(EXPORTED, EXPORTED | {"modes", "dcgm"}))
    endpoint.publish(snapshot(100.0))
    return endpoint


Scrape = Callable[..., tuple[int, str]]


@pytest.fixture
def scrape(endpoint: MetricsEndpoint) -> Scrape:
    def scrape(*parameters: tuple[str, str]) -> tuple[int, str]:
        response = endpoint.narrowed(urlencode(parameters)).respond(False, False)
        return response.status, b"".join((response.body, *response.more)).decode()

    return scrape


def names(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def test_a_query_without_these_parameters_is_a_whole_scrape(endpoint: MetricsEndpoint) -> None:
    assert endpoint.narrowed("debug=1") is endpoint


def test_collect_gives_the_metrics_of_these_groups(scrape: Scrape) -> None:
    assert names(scrape(("collect[]", "power"))[1]) == {"gputally_gpu_power_watts"}
    both = scrape(("collect[]", "temperature"), ("collect[]", "power"))
    assert names(both[1]) == {"gputally_gpu_power_watts", "gputally_gpu_temperature_celsius"}


def test_exclude_gives_the_others(scrape: Scrape, endpoint: MetricsEndpoint) -> None:
    everything = names(bytes(endpoint.respond(False, False).body).decode())
    status, text = scrape(("exclude[]", "power"))
    assert (status, names(text)) == (200, everything - {"gputally_gpu_power_watts"})


def test_both_at_once_are_refused(scrape: Scrape) -> None:
    assert scrape(("collect[]", "power"), ("exclude[]", "xid"))[0] == 400


@pytest.mark.parametrize("name", ["nvlinc", "", "modes", "dcgm"])
def test_collecting_what_is_unknown_or_not_exported_is_refused(scrape: Scrape, name: str) -> None:
    status, text = scrape(("collect[]", "power"), ("collect[]", name))
    assert status == 400
    assert name in text


def test_excluding_what_is_unknown_changes_nothing(scrape: Scrape, endpoint: MetricsEndpoint) -> None:
    assert scrape(("exclude[]", "nvlinc"))[1] == bytes(endpoint.respond(False, False).body).decode()


def selections() -> Iterator[list[tuple[str, str]]]:
    """All pairs of groups, collected and excluded."""
    for parameter in ("collect[]", "exclude[]"):
        for pair in combinations(sorted(EXPORTED), 2):
            yield [(parameter, group) for group in pair]


def test_no_number_of_selections_costs_a_rendering_or_memory_of_its_own(
    endpoint: MetricsEndpoint, rendering: Rendering
) -> None:
    whole = endpoint.respond(False, False).body
    kept: dict[int, bytes | memoryview] = {}
    for parameters in selections():
        selected = endpoint.narrowed(urlencode(parameters))
        pieces = selected.respond(False, False).more
        assert all(isinstance(piece, memoryview) and piece.obj is whole for piece in pieces)
        first, *deflated, last = selected.respond(False, True).more
        assert len(first) + len(last) < 32
        kept.update((id(piece), piece) for piece in deflated)
    assert len(kept) <= len(EXPORTED), "each group is compressed once, for all selections"
    assert rendering.count == 1


def test_every_selection_is_valid_in_every_format(endpoint: MetricsEndpoint) -> None:
    for parameters in selections():
        selected = endpoint.narrowed(urlencode(parameters))
        for openmetrics in (False, True):
            plain = b"".join(selected.respond(openmetrics, False).more)
            assert plain.endswith(b"# EOF\n") == openmetrics
            # Not `gzip`, which also reads several members one after the other: not every client does.
            gunzip = zlib.decompressobj(31)
            assert gunzip.decompress(b"".join(selected.respond(openmetrics, True).more)) == plain
            assert gunzip.eof
            assert not gunzip.unused_data


def test_a_selection_is_of_the_newest_snapshot_and_ready_before_the_next_scrape(
    scrape: Scrape, endpoint: MetricsEndpoint, rendering: Rendering
) -> None:
    power = ("collect[]", "power")
    assert "} 100\n" in scrape(power)[1]
    endpoint.publish(snapshot(200.0))
    assert rendering.count == 2, "because it was scraped"
    assert "} 200\n" in scrape(power)[1]
    assert rendering.count == 2


def test_the_order_of_the_groups_does_not_matter(scrape: Scrape) -> None:
    one, other = ("collect[]", "power"), ("collect[]", "xid")
    assert scrape(one, other) == scrape(other, one, one)


def test_too_many_parameters_are_refused(scrape: Scrape) -> None:
    assert scrape(*[("collect[]", "power")] * MOST_PARAMETERS)[0] == 200
    status, text = scrape(*[("collect[]", "power")] * (MOST_PARAMETERS + 1))
    assert (status, text) == (400, "more than 256 parameters\n")


def test_without_groups_a_query_is_ignored() -> None:
    endpoint = MetricsEndpoint(lambda _: [])
    assert endpoint.narrowed("collect[]=power&exclude[]=xid") is endpoint
