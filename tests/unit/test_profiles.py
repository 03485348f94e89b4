"""Profiles together share their work, and only the enabled profiles are imported."""

import subprocess
import sys
from unittest.mock import Mock

import pytest

from gputally.app import families_of_profiles
from gputally.metrics.compat import PROFILES, device_views
from tests.support.snapshots import OPTIONS, simulated

LIST_MODULES = """
import sys
from gputally.cli import main
main(["simulate", "--once", *sys.argv[1:]])
print(sorted(name for name in sys.modules if name.startswith("gputally.metrics.compat.")), file=sys.stderr)
"""


def imported(*arguments: str) -> str:
    command = [sys.executable, "-c", LIST_MODULES, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()[-1]


def test_families_shared_by_profiles_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Mock(wraps=device_views._pod_uses)
    monkeypatch.setattr(device_views, "_pod_uses", sums)
    snapshot = simulated()
    families_of_profiles(tuple(PROFILES), OPTIONS)(snapshot)
    assert sums.call_count == len(snapshot.readings)


def test_a_disabled_profile_is_not_imported() -> None:
    assert imported() == "[]"
    assert PROFILES["purplepill"] in imported("--compat", "purplepill")
    assert PROFILES["dcgm"] not in imported("--compat", "purplepill")
