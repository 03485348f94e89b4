"""A small file system of our own that can be filled and made read-only, and is gone with its process."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.users import first_that_works


class Disk:
    """A tmpfs in a mount namespace of its own; `directory` is the way into it from here."""

    def __init__(self, shell: "subprocess.Popen[str]", mounted_at: Path) -> None:
        self._shell = shell
        self._mounted_at = mounted_at
        self._run(f"mount -t tmpfs -o size=64k none {mounted_at}")
        self.directory = Path(f"/proc/{shell.pid}/root{mounted_at}")

    def fill(self) -> None:
        with (self.directory / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                return

    def make_room(self) -> None:
        (self.directory / "filler").unlink()

    def make_read_only(self) -> None:
        """By a read-only mount over it: the open lock file would keep it from being remounted."""
        self._run(f"mount --bind {self._mounted_at} {self._mounted_at}")
        self._run(f"mount -o remount,bind,ro {self._mounted_at}")

    def make_writable(self) -> None:
        self._run(f"umount {self._mounted_at}")

    def _run(self, command: str) -> None:
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(f"{command}; echo $?\n")
        self._shell.stdin.flush()
        assert self._shell.stdout.readline() == "0\n", f"{command} failed"


@contextmanager
def small_disk(mounted_at: Path) -> Iterator[Disk]:
    """Raises Missing."""
    with subprocess.Popen(
        [*_mount_namespace(), "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        try:
            yield Disk(shell, mounted_at)
        finally:
            shell.kill()


@cache
def _mount_namespace() -> tuple[str, ...]:
    mount = ("mount", "-t", "tmpfs", "none", "/tmp")
    return first_that_works(("unshare", "--map-root-user", "--mount"), ("unshare", "--mount"), trial=mount)
