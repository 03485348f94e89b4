"""Files that may be gone at any moment, and numbers as the kernel writes them."""

import errno
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.files import ProcessFiles, parse_count


@pytest.fixture
def errors() -> Counter[tuple[str, str]]:
    return Counter()


@pytest.fixture
def files(errors: Counter[tuple[str, str]]) -> ProcessFiles:
    return ProcessFiles("kfd", errors)


def test_a_missing_file_is_not_an_error(
    files: ProcessFiles, errors: Counter[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for gone in (f"{tmp_path}/gone", f"{tmp_path}/file/gone"):
        assert files.read(gone) is None
        assert files.names(gone) is None
        assert files.numbered(gone) is None
        assert files.links(gone) is None
    assert (errors, files.denied) == ({}, False)


def test_a_directory_is_listed_by_names_numbers_and_links(files: ProcessFiles, tmp_path: Path) -> None:
    for name in ("7", "0", "007x", "self"):
        (tmp_path / name).mkdir()
    assert sorted(files.names(str(tmp_path)) or ()) == ["0", "007x", "7", "self"]
    assert files.numbered(str(tmp_path)) == [(7, (tmp_path / "7").stat().st_ino)]
    (tmp_path / "7/3").symlink_to("/dev/dri/renderD128")
    assert files.links(f"{tmp_path}/7") == [("3", "/dev/dri/renderD128")]


def test_one_failing_link_does_not_hide_the_others(
    files: ProcessFiles, errors: Counter[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "1").write_text("no link")
    (tmp_path / "2").symlink_to("socket:[5]")
    assert files.links(str(tmp_path)) == [("2", "socket:[5]")]
    assert errors == {("kfd", "einval"): 1}


def test_no_file_descriptor_is_left_open(
    files: ProcessFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2").symlink_to("socket:[5]")
    before = len(list(Path("/proc/self/fd").iterdir()))

    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", fails)
        patch.setattr(os, "read", fails)
        for _ in range(5):
            assert files.links(str(tmp_path)) is None
            assert files.read(__file__) is None
    assert files.denied
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_permission_errors_are_counted_on_request(
    files: ProcessFiles, errors: Counter[tuple[str, str]]
) -> None:
    files.count_denial()
    assert errors == {("kfd", "permission"): 1}


@given(st.integers(0, 2**64 - 1))
def test_every_number_of_the_kernel_is_parsed(number: int) -> None:
    assert parse_count(str(number)) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "0x10", "1.0", "1_000", " 1", "²", "٣", str(2**64), "9" * 5000]
)
def test_other_texts_are_not_numbers(text: str) -> None:
    assert parse_count(text) == -1
