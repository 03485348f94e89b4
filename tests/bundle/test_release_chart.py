"""The chart of a release, beside the one that Helm packages."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.bundle.chart import CHART
from tools import ROOT
from tools.dependencies import programs
from tools.releasing import artefacts
from tools.releasing.source import Source


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ((name, content),) = artefacts.chart(Source(ROOT, "0" * 40, 1_790_000_000)).items()
    path = tmp_path_factory.mktemp("released") / name
    path.write_bytes(content)
    return path


def contents(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {one.name: opened.extractfile(one).read() for one in opened if one.isfile()}  # type: ignore[union-attr]


def helm(*arguments: str | Path) -> str:
    command = [programs.path("helm"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_has_the_files_that_helm_packages(released: Path, tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (packaged,) = tmp_path.glob("*.tgz")
    ours, theirs = contents(released.read_bytes()), contents(packaged.read_bytes())
    # Helm writes Chart.yaml anew, in its own order.
    assert ours.pop("gputally/Chart.yaml")
    assert theirs.pop("gputally/Chart.yaml")
    assert ours == theirs
    assert packaged.name == released.name


def test_it_installs_what_the_directory_installs(released: Path) -> None:
    assert helm("template", "gputally", released) == helm("template", "gputally", CHART)
