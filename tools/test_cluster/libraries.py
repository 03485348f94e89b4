"""Shared libraries of installed programs, for programs that clear their environment and start again.

runc and buildah lose LD_LIBRARY_PATH in this way. In a mount namespace of their own they get a linker cache
with the libraries of these programs in addition to the machine's.
"""

import shutil
import subprocess
from pathlib import Path

from tools import Failed
from tools.dependencies import programs

_LDCONFIG_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"


def linker_cache(file: Path, *names: str) -> list[str]:
    """Writes a linker cache, and returns the command that mounts it and runs the appended command."""
    ldconfig = shutil.which("ldconfig") or shutil.which("ldconfig", path=_LDCONFIG_PLACES)
    if ldconfig is None:
        raise Failed("`ldconfig` is not on PATH: install libc-bin")
    directories = [
        str(directory)
        for name in names
        for pattern in ("root/usr/lib/*-linux-gnu", "root/lib/*-linux-gnu")
        for directory in programs.program_sets()[name].directory.glob(pattern)
    ]
    settings = file.with_suffix(".conf")
    # The machine's libraries come first: the others only add missing ones.
    settings.write_text("\n".join(["include /etc/ld.so.conf", *directories, ""]))
    subprocess.run([ldconfig, "-X", "-f", settings, "-C", file], check=True, capture_output=True)
    return ["sh", "-c", 'mount --bind "$0" /etc/ld.so.cache && exec "$@"', str(file)]
