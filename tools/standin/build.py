"""Compiles the driver stand-in on demand, once per version of its sources."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.dependencies import programs

LIBRARY_NAME = "libnvidia-ml.so.1"
_SOURCES = Path(__file__).parent / "library"
_FLAGS = (
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-O2",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    f"-Wl,-soname,{LIBRARY_NAME}",
    # A reader may unload and load the library again; time 0 and delivered events must stay.
    "-Wl,-z,nodelete",
)


def build_library(*, without: Sequence[str] = ()) -> Path:
    """The directory that holds libnvidia-ml.so.1; compiled if that has not been done yet.

    `without` names functions that the library shall not have, as with an older driver. Two builds at
    once are safe: each compiles in a directory of its own and the first one to finish names it.
    """
    sources = sorted(_SOURCES.glob("*.[ch]"))
    directory = programs.cache() / f"standin-{_fingerprint(sources, without)}"
    if (directory / LIBRARY_NAME).exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".standin-", dir=directory.parent) as temporary:
        built = Path(temporary) / "built"
        built.mkdir()
        _compile(sources, built / LIBRARY_NAME, without)
        try:
            built.rename(directory)
        except OSError:
            if not (directory / LIBRARY_NAME).exists():
                raise
    return directory


def _fingerprint(sources: Sequence[Path], without: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in (os.uname().machine, *_FLAGS, *sorted(without)):
        digest.update(part.encode() + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compile(sources: Sequence[Path], library: Path, without: Sequence[str]) -> None:
    parts = [str(source) for source in sources if source.suffix == ".c"]
    command = [str(programs.path("cc")), *_FLAGS, "-o", str(library), *parts]
    if without:
        # The code stays in the library, only the names are not exported.
        hidden = library.with_name("hidden.map")
        hidden.write_text("{ local: " + " ".join(f"{name};" for name in without) + " };\n")
        command.append(f"-Wl,--version-script={hidden}")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"the driver stand-in does not compile:\n{result.stderr}")
