"""One cluster for all end-to-end tests; a test that ends it leaves the restart to the next test."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.kubernetes import Namespace
from tools import Missing
from tools.dependencies.locking import locked
from tools.test_cluster import cluster as test_cluster
from tools.test_cluster import layout, preflight, record
from tools.test_cluster.cluster import Cluster
from tools.test_cluster.layout import Layout


@dataclass(frozen=True, slots=True)
class Keeper:
    """Starts the cluster when it is needed."""

    directory: Path

    def cluster(self) -> Cluster:
        if record.running() == self.directory:
            return Cluster(Layout(self.directory))
        return test_cluster.up(self.directory, self.say)

    def say(self, text: str) -> None:
        print(f"cluster: {text}", file=sys.stderr, flush=True)


@pytest.fixture(scope="session")
def keeper() -> Iterator[Keeper]:
    if lack := preflight.lacking():
        raise Missing(lack)
    directory = layout.default_directory().with_name("cluster-e2e")
    directory.parent.mkdir(parents=True, exist_ok=True)
    # A second run of these tests, or a second worker, waits.
    with locked(directory.with_name(".cluster-e2e.lock"), "the end-to-end tests' cluster"):
        if (other := record.running()) not in (None, directory):
            pytest.fail(record.refusal(other))
        found = Keeper(directory)
        # A killed run leaves its namespaces.
        test_cluster.down(directory, found.say)
        yield found
        test_cluster.down(directory, found.say)


@pytest.fixture
def cluster(keeper: Keeper) -> Cluster:
    return keeper.cluster()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for one test, deleted with its objects."""
    with Namespace.made(cluster.plane, request.node.name) as made:
        yield made
