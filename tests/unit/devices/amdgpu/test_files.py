"""A file of sysfs gives its value, or None and the reason; never an exception."""

import errno
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.files import (
    Files,
    Levels,
    inside,
    parse_counts,
    parse_levels,
    parse_number,
)
from tests.unit.devices.amdgpu.trees import fail_files

MHZ = 1_000_000


@pytest.fixture
def directory(tmp_path: Path) -> Files:
    return Files(tmp_path, Counter())


@pytest.mark.parametrize(
    ("content", "number"),
    [("37\n", 37), ("0\n", 0), ("-5000\n", -5000), ("0x1002\n", 0x1002), (" 42 \0\0\0", 42)],
)
def test_a_number(directory: Files, content: str, number: int) -> None:
    (directory.directory / "file").write_text(content)
    assert directory.number("field", "file") == number
    assert directory.divided("field", "file", 1000) == number / 1000
    assert not directory.errors
    assert directory.succeeded == {"field"}


def test_an_invalid_number_is_counted(directory: Files) -> None:
    (directory.directory / "file").write_text("Query currently inaccessible\n")
    assert directory.number("power_watts", "file") is None
    assert directory.errors == {("power_watts", "malformed"): 1}


def test_an_empty_file_has_no_value(directory: Files) -> None:
    (directory.directory / "file").write_bytes(b"\n\0")
    assert directory.text("field", "file") is None
    assert directory.number("field", "file") is None
    assert not directory.errors


def test_a_missing_file_is_not_supported(directory: Files) -> None:
    assert directory.raw("field", "file") is None
    assert directory.number("field", "no/such/directory/file") is None
    assert directory.divided("field", "file", 1000) is None
    assert directory.names("hwmon") == []
    assert not directory.errors
    assert not directory.succeeded | directory.failed | directory.denied


@pytest.mark.parametrize("code", [errno.ENODATA, errno.EOPNOTSUPP])
def test_a_file_may_report_not_supported(
    directory: Files, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fail_files(monkeypatch, code, lambda _: True)
    assert directory.number("field", "file") is None
    assert not directory.errors
    assert not directory.failed


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (errno.EIO, "eio"),
        (errno.EBUSY, "ebusy"),
        (errno.EINVAL, "einval"),
        (errno.ETIMEDOUT, "etimedout"),
        (errno.EPERM, "eperm"),
        (errno.ENODEV, "enodev"),
    ],
)
def test_an_error_is_counted_by_its_name(
    directory: Files, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    fail_files(monkeypatch, code, lambda _: True)
    for _ in range(2):
        assert directory.number("power_watts", "power1_average") is None
    assert directory.errors == {("power_watts", name): 2}
    assert directory.failed == {"power_watts"}


def test_a_permission_error_does_not_mark_the_card_as_lost(
    directory: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_files(monkeypatch, errno.EACCES, lambda _: True)
    assert directory.raw("gpu_metrics", "gpu_metrics") is None
    assert directory.errors == {("gpu_metrics", "eacces"): 1}
    assert (directory.failed, directory.denied) == (set(), {"gpu_metrics"})


def test_a_new_sample_resets_the_readable_files_but_not_the_errors(
    directory: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.directory / "good").write_text("1")
    fail_files(monkeypatch, errno.EIO, lambda path: path.name == "bad")
    directory.number("good", "good")
    directory.number("bad", "bad")
    assert (directory.succeeded, directory.failed) == ({"good"}, {"bad"})
    directory.begin()
    assert (directory.succeeded, directory.failed) == (set(), set())
    assert directory.errors == {("bad", "eio"): 1}


def test_a_file_that_is_a_link_is_not_followed(directory: Files, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    (tmp_path / "file").symlink_to(tmp_path / "secret")
    assert directory.number("field", "file") is None
    assert directory.errors == {("field", "eloop"): 1}


def test_links_are_followed_within_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    (root / "devices/gpu").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / "in").symlink_to("devices/gpu")
    (root / "out").symlink_to("../elsewhere")
    (root / "circle").symlink_to("circle")
    assert inside(root, root / "in") == (root / "devices/gpu").resolve()
    assert inside(root, root / "out") is None
    assert inside(root, root / "devices/../../elsewhere") is None
    assert inside(root, root / "circle") is None
    assert inside(root, root / "missing") is None


def test_the_root_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real/devices").mkdir(parents=True)
    (tmp_path / "sys").symlink_to("real")
    assert inside(tmp_path / "sys", tmp_path / "sys/devices") == (tmp_path / "real/devices").resolve()


@pytest.mark.parametrize(
    ("text", "current", "highest"),
    [
        ("0: 96Mhz \n1: 456Mhz \n2: 772Mhz \n3: 1249Mhz *\n", 1249, 1249),
        ("0: 500Mhz\n1: 31Mhz *\n2: 2219Mhz\n", 31, 2219),  # the one in the middle is the clock now
        ("0: 500Mhz\n1: 2105Mhz *\n2: 2100Mhz\n", 2105, 2100),
        ("S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n", 19, 800),  # asleep
        ("0: 800Mhz *\n1: 800Mhz *\n2: 900Mhz \n", 800, 900),  # equal levels are all marked
        ("0: 400Mhz \n1: 800Mhz \n", None, 800),
        ("0: 1600Mhz *\n1: 400Mhz \n", 1600, 1600),  # APUs may list the fastest first
        ("0: 0Mhz *\n1: 0Mhz *\n", 0, None),  # the block is off
        ("S: 19Mhz *\n", 19, None),
    ],
)
def test_levels(text: str, current: int | None, highest: int | None) -> None:
    assert parse_levels(text) == Levels(
        None if current is None else current * MHZ, None if highest is None else highest * MHZ
    )


@pytest.mark.parametrize("text", ["", " \n", "0: 8.0GT/s, x16 *\n", "failed to get levels"])
def test_a_file_without_levels(text: str) -> None:
    assert parse_levels(text) is None


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=16, unique=True).map(sorted),
    st.data(),
    st.sampled_from(["Mhz", "MHz", "MHZ"]),
    st.sampled_from(["", " "]),
)
def test_levels_of_any_length(clocks: list[int], data: st.DataObject, unit: str, end: str) -> None:
    marked = data.draw(st.none() | st.integers(0, len(clocks) - 1))
    lines = [
        f"{level}: {clock}{unit} *" if level == marked else f"{level}: {clock}{unit}{end}"
        for level, clock in enumerate(clocks)
    ]
    levels = parse_levels("\n".join(lines))
    assert levels == Levels(None if marked is None else clocks[marked] * MHZ, clocks[-1] * MHZ)


@given(st.dictionaries(st.sampled_from(["ue", "ce", "de"]), st.integers(0, 2**64 - 1)))
def test_counts_of_any_size(counts: dict[str, int]) -> None:
    assert parse_counts("".join(f"{name}: {count}\n" for name, count in counts.items())) == counts


def test_lines_without_a_count_are_omitted() -> None:
    assert parse_counts("ue: 1\nQuery currently inaccessible\nce: -1\nde: x\nCE:2\n") == {"ue": 1, "ce": 2}


@given(st.text() | st.text(alphabet="0123456789:*Mhz \nScued"))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    parse_levels(text)
    parse_counts(text)
    parse_number(text)


@pytest.mark.parametrize("count", [20, 400, 10_000])
def test_a_number_with_too_many_digits_is_none(count: int) -> None:
    digits = "9" * count
    assert parse_number(digits) is None
    assert parse_levels(f"0: {digits}Mhz *") is None
    assert parse_counts(f"ue: 9{digits}") == {}
