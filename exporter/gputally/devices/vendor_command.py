"""Runs a vendor's command-line tool with limits on time and output, and leaves no process behind."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass

from gputally.model import Unavailable

MAX_OUTPUT_BYTES = 8 * 2**20
_END_SECONDS = 0.5
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Finished:
    """A tool that ended by itself."""

    exit_code: int
    stdout: str
    stderr: str


class CommandFailed(Unavailable):
    """The tool did not start, did not end, or printed too much. `error` is one word for a counter."""

    def __init__(self, error: str, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.error = error


class Command:
    """One tool. At most one process of it exists at a time, even one that cannot be killed."""

    def __init__(self, program: str, *, fix_when_it_hangs: str) -> None:
        self.program = program
        self._fix_when_it_hangs = fix_when_it_hangs
        self._stuck: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str, timeout_seconds: float) -> Finished:
        """Runs the tool to its end. Returns or raises shortly after the timeout at the latest."""
        self.close()
        if self._stuck is not None:
            raise self._stuck_failure(self._stuck)
        started = time.monotonic()
        process = self._start(arguments)
        try:
            stdout, stderr = self._collect(process, started, timeout_seconds)
        finally:
            self._end(process)
        if process.returncode is None:
            raise self._stuck_failure(process)
        return Finished(
            process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
        )

    def close(self) -> None:
        """Reaps a process that an earlier run could not end, if it has ended since."""
        if self._stuck is not None and self._stuck.poll() is not None:
            self._stuck = None

    def _stuck_failure(self, process: subprocess.Popen[bytes]) -> CommandFailed:
        return CommandFailed(
            "stuck",
            f"{self.program} (pid {process.pid}) hangs inside the driver and cannot be ended",
            self._fix_when_it_hangs,
        )

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise CommandFailed(
                "not_found",
                f"{self.program} was not found",
                f"install the package that brings {self.program}, or give its path",
            ) from error
        except OSError as error:
            raise CommandFailed(
                "not_started",
                f"{self.program} could not be started: {error.strerror}",
                f"check that {self.program} is an executable for this machine that this user may run",
            ) from error

    def _collect(
        self, process: subprocess.Popen[bytes], started: float, timeout_seconds: float
    ) -> tuple[bytes, bytes]:
        """Reads both pipes until the tool ends. A pipe that another process holds open is not waited for."""
        pipes = [pipe.fileno() for pipe in (process.stdout, process.stderr) if pipe is not None]
        output = {pipe: bytearray() for pipe in pipes}
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while True:
                left = started + timeout_seconds - time.monotonic()
                if left <= 0:
                    raise self._timeout_failure(time.monotonic() - started)
                if not selector.get_map():
                    if _has_ended(process):
                        break
                    time.sleep(min(left, 0.002))
                    continue
                ready = selector.select(min(left, _POLL_SECONDS))
                if not ready and _has_ended(process):
                    break
                for key, _ in ready:
                    self._read_into(output[key.fd], key, selector)
        stdout, stderr = output.values()
        return bytes(stdout), bytes(stderr)

    def _timeout_failure(self, waited_seconds: float) -> CommandFailed:
        return CommandFailed(
            "timeout",
            f"{self.program} was still running after {waited_seconds:.1f} s and was killed",
            self._fix_when_it_hangs,
        )

    def _read_into(
        self, buffer: bytearray, key: selectors.SelectorKey, selector: selectors.BaseSelector
    ) -> None:
        data = os.read(key.fd, 2**16)
        if not data:
            selector.unregister(key.fileobj)
        buffer += data
        if len(buffer) > MAX_OUTPUT_BYTES:
            raise CommandFailed(
                "too_much_output",
                f"{self.program} printed more than {MAX_OUTPUT_BYTES // 2**20} MiB and was killed",
                f"check that {self.program} is the tool it should be",
            )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kills the process group and reaps its leader, which keeps the group's id from reuse until then."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._stuck = process


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. Does not reap it."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # SIGCHLD is ignored: the kernel has reaped it
        return True
