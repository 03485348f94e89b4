"""Builds the files of a release from the newest commit: the same bytes whenever and wherever it runs.

tools/release 0.2.0                  everything, into build/release/0.2.0
tools/release 0.2.0 --dry-run        only prints what would be written
tools/release 0.2.0 --only chart     one step; can be given several times

Refuses a tree with changes that are not committed, a version that the source does not have, and a version
without a section in CHANGELOG.md. Nothing is uploaded.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools import ROOT, Failed
from tools.releasing.archives import Files
from tools.releasing.artefacts import CHECKSUMS, STEPS, checksums, provenance
from tools.releasing.source import Source, checked_out


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="tools/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("version", metavar="VERSION")
    arguments.add_argument("--only", action="append", choices=STEPS, help="this step (default: all)")
    arguments.add_argument("--output", type=Path, metavar="DIRECTORY", help="default build/release/VERSION")
    arguments.add_argument("--dry-run", action="store_true", help="build everything, write nothing")
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    output = options.output or ROOT / "build/release" / options.version
    try:
        with tempfile.TemporaryDirectory() as directory:
            source = checked_out(Path(directory), options.version)
            print(f"gputally {source.version} from commit {source.commit}", flush=True)
            files = release(source, options.only or STEPS)
    except Failed as failure:
        print(f"tools/release: {failure}", file=sys.stderr)
        return 1
    for name, content in sorted(files.items()):
        if not options.dry_run:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_bytes(content)
        print(f"{len(content):>10,}  {name}")
    print("nothing was written (--dry-run)" if options.dry_run else f"written to {output}")
    return 0


def release(source: Source, steps: Iterable[str]) -> Files:
    """The files of these steps by name; of all steps also their checksums and provenance."""
    files: dict[str, bytes] = {}
    for step in steps:
        print(f"  {step}", flush=True)
        files |= STEPS[step](source)
    if set(steps) == set(STEPS):
        files[f"gputally-{source.version}.provenance.json"] = provenance(source, files)
    return {**files, CHECKSUMS: checksums(files)}


if __name__ == "__main__":
    sys.exit(main())
