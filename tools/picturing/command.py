"""Takes the pictures in docs/images with which the README begins: of `gputally top` and of the live page.

The GPUs are simulated. The live page takes five minutes and a browser; `top` takes seconds.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from tools.picturing import live_page, top

_PICTURES: Mapping[str, Callable[[], int]] = {"top": top.main, "live": live_page.main}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/pictures", description=__doc__)
    parser.add_argument("picture", nargs="*", help=f"{' or '.join(_PICTURES)} (default: all)")
    wanted = parser.parse_args(arguments).picture or [*_PICTURES]
    if unknown := [name for name in wanted if name not in _PICTURES]:
        parser.error(f"{unknown[0]!r} is no picture; allowed: {', '.join(_PICTURES)}")
    return max(_PICTURES[name]() for name in wanted)


if __name__ == "__main__":
    sys.exit(main())
