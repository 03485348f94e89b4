"""Which pod the samples of a device can be labelled with."""

from dataclasses import replace

import pytest

from gputally.model import Charge, Owner, Unknown
from gputally.relay.relabel import PodLabels, find_only_pods
from gputally.relay.text import DeviceLabels
from tests.unit.relay.dcgm_texts import SHARED, SLICED, SLICES, TRAIN, gpu, node, pod, snapshot, use

TRAINER = PodLabels("ml", "train-0", "main")


def test_the_only_pod_by_uuid_and_by_index() -> None:
    who = find_only_pods(node())
    assert (
        who(DeviceLabels(TRAIN)) == who(DeviceLabels(index="0")) == who(DeviceLabels(TRAIN, "0")) == TRAINER
    )


def test_several_pods_give_no_label() -> None:
    assert find_only_pods(node())(DeviceLabels(SHARED)) is None


def test_two_containers_of_a_pod_give_no_label() -> None:
    who = find_only_pods(snapshot(use(0, TRAIN, pod("a", "one")), use(0, TRAIN, pod("a", "two"))))
    assert who(DeviceLabels(TRAIN)) is None


def test_an_idle_gpu_and_an_unknown_gpu_have_no_pod() -> None:
    who = find_only_pods(snapshot())
    assert who(DeviceLabels(TRAIN)) is None
    assert find_only_pods(node())(DeviceLabels("GPU-of-another-node", "0")) is None, "the index is another's"


def test_an_idle_holder_is_the_pod_of_the_gpu() -> None:
    assert (
        find_only_pods(snapshot(use(0, TRAIN, pod("train-0"), processes=0)))(DeviceLabels(TRAIN)) == TRAINER
    )


def test_an_exited_pod_is_not_the_pod_of_the_gpu() -> None:
    gone = Charge(gpu_index=0, uuid=TRAIN, owner=pod("before"), active=False)
    here = Charge(gpu_index=0, uuid=TRAIN, owner=pod("train-0"), active=True)
    both = (use(0, TRAIN, pod("before"), processes=0), use(0, TRAIN, pod("train-0")))
    assert find_only_pods(snapshot(*both, charges=(gone, here)))(DeviceLabels(TRAIN)) == TRAINER
    elsewhere = Charge(gpu_index=1, uuid=SHARED, owner=pod("train-0"), active=False)
    assert find_only_pods(snapshot(both[1], charges=(elsewhere,)))(DeviceLabels(TRAIN)) == TRAINER


def test_a_restarted_container_is_the_pod_of_the_gpu() -> None:
    now = Charge(gpu_index=0, uuid=TRAIN, owner=pod("train-0"), active=True)
    before = replace(now, owner=replace(now.owner, container_id="3f05"), active=False)
    for charges in ((now, before), (before, now)):
        assert (
            find_only_pods(snapshot(use(0, TRAIN, pod("train-0")), charges=charges))(DeviceLabels(TRAIN))
            == TRAINER
        )


@pytest.mark.parametrize(
    "other",
    [
        Owner("service", "service/xorg.service"),
        Owner("docker", "docker/3f05"),
        Unknown("zombie"),
        Unknown("exited"),
    ],
)
def test_owners_outside_of_pods_are_ignored(other: Owner | Unknown) -> None:
    assert find_only_pods(snapshot(use(0, TRAIN, other)))(DeviceLabels(TRAIN)) is None
    assert (
        find_only_pods(snapshot(use(0, TRAIN, pod("train-0")), use(0, TRAIN, other)))(DeviceLabels(TRAIN))
        == TRAINER
    )


@pytest.mark.parametrize("reason", ["unknown_pod", "unknown_container", "ambiguous_pod"])
def test_beside_an_unattributed_process_no_pod_is_the_only_one(reason: str) -> None:
    nameless = use(0, TRAIN, Unknown(reason))
    assert find_only_pods(snapshot(use(0, TRAIN, pod("train-0")), nameless))(DeviceLabels(TRAIN)) is None
    assert find_only_pods(snapshot(nameless))(DeviceLabels(TRAIN)) is None
    ended = use(0, TRAIN, Unknown(reason), processes=0)
    assert find_only_pods(snapshot(use(0, TRAIN, pod("train-0")), ended))(DeviceLabels(TRAIN)) == TRAINER


def test_a_mig_device_is_found_by_gpu_instance_or_uuid() -> None:
    who = find_only_pods(node())
    notebook = PodLabels("ml", "notebook", "main")
    for device in (
        DeviceLabels(SLICED, "2", "1"),
        DeviceLabels(index="2", gpu_instance_id="1"),
        DeviceLabels(SLICES[0]),
        DeviceLabels(SLICES[0], "2", "1"),
    ):
        assert who(device) == notebook, device
    assert who(DeviceLabels(SLICED, "2", "2")) is None
    assert who(DeviceLabels(SLICES[1])) is None


def test_a_gpu_in_mig_mode_has_no_pod() -> None:
    who = find_only_pods(snapshot(use(2, SLICES[0], pod("notebook"))))
    assert who(DeviceLabels(SLICED, "2")) is None
    assert who(DeviceLabels(index="2")) is None


def test_two_compute_instances_of_one_gpu_instance_share_its_samples() -> None:
    sliced = gpu(2, SLICED, *SLICES)
    first, second = sliced.mig
    same = replace(second.instance, gpu_instance_id=1, compute_instance_id=1)
    readings = (replace(sliced, mig=(first, replace(second, instance=same))),)
    one, other = use(2, SLICES[0], pod("a")), use(2, SLICES[1], pod("b"))
    assert find_only_pods(snapshot(one, readings=readings))(DeviceLabels(SLICED, "2", "1")) == PodLabels(
        "ml", "a", "main"
    )
    both = find_only_pods(snapshot(one, other, readings=readings))
    assert both(DeviceLabels(SLICED, "2", "1")) is None
    assert both(DeviceLabels(SLICES[1])) == PodLabels("ml", "b", "main")


def test_an_index_of_two_gpus_matches_neither() -> None:
    readings = (gpu(0, TRAIN), gpu(0, "amd-1", vendor="amd"))
    who = find_only_pods(snapshot(use(0, TRAIN, pod("train-0")), readings=readings))
    assert who(DeviceLabels(index="0")) is None
    assert who(DeviceLabels(TRAIN, "0")) == TRAINER
