"""The file for the textfile collector is replaced as a whole, or not at all."""

from pathlib import Path

import pytest

from gputally.metrics.exposition import write_metrics_file


def test_the_file_is_replaced_and_readable_by_all(tmp_path: Path) -> None:
    target = tmp_path / "gpu.prom"
    write_metrics_file(target, b"old 1\n")
    write_metrics_file(target, b"new 2\n")
    assert target.read_bytes() == b"new 2\n"
    assert target.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "gpu.prom"
    target.mkdir()
    (target / "in the way").touch()
    with pytest.raises(OSError):  # noqa: PT011  # which error it is depends on the file system
        write_metrics_file(target, b"new 2\n")
    assert list(tmp_path.iterdir()) == [target]
