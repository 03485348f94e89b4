"""Pods put on the samples of another exporter."""

import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gputally.relay.relabel import PodLabels, find_only_pods
from gputally.relay.text import DeviceLabels
from tests.unit.relay.dcgm_texts import NEW, NEWEST, OLD, OPENMETRICS, SHARED, TRAIN, node
from tests.unit.relay.texts import label_values, label_values_of, rendered, sample_lines

TRAINER = PodLabels("ml", "train-0", "main")
THREE_NAMES = [("container", "namespace", "pod"), ("container_name", "pod_namespace", "pod_name")]


def relabelled(text: str, pod: PodLabels | None = TRAINER) -> str:
    return rendered(text, lambda _: pod)


def on_node(text: str, *, openmetrics: bool = False) -> list[Sample]:
    return samples(rendered(text, find_only_pods(node()), openmetrics=openmetrics))


def samples(text: str) -> list[Sample]:
    """A counter without the suffix has it for this parser."""
    found = [sample for family in parse_text(text) for sample in family.samples]
    return [sample._replace(name=sample.name.removesuffix("_total")) for sample in found]


def only(found: list[Sample], name: str, **labels: str) -> dict[str, str]:
    (sample,) = (each for each in found if each.name == name and labels.items() <= each.labels.items())
    return sample.labels


def test_old_series_get_the_old_labels() -> None:
    pod = {"container_name": "main", "pod_namespace": "ml", "pod_name": "train-0"}
    expected = [
        one._replace(labels=one.labels | pod) if one.labels["uuid"] == TRAIN else one for one in samples(OLD)
    ]
    assert sorted(on_node(OLD), key=str) == sorted(expected, key=str)


def test_empty_labels_are_filled_and_others_are_kept() -> None:
    after = on_node(NEW)
    train, notebook = (
        {"container": "main", "namespace": "ml", "pod": pod} for pod in ("train-0", "notebook")
    )
    assert train.items() <= only(after, "DCGM_FI_DEV_SM_CLOCK", gpu="0").items()
    assert "pod" not in only(after, "DCGM_FI_DEV_SM_CLOCK", gpu="1"), "two pods share this GPU"
    assert only(after, "DCGM_FI_DEV_POWER_USAGE")["pod"] == "web-7"
    assert notebook.items() <= only(after, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU_I_ID="1").items()
    assert "pod" not in only(after, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU_I_ID="2"), "not on the other slice"


def test_the_newest_names_and_the_links_of_a_gpu() -> None:
    after = on_node(NEWEST)
    assert only(after, "DCGM_FI_DEV_FB_CAPACITY_BYTES")["pod"] == "train-0"
    assert only(after, "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES")["pod"] == "train-0"
    assert "pod" not in only(after, "DCGM_FI_DEV_CPU_UTIL_TOTAL"), "a CPU is no GPU"


def test_openmetrics_becomes_the_text_format() -> None:
    pod = 'container="main",namespace="ml",pod="train-0"'
    text = rendered(OPENMETRICS, find_only_pods(node()), openmetrics=True)
    assert text == (
        "# HELP DCGM_FI_DEV_ENERGY_joules_total Energy since boot.\n"
        "# TYPE DCGM_FI_DEV_ENERGY_joules_total counter\n"
        f'DCGM_FI_DEV_ENERGY_joules_total{{UUID="{TRAIN}",gpu="0",{pod}}} 4500000 1731753600125\n'
        "# TYPE node_info gauge\n"
        f'node_info{{UUID="{TRAIN}",{pod}}} 1\n'
    )


@pytest.mark.parametrize("metric", ["dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP"])
@pytest.mark.parametrize("names", THREE_NAMES)
def test_existing_labels_are_filled_for_any_metric_name(metric: str, names: tuple[str, str, str]) -> None:
    empty = ",".join(f'{name}=""' for name in names)
    (after,) = samples(relabelled(f'{metric}{{gpu="0",{empty}}} 54\n'))
    assert after.labels == {"gpu": "0"} | dict(zip(names, ("main", "ml", "train-0"), strict=True))


@pytest.mark.parametrize(
    "told",
    ["pod", "namespace", "container", "pod_name", "pod_namespace", "container_name", "exported_pod"],
)
def test_already_labelled_samples_are_unchanged(told: str) -> None:
    line = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",{told}="theirs"}} 54\n'
    assert samples(relabelled(line)) == samples(line)


def test_values_divided_by_the_upstream_do_not_become_duplicate_series() -> None:
    """4.5.3 and newer give the whole GPU's sample, and one for each pod beside it."""
    device = f'gpu="0",UUID="{TRAIN}"'
    text = (
        f"DCGM_FI_DEV_GPU_UTIL{{{device}}} 80\n"
        f'DCGM_FI_DEV_GPU_UTIL{{{device},container="main",namespace="ml",pod="train-0"}} 75\n'
        f"DCGM_FI_DEV_GPU_TEMP{{{device}}} 54\n"
    )
    whole, divided, temperature = samples(relabelled(text))
    assert [one.value for one in (whole, divided)] == [80, 75]
    assert "pod" not in whole.labels
    assert temperature.labels["pod"] == "train-0"


def test_an_unknown_container_is_not_written() -> None:
    (after,) = samples(relabelled('a{gpu="0"} 1\n', PodLabels("ml", "kata")))
    assert after.labels == {"gpu": "0", "namespace": "ml", "pod": "kata"}


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
    rendered(f"a{{{labels}}} 1\n", asked.append)
    assert asked == [device]


def test_samples_without_a_device_are_not_looked_up() -> None:
    asked: list[DeviceLabels] = []
    rendered(f'up 1\nup{{}} 1\nup{{cpu="0",gpu="",GPU_I_ID="1"}} 1\na{{gpu="{"9" * 500}"}} 1\n', asked.append)
    assert asked == []


@given(label_values, sample_lines)
def test_every_sample_keeps_its_name_value_timestamp_and_labels(pod: str, line: str) -> None:
    (before,), (after,) = samples(line), samples(relabelled(line, PodLabels("n", pod)))
    assert (after.name, after.timestamp) == (before.name, before.timestamp)
    assert after.value == before.value or before.value != before.value  # NaN
    added = dict(after.labels.items() - label_values_of(before).items())
    possible = [{}, *({space: "n", name: pod} for _, space, name in THREE_NAMES)]
    assert added in [label_values_of(before._replace(labels=labels)) for labels in possible]
    assert label_values_of(before).items() <= after.labels.items()
