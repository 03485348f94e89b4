"""Which pod a sidecar is in, from what the downward API gives it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import PodReport
from gputally.attribution.own_pod import OwnPod, parse_labels
from gputally.model import PodInfo, Unavailable

UID = "4a163a05-439d-484b-8e53-2968bc15824f"
NAMED = {"POD_NAME": "train-0", "POD_NAMESPACE": "ml"}


def podinfo(root: Path, **files: str) -> Path:
    """A downward API volume as the kubelet writes it: links into a directory that it swaps."""
    (root / "..2026_11_16").mkdir(parents=True)
    (root / "..data").symlink_to("..2026_11_16")
    for name, text in files.items():
        (root / "..data" / name).write_text(text)
        (root / name).symlink_to(f"..data/{name}")
    return root


def own_pod(environment: dict[str, str], podinfo: Path | None = None, account: Path | None = None) -> PodInfo:
    (pod,) = OwnPod(environment, podinfo, account, pod_labels=["*"]).read().pods
    return pod


def test_the_pod_from_environment_variables() -> None:
    environment = {
        "GPUTALLY_POD_NAME": "train-0",
        "GPUTALLY_POD_NAMESPACE": "ml",
        "GPUTALLY_POD_UID": UID,
        "GPUTALLY_NODE_NAME": "ip-10-0-1-5.ec2.internal",
        "GPUTALLY_CONTAINER_NAME": "trainer",
    }
    assert OwnPod(environment, None, None).read() == PodReport(
        pods=(
            PodInfo(
                "ml", "train-0", UID, container_names=("trainer",), node="ip-10-0-1-5.ec2.internal", labels=()
            ),
        )
    )


def test_the_pod_from_common_names_of_environment_variables() -> None:
    environment = {**NAMED, "POD_UID": UID, "NODE_NAME": "node-1"}
    assert own_pod(environment) == PodInfo("ml", "train-0", UID, node="node-1")


def test_a_pod_of_argo_belongs_to_its_workflow(tmp_path: Path) -> None:
    directory = podinfo(tmp_path / "podinfo", labels='workflows.argoproj.io/workflow="train-x7k2"')
    (pod,) = OwnPod(NAMED, directory, None).read().pods
    assert (pod.workload, pod.labels) == ("Workflow/train-x7k2", ())


def test_the_pod_from_files(tmp_path: Path) -> None:
    labels = 'app="trainer"\nbatch.kubernetes.io/job-completion-index="0"\nempty=""'
    directory = podinfo(tmp_path / "podinfo", name="train-0", namespace="ml\n", uid=UID, labels=labels)
    assert own_pod({}, directory) == PodInfo(
        "ml",
        "train-0",
        UID,
        labels=(("app", "trainer"), ("batch.kubernetes.io/job-completion-index", "0"), ("empty", "")),
    )


def test_gputally_variables_take_precedence_over_common_ones_and_these_over_files(tmp_path: Path) -> None:
    directory = podinfo(tmp_path / "podinfo", name="from-file", namespace="from-file")
    environment = {"GPUTALLY_POD_NAME": "ours", "POD_NAME": "usual", "POD_NAMESPACE": "usual"}
    pod = own_pod(environment, directory)
    assert (pod.namespace, pod.pod) == ("usual", "ours")


def test_the_namespace_defaults_to_that_of_the_service_account(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("ml")
    assert own_pod({"POD_NAME": "train-0"}, None, tmp_path) == PodInfo("ml", "train-0")
    assert own_pod({"POD_NAME": "train-0", "POD_NAMESPACE": "told"}, None, tmp_path).namespace == "told"


@pytest.mark.parametrize(
    ("allowed", "shown"),
    [
        ([], []),
        (["app"], ["app"]),
        (["app.kubernetes.io/*"], ["app.kubernetes.io/name", "app.kubernetes.io/part-of"]),
        (
            ["app.kubernetes.io/*", "missing", "app"],
            ["app", "app.kubernetes.io/name", "app.kubernetes.io/part-of"],
        ),
        (["*"], ["app", "app.kubernetes.io/name", "app.kubernetes.io/part-of", "secret"]),
    ],
)
def test_only_allowed_labels_are_exported(tmp_path: Path, allowed: list[str], shown: list[str]) -> None:
    labels = 'app="a"\napp.kubernetes.io/name="b"\napp.kubernetes.io/part-of="c"\nsecret="d"'
    directory = podinfo(tmp_path / "podinfo", labels=labels)
    (pod,) = OwnPod(NAMED, directory, None, pod_labels=allowed).read().pods
    assert [name for name, _ in pod.labels] == shown


def test_a_changed_label_is_read_by_the_next_sample(tmp_path: Path) -> None:
    directory = podinfo(tmp_path / "podinfo", labels='phase="warm-up"')
    source = OwnPod(NAMED, directory, None, pod_labels=["phase"])
    assert source.read().pods[0].labels == (("phase", "warm-up"),)
    (directory / "labels").write_text('phase="train"')
    assert source.read().pods[0].labels == (("phase", "train"),)


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (UID, UID),
        (UID.upper(), UID),
        (UID.replace("-", "_"), UID),
        ("57585a0305e4e46df816ebab263926f3", "57585a0305e4e46df816ebab263926f3"),
        ("not-a-uid", ""),
        ("", ""),
    ],
)
def test_the_uid_is_normalised_or_absent(text: str, uid: str) -> None:
    assert own_pod({**NAMED, "POD_UID": text}).pod_uid == uid


def test_the_exporters_own_container_is_not_reported() -> None:
    assert own_pod({**NAMED, "CONTAINER_NAME": "gputally"}).container_names == ()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "the name and namespace of"),
        ({"POD_NAME": "train-0"}, "the namespace of"),
        ({"POD_NAMESPACE": "ml"}, "the name of"),
        ({"POD_NAME": "$(NAME)", "POD_NAMESPACE": "ml"}, "the name of"),
        ({"POD_NAME": "a", "POD_NAMESPACE": "m\nl"}, "the namespace of"),
        ({"POD_NAME": " ", "POD_NAMESPACE": "ml"}, "the name of"),
        ({"HOSTNAME": "train-0", "POD_NAMESPACE": "ml"}, "the name of"),
    ],
)
def test_a_missing_identity_is_reported_with_the_fix(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(Unavailable) as caught:
        OwnPod(environment, None, None).read()
    assert reason in caught.value.reason
    assert "name: GPUTALLY_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}" in caught.value.fix


def test_unreadable_files_are_ignored(tmp_path: Path) -> None:
    directory = tmp_path / "podinfo"
    (directory / "uid").mkdir(parents=True)
    (directory / "labels").write_bytes(b'app="\xff"')
    assert own_pod(NAMED, directory, tmp_path / "missing") == PodInfo("ml", "train-0")


def test_an_invalid_file_does_not_hide_the_next_location(tmp_path: Path) -> None:
    directory = podinfo(tmp_path / "podinfo", namespace="Not A Namespace")
    (tmp_path / "namespace").write_text("ml")
    assert own_pod({"POD_NAME": "train-0"}, directory, tmp_path).namespace == "ml"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", ()),
        ('a="1"\nb="2"\n', (("a", "1"), ("b", "2"))),
        ('b="2"\na="1"', (("a", "1"), ("b", "2"))),
        ('a="1"\nrubbish\na=1\n="x"\nc="x\\"y"\n', (("a", "1"),)),
        ('a="1"\r\n', ()),
    ],
)
def test_labels_in_the_format_of_the_downward_api(text: str, labels: tuple[tuple[str, str], ...]) -> None:
    assert parse_labels(text) == labels


@given(st.text(alphabet='ab="\\\n/.-_é\x00', max_size=60))
def test_labels_from_any_text_occur_in_it(text: str) -> None:
    labels = parse_labels(text)
    assert all(f'{key}="{value}"' in text.split("\n") for key, value in labels)
    assert len({key for key, _ in labels}) == len(labels)


keys = st.from_regex(r"([a-z0-9.-]{1,10}[a-z0-9]/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,10}", fullmatch=True).filter(
    lambda key: key[0] not in "-."
)


@given(
    st.dictionaries(keys, st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9])?)?", fullmatch=True))
)
def test_every_label_that_the_downward_api_can_write_is_parsed(labels: dict[str, str]) -> None:
    written = "\n".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    assert dict(parse_labels(written)) == labels
