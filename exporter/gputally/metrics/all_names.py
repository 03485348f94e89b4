"""Our families together with those of the compatibility profiles."""

from collections.abc import Callable, Iterable, Sequence

from gputally.metrics.compat import Options, ProfileInput, load_profile
from gputally.metrics.families import Family
from gputally.model import Snapshot

FamiliesOf = Callable[[Snapshot], Sequence[Family]]


def families_of_profiles(names: Sequence[str], options: Options) -> FamiliesOf:
    """Snapshot -> the families of all these profiles. Each profile is imported here, and only here."""
    profiles = [load_profile(name) for name in names]

    def families_of(snapshot: Snapshot) -> list[Family]:
        inputs = ProfileInput(snapshot, options)
        return merge_families(family for profile in profiles for family in profile(inputs))

    return families_of


def merge_families(families: Iterable[Family]) -> list[Family]:
    """One family per name: the first, with the samples that others of the same labels add."""
    by_name: dict[str, Family] = {}
    for family in families:
        first = by_name.setdefault(family.metric.name, family)
        if first is not family and first.metric.labels == family.metric.labels:
            samples = {**dict(family.samples), **dict(first.samples)}
            by_name[family.metric.name] = Family(first.metric, list(samples.items()))
    return list(by_name.values())
