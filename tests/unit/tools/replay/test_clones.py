"""A node under another name: nothing of it is shared, and nothing of it is chance."""

import re

from tools.replay.clones import renamed

GPU = ("uuid", "GPU-7716e7c4-d863-a9c4-1efd-9dcecf616e36")
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def test_a_clone_has_its_own_gpus_and_pods() -> None:
    labels = (
        ("__name__", "gputally_pod_info"),
        GPU,
        ("parent_uuid", "MIG-7716e7c4"),
        ("serial", "1654922006536"),
        ("pod_uid", "a-b"),
        ("pod", "train-0"),
        ("hostname", "n1"),
        ("namespace", "nlp"),
    )
    found = dict(renamed("n2")(labels))
    assert re.fullmatch(f"GPU-{UUID}", found["uuid"])
    assert re.fullmatch(f"MIG-{UUID}", found["parent_uuid"])
    assert re.fullmatch("[1-9][0-9]{12}", found["serial"])
    assert re.fullmatch(UUID, found["pod_uid"])
    assert (found["pod"], found["hostname"]) == ("train-0-n2", "n2")
    assert (found["__name__"], found["namespace"]) == ("gputally_pod_info", "nlp")
    assert not {found["uuid"], found["serial"]} & {value for _, value in labels}


def test_clones_are_deterministic_and_different() -> None:
    assert renamed("n2")((GPU,)) == renamed("n2")((GPU,))
    assert renamed("n2")((GPU,)) != renamed("n3")((GPU,))


def test_unknown_values_stay_unknown() -> None:
    assert renamed("n2")((("pod", ""), ("uuid", ""))) == (("pod", ""), ("uuid", ""))
