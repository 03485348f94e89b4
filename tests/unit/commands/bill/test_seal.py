"""A sealed bill: every changed character is found, and where."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.commands.bill.seal import OPEN, NotSealed, close, mark_previous, report, verify

TEXT = "".join(["key,cost,seal\n", *(f"team-{number},{number * 7}.50,{OPEN}\n" for number in range(6))])
SEALED = close(TEXT)


def test_an_unchanged_bill_is_said_to_be_so() -> None:
    verdict = verify(SEALED)
    assert verdict.changed == ()
    assert verdict.lines == 6
    assert report(verdict) == ["ok: 6 sealed lines are unchanged", f"seal-sha256-{verdict.seal}"]
    assert verdict.seal in SEALED.splitlines()[-1]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("team-2,14.50", "team-2,94.50", "line 4"),
        ("team-5,35.50", "team-6,35.50", "line 7"),
        ("key,cost", "key,Cost", "lines 1 to 2"),
    ],
    ids=["a row", "the last row", "the head, which belongs to the first row"],
)
def test_the_changed_line_is_named(old: str, new: str, found: str) -> None:
    assert verify(SEALED.replace(old, new)).changed == (found,)


def test_each_of_several_changed_lines_is_named() -> None:
    changed = SEALED.replace("team-1", "team-7").replace("team-4", "team-8")
    assert verify(changed).changed == ("line 3", "line 6")


def test_a_removed_line_is_found_at_the_next_one() -> None:
    lines = SEALED.splitlines(keepends=True)
    assert verify("".join(lines[:3] + lines[4:])).changed == ("line 4",)


@pytest.mark.parametrize("kept", [2, 3])
def test_missing_lines_at_the_end_are_found(kept: int) -> None:
    lines = SEALED.splitlines(keepends=True)[: kept + 1]
    assert verify("".join(lines)).changed == (f"line {kept + 1}",)


def test_exchanged_lines_are_found() -> None:
    lines = SEALED.splitlines(keepends=True)
    lines[2], lines[3] = lines[3], lines[2]
    assert verify("".join(lines)).changed


def test_a_line_with_a_hash_of_its_own_is_found_at_the_next_one() -> None:
    """The hash of a changed line can be computed, but then the next line does not continue it."""
    forged = close(TEXT.replace("team-2,14.50", "team-2,94.50")).splitlines(keepends=True)
    lines = SEALED.splitlines(keepends=True)
    lines[3] = forged[3]
    assert verify("".join(lines)).changed == ("line 5",)


def test_text_after_the_last_seal_is_found() -> None:
    assert verify(SEALED + "team-9,0.00,\n").changed == ("line 7", "line 8")


def test_without_a_seal_there_is_nothing_to_verify() -> None:
    with pytest.raises(NotSealed, match="--seal"):
        verify("key,cost\nteam-1,7.50\n")


def test_the_chain_continues_the_bill_before() -> None:
    first = verify(SEALED).seal
    second = close(f"a,{mark_previous(first)},{OPEN}\n")
    assert verify(second).previous == first


def test_a_key_that_looks_like_a_seal_does_not_break_the_chain() -> None:
    text = close(f"{OPEN} is my name,7.50,0.00,{OPEN}\nb,1.00,0.00,{OPEN}\n")
    assert verify(text).changed == ()


@given(data=st.data())
def test_any_changed_character_is_found(data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(SEALED) - 1))
    others = string.printable.replace(SEALED[position], "")
    character = data.draw(st.sampled_from([*others, "", "é"]))
    changed = SEALED[:position] + character + SEALED[position + 1 :]
    line = SEALED.count("\n", 0, position) + 1
    verdict = verify(changed)
    assert verdict.changed
    named = [int(number) for text in verdict.changed for number in text.split() if number.isdigit()]
    assert min(named) - 1 <= line <= max(named) + 1
