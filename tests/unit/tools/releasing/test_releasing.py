"""The files of a release, from a small repository and from this one."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import ROOT, Failed
from tools.dependencies.hashes import closure, files
from tools.releasing import artefacts
from tools.releasing.archives import tar_gz, zipped
from tools.releasing.command import release
from tools.releasing.source import Source, checked_out, git

SECONDS = 1_790_000_000
names = st.text("abcdefgh/._-", min_size=1, max_size=20).filter(lambda name: ".." not in name)


@given(st.dictionaries(names, st.binary(max_size=100), max_size=5), st.randoms(use_true_random=False))
def test_an_archive_depends_on_names_and_contents_only(content: dict[str, bytes], random: object) -> None:
    shuffled = dict(sorted(content.items(), reverse=True))
    for make in (tar_gz, zipped):
        assert make(content, SECONDS) == make(shuffled, SECONDS)
    with tarfile.open(fileobj=io.BytesIO(tar_gz(content, SECONDS))) as archive:
        assert len(archive.getmembers()) == len(content)


def test_the_members_of_an_archive_are_the_files() -> None:
    content = {"a/b.txt": b"one", "a/c.txt": b"two"}
    with tarfile.open(fileobj=io.BytesIO(tar_gz(content, SECONDS))) as archive:
        entries = archive.getmembers()
        assert {one.name: archive.extractfile(one).read() for one in entries} == content  # type: ignore[union-attr]
        assert {(one.uid, one.gid, one.mode, one.mtime) for one in entries} == {(0, 0, 0o644, SECONDS)}
    with zipfile.ZipFile(io.BytesIO(zipped(content, SECONDS))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == content


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the least that a release needs."""
    root = tmp_path / "repository"
    (root / "exporter/gputally").mkdir(parents=True)
    (root / "exporter/gputally/__init__.py").write_text('__version__ = "1.2.3"\n')
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\n\n- news\n\n## 1.2.2\n\n- old\n")
    git("init", "--quiet", root=root)
    commit(root)
    return root


def commit(root: Path) -> None:
    git("add", "--all", root=root)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    git(*author, "commit", "--quiet", "--message", "x", root=root)


def test_the_notes_are_the_section_of_the_version(repository: Path, tmp_path: Path) -> None:
    source = checked_out(tmp_path / "out", "1.2.3", repository)
    assert source.notes == "- news\n"
    assert source.commit == git("rev-parse", "HEAD", root=repository).decode().strip()


def test_changes_that_are_not_committed_are_refused_by_name(repository: Path, tmp_path: Path) -> None:
    (repository / "forgotten.py").write_text("")
    with pytest.raises(Failed, match=r"forgotten\.py"):
        checked_out(tmp_path / "out", "1.2.3", repository)


def test_another_version_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"1\.3\.0.*1\.2\.3"):
        checked_out(tmp_path / "out", "1.3.0", repository)


def test_a_version_without_a_section_in_the_changelog_is_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.2\n\n- old\n")
    commit(repository)
    with pytest.raises(Failed, match=r"## 1\.2\.3"):
        checked_out(tmp_path / "out", "1.2.3", repository)


def exported(directory: Path, umask: int) -> Source:
    """The newest commit of this repository, with other permissions and times of its files each time."""
    before = os.umask(umask)
    try:
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
            archive.extractall(directory, filter="data")
    finally:
        os.umask(before)
    for path in directory.rglob("*"):
        os.utime(path, (umask, umask))
    return Source(directory, "0" * 40, SECONDS)


def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        release(exported(tmp_path / str(umask), umask), artefacts.STEPS) for umask in (0o022, 0o077)
    )
    assert {name: hashlib.sha256(content).hexdigest() for name, content in first.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in second.items()
    }
    for name, content in first.items():
        (tmp_path / name).write_bytes(content)
    command = ["sha256sum", "--check", "--strict", "--quiet", artefacts.CHECKSUMS]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "gputally.rules.yml").write_text("groups: []\n")
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 1
    subjects = json.loads(next(first[one] for one in first if "provenance" in one))["subject"]
    assert {one["name"] for one in subjects} == set(first) - {
        artefacts.CHECKSUMS,
        *(one for one in first if "provenance" in one),
    }


def test_the_bill_of_materials_has_every_package_of_the_image() -> None:
    source = Source(ROOT, "0" * 40, SECONDS)
    (content,) = artefacts.sbom(source).values()
    components = json.loads(content)["components"]
    packages = {one["name"] for one in components if one["purl"].startswith("pkg:pypi/")}
    _, requirements = files()[ROOT / "packaging/image/requirements.txt"]
    assert {name.lower().replace("_", "-") for name in packages} == closure(requirements)
    assert [one["name"] for one in components if one["type"] == "container"] == ["python"]
