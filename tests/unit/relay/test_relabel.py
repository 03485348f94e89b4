"""Pods put on the lines of another exporter."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gputally.relay.relabel import DeviceLabels, PodLabels, find_attributed, find_only_pods, is_valid, relabel
from tests.unit.relay.dcgm_texts import NEW, NEWEST, OLD, OPENMETRICS, SHARED, TRAIN, node

TRAINER = PodLabels("ml", "train-0", "main")


def relabelled(text: str, pod: PodLabels | None = TRAINER) -> str:
    return b"".join(relabel(text.encode().splitlines(keepends=True), lambda _: pod)).decode()


def on_node(text: str) -> str:
    return b"".join(relabel(text.encode().splitlines(keepends=True), find_only_pods(node()))).decode()


def samples(text: str) -> list[Sample]:
    return [sample for family in parse_text(text) for sample in family.samples]


def test_old_series_get_the_old_labels_and_other_text_is_unchanged() -> None:
    labels = ',container_name="main",pod_namespace="ml",pod_name="train-0"}'
    before = OLD.splitlines(keepends=True)
    after = [line.replace("}", labels) if TRAIN in line else line for line in before]
    assert on_node(OLD) == "".join(after) != OLD


def test_empty_labels_are_filled_and_others_are_kept() -> None:
    before, after = NEW.splitlines(), on_node(NEW).splitlines()
    changed = {number: line for number, line in enumerate(after) if line != before[number]}
    assert len(after) == len(before)
    assert sorted(changed) == [2, 9]
    assert changed[2].endswith('"535.154.05",container="main",namespace="ml",pod="train-0"} 1312')
    assert changed[9].endswith(
        'Hostname="node-1",container="main",namespace="ml",pod="notebook"} 0.500000'
    ), "the slice that the pod is on, and not the other"
    assert after[3] == before[3], "two pods share this GPU: its clock belongs to neither"
    assert 'pod="web-7"' in after[6]


def test_the_newest_names_and_the_links_of_a_gpu() -> None:
    after = on_node(NEWEST).splitlines()
    assert after[2].endswith('"580.95.05",container="main",namespace="ml",pod="train-0"} 8.5e+10')
    assert after[5].endswith('hostname="node-1",container="main",namespace="ml",pod="train-0"} 12')
    assert after[8] == NEWEST.splitlines()[8], "a CPU is no GPU"


def test_openmetrics_keeps_its_exemplars_units_and_end() -> None:
    after = on_node(OPENMETRICS)
    (before_energy, _), (energy, node_info) = parse_openmetrics(OPENMETRICS), parse_openmetrics(after)
    assert (energy.type, energy.unit) == ("counter", "joules")
    assert energy.samples[0].exemplar == before_energy.samples[0].exemplar
    assert energy.samples[0].exemplar.labels == {"trace_id": "a", "gpu": "1"}
    assert energy.samples[0].timestamp == before_energy.samples[0].timestamp
    assert [sample.labels["pod"] for sample in (*energy.samples, *node_info.samples)] == ["train-0"] * 3
    assert after.endswith("# EOF\n")


def test_an_exemplar_may_look_like_a_sample() -> None:
    exemplar = '# {id="} 1 # {gpu=\\"1\\"}",pod=""} 0.5\n'
    line = f'a_total{{gpu="0"}} 1 {exemplar}'
    assert is_valid(line.encode(), openmetrics=True)
    assert relabelled(line, PodLabels("n", "p")) == f'a_total{{gpu="0",namespace="n",pod="p"}} 1 {exemplar}'


@pytest.mark.parametrize("metric", ["dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP"])
@pytest.mark.parametrize(
    "names", [("container", "namespace", "pod"), ("container_name", "pod_namespace", "pod_name")]
)
def test_existing_labels_are_filled_for_any_metric_name(metric: str, names: tuple[str, str, str]) -> None:
    empty = ",".join(f'{name}=""' for name in names)
    full = ",".join(f'{name}="{value}"' for name, value in zip(names, ("main", "ml", "train-0"), strict=True))
    assert relabelled(f'{metric}{{gpu="0",{empty}}} 54\n') == f'{metric}{{gpu="0",{full}}} 54\n'


@pytest.mark.parametrize(
    "told",
    ["pod", "namespace", "container", "pod_name", "pod_namespace", "container_name", "exported_pod"],
)
def test_already_labelled_samples_are_unchanged(told: str) -> None:
    line = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",{told}="theirs"}} 54\n'
    assert relabelled(line) == line


def test_values_divided_by_the_upstream_do_not_become_duplicate_series() -> None:
    """4.5.3 and newer give the whole GPU's sample, and one for each pod beside it."""
    device = f'gpu="0",UUID="{TRAIN}"'
    lines = [
        f"DCGM_FI_DEV_GPU_UTIL{{{device}}} 80\n".encode(),
        f'DCGM_FI_DEV_GPU_UTIL{{{device},container="main",namespace="ml",pod="train-0"}} 75\n'.encode(),
        f"DCGM_FI_DEV_GPU_TEMP{{{device}}} 54\n".encode(),
        b"# pod\n",
        b'pod_info{pod=""} 1\n',
    ]
    told = find_attributed(lines)
    assert told == {(b"DCGM_FI_DEV_GPU_UTIL", DeviceLabels(TRAIN, "0"))}
    after = list(relabel(lines, lambda _: TRAINER, told))
    assert after[:2] + after[3:] == lines[:2] + lines[3:]
    assert b'pod="train-0"' in after[2]


def test_an_unknown_container_is_not_written() -> None:
    assert relabelled('a{gpu="0"} 1\n', PodLabels("ml", "kata")) == 'a{gpu="0",namespace="ml",pod="kata"} 1\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('a{gpu="0",} 1\n', 'a{gpu="0",namespace="n",pod="p"} 1\n'),
        ('a { gpu = "0" , } 1\n', 'a { gpu = "0",namespace="n",pod="p"} 1\n'),
        ('a{gpu="0" , pod = "", x="y"}\t1', 'a{gpu="0" , pod="p", x="y",namespace="n"}\t1'),
        ('a{gpu="0"}NaN -1731753600125\n', 'a{gpu="0",namespace="n",pod="p"}NaN -1731753600125\n'),
        ('  a{gpu="0"} +Inf \n', '  a{gpu="0",namespace="n",pod="p"} +Inf \n'),
    ],
)
def test_labels_are_added_with_any_spacing(line: str, expected: str) -> None:
    assert is_valid(line.encode(), openmetrics=False)
    assert relabelled(line, PodLabels("n", "p")) == expected


@pytest.mark.parametrize(
    "model",
    [
        r"say \"hi\"",
        r"back\\slash",
        r"ends in \\",
        r"two\nlines",
        r"} 1 # {",
        r"a,b=\"c\",pod=\"\"",
        "größer",
        "",
    ],
)
def test_label_values_may_contain_any_character(model: str) -> None:
    line = f'DCGM_FI_DEV_GPU_TEMP{{modelName="{model}",gpu="0"}} 54\n'
    assert is_valid(line.encode(), openmetrics=False)
    (before,), (after,) = samples(line), samples(relabelled(line))
    assert after.labels == {**before.labels, "namespace": "ml", "pod": "train-0", "container": "main"}


def test_written_values_are_escaped() -> None:
    (after,) = samples(relabelled('a{gpu="0"} 1\n', PodLabels('n"', "p\\", "c\n")))
    assert after.labels == {"gpu": "0", "namespace": 'n"', "pod": "p\\", "container": "c\n"}


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        (f'gpu="1",UUID="{SHARED}"', DeviceLabels(SHARED, "1")),
        (f'uuid="{SHARED}",gpu="1"', DeviceLabels(SHARED, "1")),
        (f'gpu_uuid="{SHARED}"', DeviceLabels(SHARED)),
        (f'UUID="{SHARED}",gpu="1",GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"', DeviceLabels(SHARED, "1", "7")),
        ('gpu="1"', DeviceLabels(index="1")),
    ],
)
def test_a_sample_names_its_device_by_uuid_instance_or_index(labels: str, device: DeviceLabels) -> None:
    asked: list[DeviceLabels] = []
    list(relabel([f"a{{{labels}}} 1\n".encode()], asked.append))
    assert asked == [device]


def test_samples_without_a_device_are_not_looked_up() -> None:
    asked: list[DeviceLabels] = []
    lines = [b"up 1\n", b"up{} 1\n", b'up{cpu="0",gpu="",GPU_I_ID="1"} 1\n', b"\n", b"# gpu\n"]
    assert list(relabel(lines, asked.append)) == lines
    assert asked == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "# anything at all",
        "#",
        "# HELPER is no keyword",
        "# HELP a",
        "# HELP a  back\\\\slash",
        "# TYPE a gauge",
        "#\tTYPE a counter",
        "# UNIT a joules",
        "# EOF",
        "a 1",
        "a:b_c 1 1731753600125",
        "a{} .5",
        "a -1.e-7",
        "a -inf",
    ],
)
def test_lines_that_a_scraper_accepts(line: str) -> None:
    assert is_valid(line.encode(), openmetrics=False)
    assert is_valid(line.encode() + b"\n", openmetrics=True)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a N/A",
        "a 1 2 3",
        "a 1 later",
        "a 1\r",
        "a1",
        "1a 1",
        "a-b 1",
        "a +nan",
        "a 1_000",
        "a 0x1p3",
        'a{b="c" 1',
        'a{b="c} 1',
        'a{b="c"d="e"} 1',
        'a{b="c",,d="e"} 1',
        "a{,} 1",
        "a{b='c'} 1",
        'a{b="the "best" card"} 1',
        'a{b="c\\"} 1',
        'a{b:c="d"} 1',
        "# TYPE a",
        "# TYPE a gouge",
        "# HELP",
        "# HELP 1a b",
        "<html>",
    ],
)
def test_lines_that_would_fail_the_whole_scrape(line: str) -> None:
    assert not is_valid(line.encode(), openmetrics=False)
    assert not is_valid(line.encode(), openmetrics=True)
    assert list(relabel([line.encode()], lambda _: TRAINER)) == [line.encode()]


def test_invalid_utf8() -> None:
    assert not is_valid(b'a{b="\xff"} 1', openmetrics=False)


@pytest.mark.parametrize("line", ['a 1 # {b="c"} 1', "a 1 1731753600.125", "# TYPE a info"])
def test_features_of_openmetrics_only(line: str) -> None:
    assert is_valid(line.encode(), openmetrics=True)
    assert not is_valid(line.encode(), openmetrics=False)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


values = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
names = st.from_regex(re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,6}", re.ASCII), fullmatch=True)
labels = st.dictionaries(
    names | st.sampled_from(["gpu", "UUID", "uuid", "GPU_I_ID", "pod", "pod_name"]), values
)
numbers = st.floats().map(repr)


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in draw(labels).items())
    name = draw(st.sampled_from(["dcgm_power_usage", "DCGM_FI_DEV_POWER_USAGE", "x"]))
    stamp = draw(st.just("") | st.integers(0, 2**40).map(lambda at: f" {at}"))
    return f"{name}{{{pairs}}} {draw(numbers)}{stamp}\n"


lines_of_text = st.lists(
    sample_lines() | st.sampled_from(["# HELP x y\n", "# TYPE x gauge\n", "\n", "# EOF\n"])
)


@given(st.lists(st.binary()) | lines_of_text.map(lambda lines: [line.encode() for line in lines]))
def test_without_known_pods_no_byte_changes(lines: list[bytes]) -> None:
    assert list(relabel(lines, lambda _: None)) == lines


@given(lines_of_text)
def test_every_sample_keeps_its_name_value_timestamp_and_labels(lines: list[str]) -> None:
    assert all(is_valid(line.encode(), openmetrics=False) for line in lines)
    out = list(relabel([line.encode() for line in lines], lambda _: TRAINER))
    assert all(is_valid(line, openmetrics=False) for line in out)
    for line, new in zip(lines, out, strict=True):
        if line.startswith(("#", "\n")):
            assert new.decode() == line
            continue
        (before,), (after,) = samples(line), samples(new.decode())
        assert (after.name, repr(after.value), after.timestamp) == (
            before.name,
            repr(before.value),
            before.timestamp,
        )
        ours = {"pod", "namespace", "container", "pod_name", "pod_namespace", "container_name"}
        assert {k: v for k, v in after.labels.items() if v != before.labels.get(k)}.keys() <= ours
        assert all(after.labels[name] == value for name, value in before.labels.items() if value)
