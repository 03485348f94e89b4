"""Fuzzes one target in a process of its own, until the time is over or an input fails.

With atheris (libFuzzer), which keeps inputs that reach new code; without it, as on processors for which it is
not built, with random mutations.
"""

import argparse
import hashlib
import sys
import time
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tools.fuzzing import targets
from tools.fuzzing.mutation import TOKENS, inputs

INPUT_FAILED = 77
"""libFuzzer's exit status for it."""
_SECONDS_FOR_ONE_INPUT = 120
_SECONDS_BETWEEN_LINES = 20
_MOST_MEMORY_MIB = 2048


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker")
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    arguments = parser.parse_args()
    fuzz = _with_atheris if find_spec("atheris") else _with_mutations
    return fuzz(arguments.target, arguments.seconds, arguments.seed, arguments.corpus, arguments.findings)


def _with_atheris(name: str, seconds: float, seed: int, corpus: Path, findings: Path) -> int:
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["gputally"]):
        target = targets.load(name)
    dictionary = corpus.with_suffix(".dict")
    dictionary.write_text(
        "".join('"' + "".join(map("\\x{:02x}".format, token[:64])) + '"\n' for token in TOKENS)
    )
    for data in target.corpus:
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    atheris.Setup(
        [
            name,
            f"-max_total_time={max(1, round(seconds))}",
            f"-seed={seed}",
            f"-timeout={_SECONDS_FOR_ONE_INPUT}",
            f"-rss_limit_mb={_MOST_MEMORY_MIB}",
            f"-max_len={max(4096, 2 * max(map(len, target.corpus), default=0))}",
            f"-artifact_prefix={findings}/{name}-",
            f"-dict={dictionary}",
            "-print_final_stats=1",
            str(corpus),
        ],
        target.one_input,
    )
    atheris.Fuzz()  # exits
    return 0


def _with_mutations(name: str, seconds: float, seed: int, corpus: Path, findings: Path) -> int:  # noqa: ARG001
    target = targets.load(name)
    end = time.monotonic() + seconds
    shown = time.monotonic()
    for runs, data in enumerate(inputs(target.corpus, seed)):
        now = time.monotonic()
        if now > end or now - shown > _SECONDS_BETWEEN_LINES:
            shown = now
            print(f"#{runs}", file=sys.stderr, flush=True)
        if now > end:
            break
        try:
            target.one_input(data)
        except Exception:  # noqa: BLE001  # whatever it is, it is a finding
            traceback.print_exc()
            print(f"#{runs + 1}", file=sys.stderr)
            (findings / f"{name}-crash-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
            return INPUT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
