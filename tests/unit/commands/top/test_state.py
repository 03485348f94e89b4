"""What keys make of the screen's state."""

from dataclasses import replace

import pytest

from gputally.commands.top.documents import page_of, read_document
from gputally.commands.top.page import GPUS, NODES, OWNERS, OwnerRow, Page
from gputally.commands.top.state import State, press, row_at, select, sort_by
from tests.support.documents import responses

ROWS = 5


def page(state: State) -> Page:
    return page_of([read_document(responses(8)["/api/v1/snapshot"])], state.query(ROWS, 10), "node")


def after(state: State, *keys: str) -> State:
    for key in keys:
        state = press(state, key, key if len(key) == 1 else None, page(state), ROWS)
    return state


def test_the_selected_row_is_always_on_the_screen() -> None:
    state = State()
    for key in ("down", "pagedown", "end", "up", "pageup", "home", "end", "down"):
        state = after(state, key)
        assert state.offset <= state.selected < state.offset + ROWS
        assert 0 <= state.selected < page(state).row_count


def test_the_same_order_again_is_reversed() -> None:
    state = sort_by(State(), "power")
    assert (state.sorted_by, state.reverse) == ("power", False)
    assert sort_by(state, "power").reverse
    assert not sort_by(sort_by(state, "power"), "memory").reverse


def test_views_follow_each_other() -> None:
    assert [after(State(), *["tab"] * times).view for times in range(4)] == [GPUS, OWNERS, NODES, GPUS]
    assert after(State(), "3").view == NODES


def test_a_namespace_is_typed_and_escape_returns_to_all() -> None:
    state = after(State(), "n", "q", "x", "backspace", "enter")
    assert (state.namespace, state.typed) == ("q", None)
    assert after(state, "escape").namespace == ""
    assert after(State(), "n", "q", "escape").namespace == ""


def test_enter_follows_a_pod_and_escape_returns() -> None:
    state = State(view=OWNERS, sort="memory")
    row = row_at(page(state), 0)
    assert isinstance(row, OwnerRow)
    followed = after(state, "enter")
    assert (followed.pod, followed.view) == ((row.namespace, row.pod), GPUS)
    assert {one.name for one in page(followed).rows if isinstance(one, OwnerRow)} == {row.name}
    assert after(followed, "escape").pod is None


def test_enter_on_a_node_shows_its_gpus() -> None:
    state = after(State(view=NODES), "enter")
    assert (state.view, state.node) == (GPUS, "gpu-node-1")
    assert after(state, "escape").view == GPUS
    assert after(state, "escape").node == ""


def test_any_key_closes_the_help() -> None:
    shown = after(State(), "question_mark")
    assert shown.help
    assert not after(shown, "down").help


@pytest.mark.parametrize("key", ["x", "f12", "left"])
def test_other_keys_change_nothing(key: str) -> None:
    assert after(State(), key) == State()


def test_a_shorter_view_scrolls_back() -> None:
    state = replace(State(), selected=90, offset=86)
    assert select(state, 90, 3, ROWS).offset == 0
    assert select(state, 90, 0, ROWS).selected == 0
