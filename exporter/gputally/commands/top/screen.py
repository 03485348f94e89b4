"""The terminal: shows the lines of `board`, reads keys and the mouse, and asks the source in a thread."""

import asyncio
import contextlib
import signal
import threading
import time
from dataclasses import replace

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputally.commands.top import board as lines_of
from gputally.commands.top.board import Line, Size, board
from gputally.commands.top.page import CRITICAL, OK, WARNING, Page, Query, Source
from gputally.commands.top.state import QUIT_KEYS, State, enter, press, select, sort_by
from gputally.model import Unavailable

# Blue, yellow and reversed text differ for every colour vision; marks and words say the same.
_STYLES = {
    lines_of.PLAIN: Style(),
    lines_of.TITLE: Style(bold=True),
    lines_of.HEADING: Style(reverse=True),
    lines_of.DIM: Style(dim=True),
    lines_of.BAR: Style(color="bright_blue"),
    lines_of.SELECTED: Style(bold=True),
    lines_of.KEY: Style(bold=True),
    OK: Style(),
    WARNING: Style(color="yellow", bold=True),
    CRITICAL: Style(color="bright_red", bold=True, reverse=True),
}
_WHEEL_ROWS = 3


class Board(Widget):
    """All lines. Only those that changed are written to the terminal again."""

    can_focus = True
    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        before, self._lines = self._lines, lines
        changed = [
            Region(0, at, self.size.width, 1)
            for at in range(max(len(before), len(lines)))
            if at >= len(before) or at >= len(lines) or before[at] != lines[at]
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else []
        return Strip([Segment(span.text, _STYLES[span.style]) for span in line]).adjust_cell_length(
            self.size.width
        )


class TopApp(App[None]):
    """`failure` is why the newest values could not be read; `page` has the last ones that could."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; }"

    def __init__(
        self, source: Source, state: State, interval_seconds: float, *, unicode: bool = True
    ) -> None:
        super().__init__(ansi_color=True)
        # Otherwise the library has a message for Ctrl-C.
        self.bind("ctrl+c", "quit", show=False)
        self._source = source
        self._state = state
        self._interval_seconds = interval_seconds
        self._unicode = unicode
        self._board = Board()
        self._page: Page | None = None
        self._failure: Unavailable | None = None
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._query = Query()

    @property
    def is_shown(self) -> bool:
        """Whether the first page is on the screen."""
        return self._page is not None

    def compose(self) -> ComposeResult:
        yield self._board

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError):  # not in the main thread
                loop.add_signal_handler(number, self.exit)
        self._board.focus()
        self._draw()
        threading.Thread(target=self._follow_source, daemon=True, name="source").start()

    def on_unmount(self) -> None:
        self._ended.set()
        self._asked.set()

    def on_resize(self) -> None:
        self._become(self._state)

    def on_key(self, event: events.Key) -> None:
        if event.key in QUIT_KEYS and self._state.typed is None:
            self.exit()
            return
        event.stop()
        self._become(press(self._state, event.key, event.character, self._page, self._rows))

    def on_click(self, event: events.Click) -> None:
        size, page = self._space, self._page
        if page is None or not size.fits or self._state.help:
            return
        heading = lines_of.heading_line(self._state, page, self._failure, size)
        if event.screen_y == heading:
            columns = lines_of.columns_of(self._state, page, size)
            if sort := lines_of.heading_at(columns, event.screen_x):
                self._become(sort_by(self._state, sort))
        elif heading < event.screen_y <= heading + len(page.rows):
            row = page.offset + event.screen_y - heading - 1
            chosen = replace(self._state, selected=row)
            self._become(enter(chosen, page) if row == self._state.selected else chosen)

    def on_mouse_scroll_down(self) -> None:
        self._move(_WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._move(-_WHEEL_ROWS)

    @property
    def _space(self) -> Size:
        return Size(self.size.width, self.size.height)

    @property
    def _rows(self) -> int:
        return lines_of.rows_of(self._state, self._page, self._failure, self._space)

    def _move(self, rows: int) -> None:
        count = self._page.row_count if self._page else 0
        self._become(select(self._state, self._state.selected + rows, count, self._rows))

    def _become(self, state: State) -> None:
        self._state = state
        query = state.query(self._rows, self._space.graph_points)
        if query != self._query:
            self._query = query
            self._asked.set()
        self._draw()

    def _show(self, query: Query, page: Page | None, failure: Unavailable | None) -> None:
        """Called in the thread of the screen, with the answer to a query; there may be a newer one."""
        self._failure = failure
        if page is not None:
            self._page = page
            if query == self._query:
                selected = max(0, min(self._state.selected, page.row_count - 1))
                self._state = replace(self._state, offset=page.offset, selected=selected)
        self._become(self._state)

    def _draw(self) -> None:
        self._board.show(board(self._state, self._page, self._failure, self._space, unicode=self._unicode))

    def _follow_source(self) -> None:
        """The thread of the source: a page for each new query, and new values every interval."""
        due, was_read = 0.0, False
        stale: Unavailable | None = None
        while not self._ended.is_set():
            query, page, failure = self._query, None, None
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + self._interval_seconds
                    if not (self._state.paused and was_read):
                        self._source.refresh()
                        was_read, stale = True, None
            except Unavailable as error:
                stale = error
            try:
                page = self._source.page(query) if was_read else None
            except Unavailable as error:
                failure = error
            if self._ended.is_set():
                return
            with contextlib.suppress(RuntimeError):  # the screen has ended
                self.call_from_thread(self._show, query, page, failure or stale)
            self._asked.wait(max(0.0, due - time.monotonic()))
            self._asked.clear()
