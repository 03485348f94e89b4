"""Starts the code of a tool.

The scripts in tools/ import this package by its own name: only their directory is on Python's path then.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

if sys.version_info < (3, 11):  # noqa: UP036  # old versions get as far as this
    version = sys.version.split()[0]
    sys.exit(f"tools/{Path(sys.argv[0]).name} needs Python 3.11 or newer; python3 on PATH is {version}")
sys.path[0] = str(Path(__file__).resolve().parents[2])

from tools import ROOT, Failed  # noqa: E402
from tools.dependencies import environment  # noqa: E402


def run(module: str) -> NoReturn:
    """Runs `main` of the module in this Python, which has nothing but the standard library."""
    sys.exit(import_module(module).main())


def run_in_environment(module: str, *groups: str) -> NoReturn:
    """Runs the module in .venv, which has the exporter and these dependency groups installed."""
    try:
        python = str(environment.python(*groups))
    except Failed as failure:
        sys.exit(str(failure))
    # The working directory stays: paths among the arguments are relative to it.
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(python, [python, "-P", "-m", module, *sys.argv[1:]])
