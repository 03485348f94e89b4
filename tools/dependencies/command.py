"""Installs the external programs that the tools and tests need, and prints their paths."""

import argparse
import sys
from collections.abc import Sequence

from tools import Failed
from tools.dependencies import programs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/programs", description=__doc__)
    parser.add_argument("program", nargs="*", help="install only these (default: all)")
    parser.add_argument(
        "--for", dest="group", choices=programs.GROUPS, help="install only what these tests or this tool need"
    )
    parser.add_argument("--list", action="store_true", help="print what is installed, and install nothing")
    options = parser.parse_args(arguments)
    wanted = options.program or programs.names(options.group)
    try:
        failures = [] if options.list else programs.install(wanted)
        found = {program: programs.find(program) for program in wanted}
    except Failed as failure:
        failures, found = [failure], {}
    except KeyboardInterrupt:
        return 130
    for program, path in found.items():
        if options.list or not options.program:
            print(f"{program:16} {path or '-'}")
        elif path:
            print(path)
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
    return 1 if failures else 0
