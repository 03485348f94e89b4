"""Errors that a GPU has detected: how often they are asked for, and what an answer without counts means.

A read queries the hardware and on most chips resets its counters; "Query currently inaccessible" is the
answer while the GPU resets (amdgpu_ras_sysfs_read in the kernel's amdgpu_ras.c).
"""

import errno
from collections import Counter
from pathlib import Path

import pytest

from gputally.devices import Errors
from gputally.devices.amdgpu import files
from gputally.devices.amdgpu.card import CardReader
from gputally.devices.amdgpu.discovery import find_cards
from gputally.model import Gpu, Reading
from tests.support.amd_trees import plant
from tests.unit.devices.amdgpu.trees import device, fail_files

INACCESSIBLE = "Query currently inaccessible\n"
BLOCKS = ("gfx", "mmhub", "sdma", "umc")
SUMS = {("corrected", "volatile"): 21, ("uncorrected", "volatile"): 1}


class Card:
    """An MI210 whose clock is the test's."""

    def __init__(self, directory: Path) -> None:
        tree = plant("mi210", directory)
        self.ras = device(tree, 0) / "ras"
        self.errors: Errors = Counter()
        self.seconds = 1000.0
        (found,) = find_cards(tree / "sys", Counter())
        self._reader = CardReader(found, self.errors, lambda: self.seconds)

    def read(self) -> Reading:
        return self._reader.read(Gpu(uuid="GPU-1", index=0, vendor="amd", model="AMD"), {})

    def write(self, block: str, text: str) -> None:
        (self.ras / f"{block}_err_count").write_text(text)


@pytest.fixture
def card(tmp_path: Path) -> Card:
    return Card(tmp_path)


def test_the_counters_are_read_once_a_minute(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    read, counted = files.read_file, Counter[str]()

    def read_counted(path: str) -> bytes:
        counted[Path(path).name] += 1
        return read(path)

    monkeypatch.setattr(files, "read_file", read_counted)
    first = card.read()
    card.write("umc", "ue: 2\nce: 17\n")
    for _ in range(11):
        card.seconds += 5
        assert card.read().ras_errors == first.ras_errors, "the last counts, without a read"
    assert {counted[f"{block}_err_count"] for block in BLOCKS} == {1}
    card.seconds += 5
    assert (card.read().ras_errors or {})["umc", "uncorrected"] == 2
    assert {counted[f"{block}_err_count"] for block in BLOCKS} == {2}


def test_counters_that_are_inaccessible_are_no_data_and_no_error(card: Card) -> None:
    assert card.read().ecc_errors == SUMS
    texts = {block: (card.ras / f"{block}_err_count").read_text() for block in BLOCKS}
    for block in BLOCKS:
        card.write(block, INACCESSIBLE)
    card.seconds += 60
    reading = card.read()
    assert (reading.up, reading.ras_errors, reading.ecc_errors) == (True, None, None)
    for block, text in texts.items():
        card.write(block, text)
    card.seconds += 5
    assert card.read().ecc_errors == SUMS
    assert not card.errors


def test_the_sum_is_absent_while_a_block_of_it_is(card: Card) -> None:
    card.read()
    card.write("umc", INACCESSIBLE)
    card.seconds += 60
    reading = card.read()
    assert {block for block, _ in reading.ras_errors or {}} == {"gfx", "mmhub", "sdma"}
    assert reading.ecc_errors is None, "a sum without it would be a counter that decreases"


def test_a_block_that_never_has_counts_does_not_cost_the_sum(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_files(monkeypatch, errno.EINVAL, lambda path: path.name == "mmhub_err_count")
    card.write("gfx", "gibberish\n")
    reading = card.read()
    assert {block for block, _ in reading.ras_errors or {}} == {"sdma", "umc"}
    assert reading.ecc_errors == {("corrected", "volatile"): 17, ("uncorrected", "volatile"): 1}
    assert card.errors == {("ras_errors", "einval"): 1, ("ras_errors", "malformed"): 1}
