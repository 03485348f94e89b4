"""Compiles the driver stand-in on demand, once per version of its sources."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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


class CompilerMissing(RuntimeError):
    """This machine has no C compiler."""


def build_library(*, without: Sequence[str] = ()) -> Path:
    """The directory that holds libnvidia-ml.so.1; compiled if that has not been done yet.

    `without` names functions that the library shall not have, as with an older driver. Two builds at
    once are safe: each compiles in a directory of its own and the first one to finish names it.
    """
    sources = sorted(_SOURCES.glob("*.[ch]"))
    directory = cache_directory() / f"standin-{_fingerprint(sources, without)}"
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


def cache_directory() -> Path:
    """Where built tools are kept: $GPUTALLY_CACHE, or a directory in the home directory."""
    chosen = os.environ.get("GPUTALLY_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "gputally"


def _fingerprint(sources: Sequence[Path], without: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in (os.uname().machine, *_FLAGS, *sorted(without)):
        digest.update(part.encode() + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compiler() -> list[str]:
    if found := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
        return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompilerMissing(
        "the driver stand-in needs a C compiler: install gcc or clang, or `python -m pip install ziglang`"
    )


def _compile(sources: Sequence[Path], library: Path, without: Sequence[str]) -> None:
    command = [*_compiler(), *_FLAGS, "-o", str(library), *(str(s) for s in sources if s.suffix == ".c")]
    if without:
        # The code stays in the library, only the names are not exported.
        hidden = library.with_name("hidden.map")
        hidden.write_text("{ local: " + " ".join(f"{name};" for name in without) + " };\n")
        command.append(f"-Wl,--version-script={hidden}")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"the driver stand-in does not compile:\n{result.stderr}")
