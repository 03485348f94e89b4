"""Prefixes of a command that run it as root or as another user, independent of the user of the tests."""

import os

_IS_ROOT = os.geteuid() == 0
NOBODY = 65534

# Root of its own user namespace: the same effective user id for a driver.
AS_ROOT = () if _IS_ROOT else ("unshare", "--map-root-user")
# It may read root's directories: the files of the tests, and perhaps the interpreter.
AS_NOBODY = (
    (
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
    )
    if _IS_ROOT
    else ()
)
