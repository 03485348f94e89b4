"""Runs the benchmark in the repository's own environment: it measures what is installed there."""

import os
import sys
from typing import NoReturn

from tools import environment
from tools.progress import Failed


def main() -> NoReturn:
    try:
        python = environment.python("test")
    except Failed as failure:
        sys.exit(str(failure))
    os.environ["PYTHONPATH"] = str(environment.ROOT)
    os.execv(python, [str(python), "-m", "tools.benchmark", *sys.argv[1:]])
