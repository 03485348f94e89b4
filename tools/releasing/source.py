"""The commit that is released: its files, without anything that git does not track."""

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tools import ROOT, Failed
from tools.rendering.command import version


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a commit, extracted to a directory."""

    root: Path
    commit: str
    seconds: int
    """The time of the commit: the time of every file in every archive."""

    @property
    def version(self) -> str:
        return version(self.root)

    @property
    def notes(self) -> str:
        """The section of this version in the changelog."""
        sections = re.split(r"(?m)^## (\S+).*\n", (self.root / "CHANGELOG.md").read_text())
        notes = dict(zip(sections[1::2], sections[2::2], strict=True)).get(self.version, "").strip()
        if not notes:
            raise Failed(f"CHANGELOG.md has no section ## {self.version}: write what changes for users")
        return f"{notes}\n"


def git(*arguments: str, root: Path = ROOT) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise Failed(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def checked_out(directory: Path, wanted: str, repository: Path = ROOT) -> Source:
    """The newest commit in `directory`. Raises Failed if it is not what would be released as `wanted`."""
    changed = git("status", "--porcelain", root=repository).decode().splitlines()
    if changed:
        shown = ", ".join(line[3:] for line in changed[:5])
        raise Failed(f"{len(changed)} files are not committed ({shown}): commit or remove them first")
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD", root=repository))) as archive:
        archive.extractall(directory, filter="data")
    source = Source(
        directory,
        git("rev-parse", "HEAD", root=repository).decode().strip(),
        int(git("show", "--no-patch", "--format=%ct", "HEAD", root=repository)),
    )
    if source.version != wanted:
        raise Failed(
            f"version {wanted}: the source is {source.version}; set __version__ in "
            "exporter/gputally/__init__.py and run tools/render"
        )
    _ = source.notes
    return source
