"""What the relay makes of a text, and texts for it."""

import re

from hypothesis import strategies as st
from prometheus_client.samples import Sample

from gputally.relay.relabel import PodOf, render
from gputally.relay.text import Text


def parsed(text: str | bytes, *, openmetrics: bool = False) -> Text:
    read = Text()
    read.add([text.encode() if isinstance(text, str) else text], openmetrics=openmetrics)
    return read


def rendered(text: str | bytes, pod_of: PodOf = lambda _: None, *, openmetrics: bool = False) -> str:
    families = parsed(text, openmetrics=openmetrics).families()
    return b"".join(family for _, family in render(families, pod_of)).decode()


def label_values_of(sample: Sample) -> dict[str, str]:
    """An empty label is the same as none."""
    return {name: value for name, value in sample.labels.items() if value}


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


label_values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_names = st.from_regex(re.compile("(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,6}", re.ASCII), fullmatch=True)
_labels = st.dictionaries(
    _names | st.sampled_from(["gpu", "UUID", "uuid", "GPU_I_ID", "pod", "pod_name"]), label_values
)


@st.composite
def _sample_line(draw: st.DrawFn) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in draw(_labels).items())
    name = draw(st.sampled_from(["dcgm_power_usage", "DCGM_FI_DEV_POWER_USAGE", "x"]))
    stamp = draw(st.just("") | st.integers(0, 2**40).map(lambda at: f" {at}"))
    return f"{name}{{{pairs}}} {draw(st.floats())!r}{stamp}\n"


sample_lines = _sample_line()
