"""The names and labels that queries are checked against are those that a scrape gives."""

import pytest
from hypothesis import given

from alerts import schema
from alerts.promql import ANY
from gputally.metrics.compat import load_profile, load_rows
from gputally.model import Snapshot
from tests.support.snapshots import scene, snapshots

_PROFILES = ("dcgm", "nvidia-smi")


@pytest.mark.parametrize("profile", _PROFILES)
def test_every_name_of_a_profile_is_known(profile: str) -> None:
    assert {row.name for row in load_rows(profile)} <= schema.compat().keys()


@given(snapshots())
def test_a_profile_gives_no_label_that_is_not_known(snapshot: Snapshot) -> None:
    known = schema.compat()
    for family in (family for profile in _PROFILES for family in load_profile(profile)(scene(snapshot))):
        labels = known[family.metric.name]
        assert ANY in labels or labels >= set(family.metric.labels), family.metric.name


def test_what_the_profiles_give_also_has_the_labels_of_the_target() -> None:
    assert all(labels >= schema.TARGET_LABELS for labels in schema.compat().values())
