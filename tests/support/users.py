"""Prefixes of a command that run it as root or as another user, independent of the user of the tests."""

import os
import subprocess
from functools import cache

from tools import Missing

_NOBODY = 65534


@cache
def as_root() -> tuple[str, ...]:
    """Raises Missing."""
    # Root of its own user namespace: the same effective user id for a driver.
    return () if os.geteuid() == 0 else first_that_works(("unshare", "--map-root-user"))


@cache
def as_nobody() -> tuple[str, ...]:
    """Raises Missing."""
    if os.geteuid() != 0:
        return ()
    return first_that_works(
        # It may read root's directories: the files of the tests, and perhaps the interpreter.
        (
            *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
            *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
        ),
        # The root of a user namespace can only become a user that the namespace has.
        ("unshare", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}"),
    )


def first_that_works(*prefixes: tuple[str, ...], trial: tuple[str, ...] = ("true",)) -> tuple[str, ...]:
    """The first of these prefixes with which the trial succeeds. Raises Missing."""
    for prefix in prefixes:
        tried = subprocess.run([*prefix, *trial], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return prefix
    said = " ".join(tried.stderr.split())
    raise Missing(f"neither root nor user namespaces are available here: run as root ({said})")
