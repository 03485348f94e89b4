"""The program `gputally`, and `python -m gputally`."""

import sys

from gputally.imports import UNUSED, postpone


def main() -> int:
    postpone(UNUSED)
    from gputally.cli import main as run  # noqa: PLC0415  # it imports what is postponed

    return run()


if __name__ == "__main__":
    sys.exit(main())
