"""Postponed imports, in processes of their own."""

import subprocess
import sys

import pytest


def printed(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "use",
    [
        "import colorsys; print(colorsys.rgb_to_hsv(1, 1, 1))",
        "from colorsys import rgb_to_hsv; print(rgb_to_hsv(1, 1, 1))",
        "import colorsys; colorsys.ONE_THIRD; import colorsys as again; print(again.rgb_to_hsv(1, 1, 1))",
    ],
)
def test_a_postponed_module_is_loaded_by_its_first_use(use: str) -> None:
    postponed = f"from gputally.imports import postpone; postpone(['colorsys']); {use}"
    assert printed(postponed) == "(0.0, 0.0, 1)"


def test_a_submodule_can_be_postponed() -> None:
    code = (
        "from gputally.imports import postpone; postpone(['email.charset']); import email.charset as charset"
    )
    assert printed(f"{code}; print(charset.QP)") == "1"


def test_an_import_of_a_postponed_module_loads_nothing() -> None:
    code = "import sys; from gputally.imports import postpone; postpone(['tempfile']); import tempfile"
    assert printed(f"{code}; print('random' in sys.modules)") == "False"


def test_a_loaded_module_is_not_postponed() -> None:
    code = "import colorsys; from gputally.imports import postpone; postpone(['colorsys'])"
    assert printed(f"{code}; import sys; print(sys.modules['colorsys'] is colorsys)") == "True"


def test_a_forgotten_module_is_freed_and_can_be_imported_again() -> None:
    code = (
        "import gc, weakref, email.charset; from gputally.imports import forget;"
        "freed = weakref.ref(email.charset); forget(['email.charset']); gc.collect();"
        "print(freed(), hasattr(email, 'charset')); import email.charset; print(email.charset.QP)"
    )
    assert printed(code).splitlines() == ["None False", "1"]


_SERVE = """
import atexit, sys
from gputally.__main__ import main
from gputally.imports import UNUSED

def report():
    from gputally.cli import _PARSER
    names = {*UNUSED, *_PARSER}
    print("loaded:", *sorted(one for one in names if getattr(sys.modules.get(one), "__spec__", None)))

atexit.register(report)
sys.argv = ["gputally", "serve", "--reader", "nvml", "--once"]
sys.exit(main())
"""


def test_serving_loads_nothing_that_is_postponed_and_keeps_no_parser() -> None:
    """A dataclass without a docstring would load inspect. From Python 3.13 on, every dataclass does."""
    expected = ["loaded:"] if sys.version_info < (3, 13) else ["loaded:", "inspect"]
    assert printed(_SERVE).splitlines()[-1].split() == expected
