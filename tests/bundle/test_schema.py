"""The schema for queries has the names and labels of a scrape."""

import pytest
from hypothesis import given

from alerts import schema
from alerts.promql import ANY
from gputally.metrics.compat import load_profile, load_rows
from gputally.model import Snapshot
from tests.support.snapshots import scene, snapshots

_PROFILES = ("dcgm", "nvidia-smi")


@pytest.mark.parametrize("profile", _PROFILES)
def test_every_metric_of_a_profile_is_in_the_schema(profile: str) -> None:
    assert {row.name for row in load_rows(profile)} <= schema.compat().keys()


@given(snapshots())
def test_every_label_of_a_profile_is_in_the_schema(snapshot: Snapshot) -> None:
    known = schema.compat()
    for family in (family for profile in _PROFILES for family in load_profile(profile)(scene(snapshot))):
        labels = known[family.metric.name]
        assert ANY in labels or labels >= set(family.metric.labels), family.metric.name


def test_the_metrics_of_profiles_have_the_target_labels() -> None:
    assert all(labels >= schema.TARGET_LABELS for labels in schema.compat().values())
