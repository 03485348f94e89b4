"""Profiles together: each name once, and only the enabled profiles are imported."""

import subprocess
import sys
from unittest.mock import Mock

import pytest

from gputally.metrics.all_names import families_of_profiles, merge_families
from gputally.metrics.catalog import Kind
from gputally.metrics.compat import PROFILES, Row, device_views
from gputally.metrics.families import Family
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


def test_of_two_families_of_one_name_the_first_is_exported() -> None:
    row = Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Kind.GAUGE, "Busy.", "")
    first = Family(row.metric(("gpu",)), [(("0",), 0.5)])
    second = Family(row.metric(("pod",)), [(("train",), 0.5)])
    other = Family(Row("x", Kind.GAUGE, "X.", "").metric(()), [((), 1)])
    assert merge_families([first, other, second]) == [first, other]


def test_two_families_of_one_name_and_labels_are_merged() -> None:
    metric = Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Kind.GAUGE, "Busy.", "").metric(("gpu", "pod"))
    of_pods = Family(metric, [(("0", "train"), 0.5)])
    of_all = Family(metric, [(("0", "train"), 0.6), (("1", ""), 0.1)])
    (both,) = merge_families([of_pods, of_all])
    assert sorted(both.samples) == [(("0", "train"), 0.5), (("1", ""), 0.1)]
    assert of_pods.samples == [(("0", "train"), 0.5)], "what was given is as it was"


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
