"""Soaks the exporter: churn, faults, restarts and hostile clients, for a given time."""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools import Failed
from tools.rendering.markdown import put_into
from tools.soaking.report import MIB, Figures, grown, text
from tools.soaking.soak import Soak, minutes

MINUTES = 60.0


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="tools/soak", description=__doc__)
    arguments.add_argument(
        "minutes", nargs="?", type=float, default=MINUTES, metavar="MINUTES", help=f"default {MINUTES:g}"
    )
    arguments.add_argument(
        "--seed", type=int, metavar="N", help="of churn, faults and energy (default: another each time)"
    )
    arguments.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write the figures between <!-- soak --> and <!-- /soak --> of this file, too",
    )
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    command = f"tools/soak {options.minutes:g} --seed {seed}"
    print(f"soak: {options.minutes:g} minutes; {command} repeats its order of events", flush=True)
    try:
        figures = soak(options.minutes, seed)
    except Failed as failure:
        print(f"tools/soak: {failure}\nrepeat it with: {command}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    found = text(figures, command, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    print(found)
    if options.report:
        put_into(options.report, "soak", found)
    wrong = [*figures.failures, *grown(figures)]
    if wrong:
        print(*wrong, f"repeat it with: {command}", sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def soak(length_minutes: float, seed: int) -> Figures:
    """The first third has restarts. The same process runs in the rest, so that growth shows."""
    with (
        tempfile.TemporaryDirectory(prefix="gputally-soak-") as directory,
        Soak(Path(directory), seed) as soaked,
    ):
        began = time.monotonic()
        soaked.after_round = _Progress(length_minutes)
        after_a_third, at_the_end = minutes(length_minutes / 3), minutes(length_minutes)
        soaked.warm_up()
        start = soaked.measure()
        soaked.run(after_a_third, restarts=True)
        soaked.warm_up()
        third = soaked.measure()
        soaked.run(at_the_end, restarts=False)
        end = soaked.measure()
        return soaked.figures((start, third, end), time.monotonic() - began)


class _Progress:
    """A line a minute, and each failure when it is found."""

    def __init__(self, length_minutes: float) -> None:
        self._length_minutes = length_minutes
        self._began = self._last = time.monotonic()
        self._told = 0

    def __call__(self, soaked: Soak) -> None:
        for failure in soaked.failures[self._told :]:
            print(failure, file=sys.stderr, flush=True)
        self._told = len(soaked.failures)
        now = time.monotonic()
        if now - self._last < 60:
            return
        self._last = now
        print(
            f"soak {(now - self._began) / 60:.0f} of {self._length_minutes:g} min: {soaked.rounds:,} rounds, "
            f"{soaked.node.names.total():,} owners, {soaked.scrapes.answered:,} scrapes, "
            f"{soaked.exporter.measure().resident_bytes / MIB:.1f} MiB, {soaked.lost / 1000:g} J lost, "
            f"{len(soaked.wrong)} wrong owners, {soaked.failure_count} failures",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
