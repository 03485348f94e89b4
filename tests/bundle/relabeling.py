"""Relabeling as Prometheus does it, in the spelling of the operator's objects.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Labels = dict[str, str]
Rule = Mapping[str, Any]


def relabeled(labels: Mapping[str, str], rules: Iterable[Rule]) -> Labels | None:
    """The labels after all rules; None if one of them drops the target or sample."""
    made = dict(labels)
    for rule in rules:
        action = rule.get("action", "replace").lower()
        regex = re.compile(rule.get("regex", "(.*)"))
        if action == "labeldrop":
            made = {name: value for name, value in made.items() if not regex.fullmatch(name)}
            continue
        value = rule.get("separator", ";").join(made.get(name, "") for name in rule.get("sourceLabels", ()))
        found = regex.fullmatch(value)
        if action in ("keep", "drop"):
            if (found is None) == (action == "keep"):
                return None
        elif action == "replace":
            if found:
                replacement = rule.get("replacement", "$1")
                made[rule["targetLabel"]] = found.expand(re.sub(r"\$\{?(\d)\}?", r"\\\1", replacement))
        else:
            raise NotImplementedError(action)
    return made


def of_target(labels: Mapping[str, str], rules: Iterable[Rule]) -> Labels | None:
    """The labels that a discovered target gives to its series: none with two underscores, none empty."""
    made = relabeled(labels, rules)
    if made is None:
        return None
    return {name: value for name, value in made.items() if value and not name.startswith("__")}


def of_sample(target: Mapping[str, str], sample: Mapping[str, str], *, honor_labels: bool) -> Labels:
    """A scraped sample's labels and those of its target, together."""
    if honor_labels:
        return {**target, **sample}
    renamed = {f"exported_{name}" if name in target else name: value for name, value in sample.items()}
    return {**renamed, **target}
