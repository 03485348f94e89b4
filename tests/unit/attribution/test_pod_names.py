"""What may be the name of a pod, and what may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import is_container, is_namespace, is_pod, parse_pod_uid


@pytest.mark.parametrize("text", ["a", "ml", "kube-system", "0", "a--b", "n" * 63])
def test_a_label_is_a_namespace_a_container_and_a_pod(text: str) -> None:
    assert is_namespace(text)
    assert is_container(text)
    assert is_pod(text)


@pytest.mark.parametrize("text", ["a.b", "etcd-ip-10-0-1-5.ec2.internal", "n" * 64, "p" * 253])
def test_only_a_pod_name_may_contain_dots_and_be_long(text: str) -> None:
    assert is_pod(text)
    assert not is_namespace(text)
    assert not is_container(text)


@pytest.mark.parametrize(
    "text", ["", "-a", "a-", "A", "a_b", "a b", "a\n", "..", ".", "a..b", ".a", "é", "٣", "p" * 254, "a/b"]
)
def test_names_that_kubernetes_refuses(text: str) -> None:
    assert not is_pod(text)
    assert not is_namespace(text)


@given(st.uuids())
def test_a_uid_in_any_spelling_is_normalised(uid: object) -> None:
    text = str(uid)
    assert parse_pod_uid(text) == parse_pod_uid(text.upper()) == parse_pod_uid(text.replace("-", "_")) == text


@given(st.text(max_size=40))
def test_an_invalid_uid_is_none(text: str) -> None:
    uid = parse_pod_uid(text)
    assert uid is None or uid == text.lower().replace("_", "-")


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "g" * 32, "12345678-1234-4abc-8def-1234567890ab-decoy"]
)
def test_similar_texts_are_not_uids(text: str) -> None:
    assert parse_pod_uid(text) is None
