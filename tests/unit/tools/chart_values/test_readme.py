"""README.md of the chart."""

from tools.chart_values import readme
from tools.chart_values.source import Preset

VALUES = """\
# Internal.
defaultsVersion: 1.2.3

# -- First -----

# The word, a|b.
# @schema {enum: ["", one]}
word: ""
# All of these.
group:
  # The list.
  # @schema {items: {$ref: "#/$defs/objectName"}}
  names: []
  # @schema {$ref: "#/$defs/tolerations"}
  tolerations: [{key: a-key-that-is-long, operator: Equal, value: a-value-that-is-as-long-as-the-key}]
  inner:
    # The share.
    share: 0.5
    # The text.
    text: v1

# -- Second --
# For some only.

# Text or map.
# @schema {items: {type: [object, string]}}
objects: []
"""
PRESETS = [Preset("x.yaml", "Clusters of X.", "baseline, for Y")]


def test_each_section_has_a_table_of_its_values() -> None:
    page = readme.text(VALUES, PRESETS)
    first, second = page[page.index("### First") : page.index("## Upgrade")].split("### Second")
    assert [line for line in first.splitlines() if line.startswith("| `")] == [
        r'| `word` | `""`, `one` | `""` | The word, a\|b. |',
        "| `group` |  |  | All of these. |",
        "| `group.names` | list of name | `[]` | The list. |",
        "| `group.tolerations` | tolerations | see values.yaml | Tolerations of the pods. |",
        "| `group.inner.share` | number | `0.5` | The share. |",
        "| `group.inner.text` | string | `v1` | The text. |",
    ]
    assert second.startswith("\n\nFor some only.\n\n| value |")
    assert "| `objects` | list of map or string | `[]` | Text or map. |" in second


def test_internal_values_are_left_out() -> None:
    assert "defaultsVersion" not in readme.text(VALUES, PRESETS)


def test_each_preset_is_a_row() -> None:
    assert "| `x.yaml` | Clusters of X. | baseline, for Y |" in readme.text(VALUES, PRESETS)
