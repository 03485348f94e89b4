"""Prefixes of a command: as root, and as a user who is not, whoever runs the tests."""

import os

_IS_ROOT = os.geteuid() == 0
NOBODY = 65534

# A root of its own user namespace: a driver cannot tell the difference from the effective user id.
AS_ROOT = () if _IS_ROOT else ("unshare", "--map-root-user")
# It may read what is in root's folders: the tests' files, and perhaps the interpreter.
AS_NOBODY = (
    (
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
    )
    if _IS_ROOT
    else ()
)
