"""Shared libraries of kits, for programs that clear their environment before they start themselves again.

runc and buildah do, and LD_LIBRARY_PATH is lost on the way. In a mount namespace of their own they get a
linker cache that knows the libraries of the kits besides those of the machine.
"""

import shutil
import subprocess
from pathlib import Path

from tools import Failed
from tools.dependencies import programs

_LDCONFIG_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"


def linker_cache(file: Path, *kits: str) -> list[str]:
    """Write such a cache, and return the command that puts it in place and runs what is appended to it."""
    ldconfig = shutil.which("ldconfig") or shutil.which("ldconfig", path=_LDCONFIG_PLACES)
    if ldconfig is None:
        raise Failed("there is no `ldconfig`: install libc-bin")
    folders = [
        str(folder)
        for kit in kits
        for pattern in ("root/usr/lib/*-linux-gnu", "root/lib/*-linux-gnu")
        for folder in programs.kits()[kit].folder.glob(pattern)
    ]
    settings = file.with_suffix(".conf")
    # The machine's own come first: kits are there for what it lacks.
    settings.write_text("\n".join(["include /etc/ld.so.conf", *folders, ""]))
    subprocess.run([ldconfig, "-X", "-f", settings, "-C", file], check=True, capture_output=True)
    return ["sh", "-c", 'mount --bind "$0" /etc/ld.so.cache && exec "$@"', str(file)]
