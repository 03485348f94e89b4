"""Runs tasks one after the other on one thread; when a task hangs, another thread continues with the next.

A thread for each GPU would be simpler, but handing a GPU to another thread and back takes half as much CPU
time as reading it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

_Call = Callable[[], None]
_PATIENCE_SECONDS = 0.1


class _Round:
    """The tasks of one `run`."""

    def __init__(self, tasks: int) -> None:
        self.left = tasks
        self.done = threading.Event()


class _RunnerThread:
    """One thread."""

    busy = False


class Runner:
    """Runs tasks that may hang. It has one thread, and one more for each task that hangs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: deque[tuple[_Call, _Round]] = deque()
        self._current: _RunnerThread | None = None
        self._changed = threading.Condition()
        """Guards all of this."""

    def run(self, tasks: Sequence[_Call], seconds: float) -> None:
        """Returns when all tasks have ended, or after that time; the others still run, or will.

        A task must not raise.
        """
        if not tasks:
            return
        deadline = time.monotonic() + seconds
        patience = min(_PATIENCE_SECONDS, seconds / (2 * len(tasks)))  # so that all are started in time
        this = _Round(len(tasks))
        with self._changed:
            self._tasks.extend((task, this) for task in tasks)
            if self._current is None or self._current.busy:
                self._replace_thread()
            self._changed.notify_all()
        left = this.left
        while (remaining := deadline - time.monotonic()) > 0:
            if this.done.wait(min(patience, remaining)):
                return
            with self._changed:
                if this.left == left and self._tasks:
                    self._replace_thread()
                left = this.left

    def close(self) -> None:
        """Ends the thread; one that hangs ends when its task does."""
        with self._changed:
            self._current = None
            self._changed.notify_all()

    def _replace_thread(self) -> None:
        self._current = _RunnerThread()
        # A daemon: a call that never returns must not keep the program from ending.
        threading.Thread(target=self._work, args=(self._current,), name=self._name, daemon=True).start()

    def _work(self, worker: _RunnerThread) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or worker is not self._current)
                if worker is not self._current:
                    return
                task, of_round = self._tasks.popleft()
                worker.busy = True
            task()
            with self._changed:
                worker.busy = False
                of_round.left -= 1
                if not of_round.left:
                    of_round.done.set()
