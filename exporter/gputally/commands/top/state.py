"""The state of the screen, and what a key or a click makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gputally.commands.top.page import (
    GPUS,
    NODES,
    OWNERS,
    SORTS,
    GpuRow,
    NodeRow,
    OwnerRow,
    Page,
    PodName,
    Query,
    Row,
)

QUIT_KEYS = ("q", "ctrl+c", "ctrl+q")


@dataclass(frozen=True, slots=True)
class State:
    view: str = GPUS
    views: tuple[str, ...] = (GPUS, OWNERS, NODES)
    sort: str = ""
    reverse: bool = False
    namespace: str = ""
    node: str = ""
    pod: PodName | None = None
    owners: bool = True
    selected: int = 0
    """Row of the view, counted from its first one."""
    offset: int = 0
    """The first row on the screen."""
    typed: str | None = None
    """The text of the prompt for a namespace, while it is open."""
    help: bool = False
    paused: bool = False

    def query(self, rows: int, points: int) -> Query:
        return Query(
            view=self.view,
            sort=self.sort,
            reverse=self.reverse,
            namespace=self.namespace,
            node=self.node,
            pod=self.pod,
            owners=self.owners,
            offset=self.offset,
            limit=max(1, rows),
            points=points,
        )

    @property
    def sorts(self) -> tuple[str, ...]:
        return tuple(SORTS[self.view])

    @property
    def sorted_by(self) -> str:
        return self.sort if self.sort in self.sorts else self.sorts[0]


def press(state: State, key: str, character: str | None, page: Page | None, rows: int) -> State:
    """The state after a key; `rows` is the number of rows on the screen."""
    if state.typed is not None:
        return _type(state, key, character)
    if state.help:
        return replace(state, help=False)
    count = page.row_count if page else 0
    if key in _MOVES:
        return select(state, _MOVES[key](state.selected, rows, count), count, rows)
    if key in ("enter", "f"):
        return enter(state, page)
    return _ACTIONS[key](state) if key in _ACTIONS else state


def select(state: State, row: int, count: int, rows: int) -> State:
    """Selects a row, and scrolls so far that it is on the screen."""
    row = max(0, min(row, count - 1))
    offset = min(max(state.offset, row - rows + 1), row)
    return replace(state, selected=row, offset=max(0, min(offset, count - rows)))


def sort_by(state: State, sort: str) -> State:
    """The same order again reverses it."""
    reverse = not state.reverse if sort == state.sorted_by else False
    return _top(replace(state, sort=sort, reverse=reverse))


def enter(state: State, page: Page | None) -> State:
    """From a node to its GPUs, from a pod to all that it uses, from a GPU to the pods of its node."""
    match row_at(page, state.selected):
        case NodeRow(node=node):
            return _show(replace(state, node=node), GPUS)
        case OwnerRow(pod=pod, namespace=namespace) if pod:
            return _show(replace(state, pod=(namespace, pod)), OWNERS if state.views[0] == NODES else GPUS)
        case GpuRow(node=node) if state.pod is None:
            return _show(replace(state, node=node), OWNERS)
    return state


def row_at(page: Page | None, row: int) -> Row | None:
    """A row of the page, by its number in the view."""
    place = row - page.offset if page else -1
    return page.rows[place] if page and 0 <= place < len(page.rows) else None


def _leave(state: State) -> State:
    """Back from a pod, a namespace or a node, in this order."""
    if state.pod is not None:
        return _top(replace(state, pod=None))
    if state.namespace:
        return _top(replace(state, namespace=""))
    if state.node:
        return _show(replace(state, node=""), state.views[0])
    return state


def _show(state: State, view: str) -> State:
    return _top(replace(state, view=view, sort="", reverse=False))


def _top(state: State) -> State:
    return replace(state, selected=0, offset=0)


def _type(state: State, key: str, character: str | None) -> State:
    typed = state.typed or ""
    match key:
        case "enter":
            return _top(replace(state, namespace=typed.strip(), typed=None))
        case "escape":
            return replace(state, typed=None)
        case "backspace":
            return replace(state, typed=typed[:-1])
    return replace(state, typed=typed + character) if character and character.isprintable() else state


def _next_view(state: State) -> State:
    return _show(state, state.views[(state.views.index(state.view) + 1) % len(state.views)])


def _next_sort(state: State) -> State:
    place = state.sorts.index(state.sorted_by)
    return _top(replace(state, sort=state.sorts[(place + 1) % len(state.sorts)], reverse=False))


# Key -> the row to select, from the selected one, the rows on the screen and those of the view.
_MOVES: Mapping[str, Callable[[int, int, int], int]] = {
    **dict.fromkeys(("up", "k"), lambda selected, *_: selected - 1),
    **dict.fromkeys(("down", "j"), lambda selected, *_: selected + 1),
    "pageup": lambda selected, rows, _: selected - rows,
    "pagedown": lambda selected, rows, _: selected + rows,
    **dict.fromkeys(("home", "g"), lambda *_: 0),
    **dict.fromkeys(("end", "G"), lambda _selected, _rows, count: count - 1),
}
_ACTIONS: Mapping[str, Callable[[State], State]] = {
    **dict.fromkeys(("question_mark", "h", "f1"), lambda state: replace(state, help=True)),
    **dict.fromkeys(("escape", "backspace", "u"), _leave),
    "tab": _next_view,
    "1": lambda state: _show(state, state.views[0]),
    "2": lambda state: _show(state, state.views[1]),
    "3": lambda state: _show(state, state.views[2]),
    "s": _next_sort,
    "r": lambda state: _top(replace(state, reverse=not state.reverse)),
    "o": lambda state: _top(replace(state, owners=not state.owners)),
    "n": lambda state: replace(state, typed=state.namespace),
    "space": lambda state: replace(state, paused=not state.paused),
}
