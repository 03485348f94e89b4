"""One cluster for all tests here; whoever ends it leaves it to the next one to start it again."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.kubernetes import Namespace
from tools.dependencies.locking import locked
from tools.test_cluster import cluster as test_cluster
from tools.test_cluster import layout, record
from tools.test_cluster.cluster import Cluster
from tools.test_cluster.layout import Layout


@dataclass(frozen=True, slots=True)
class Keeper:
    """Has the cluster running whenever one is asked for."""

    folder: Path

    def cluster(self) -> Cluster:
        if record.running() == self.folder:
            return Cluster(Layout(self.folder))
        return test_cluster.up(self.folder, self.say)

    def say(self, text: str) -> None:
        print(f"cluster: {text}", file=sys.stderr, flush=True)


@pytest.fixture(scope="session")
def keeper() -> Iterator[Keeper]:
    folder = layout.default_folder().with_name("cluster-e2e")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A second run of these tests, or a second worker of this one, waits for its turn.
    with locked(folder.with_name(".cluster-e2e.lock"), "the end-to-end tests' cluster"):
        if (other := record.running()) not in (None, folder):
            pytest.fail(record.refusal(other))
        found = Keeper(folder)
        # A run that was killed has left its namespaces.
        test_cluster.down(folder, found.say)
        yield found
        test_cluster.down(folder, found.say)


@pytest.fixture
def cluster(keeper: Keeper) -> Cluster:
    return keeper.cluster()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for one test, which goes with all that is in it."""
    with Namespace.made(cluster.plane, request.node.name) as made:
        yield made
