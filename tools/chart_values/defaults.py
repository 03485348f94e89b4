"""files/values.yaml: the defaults, for templates of a release that brings the values of an older chart."""

import yaml

_HEAD = "# values.yaml without its comments, made by tools/render.\n"


def text(source: str) -> str:
    plain = yaml.safe_dump(yaml.safe_load(source), sort_keys=False, allow_unicode=True, width=10_000)
    return _HEAD + plain
