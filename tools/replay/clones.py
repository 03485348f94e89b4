"""The same series for another node: other GPUs and pods, the same values."""

from collections.abc import Callable
from functools import cache
from random import Random
from uuid import UUID

from tools.replay.tape import LabelPairs


def renamed(node: str) -> Callable[[LabelPairs], LabelPairs]:
    """A function that converts the labels of a node to those of its clone.

    GPUs and pods get other ids; the name of the node is appended to pod names. The results are the same in
    every run.
    """

    @cache
    def other(name: str, value: str) -> str:
        change = _CHANGES.get(name)
        return change(node, value) if change and value else value

    return lambda labels: tuple((name, other(name, value)) for name, value in labels)


def _uuid(node: str, value: str) -> str:
    return str(UUID(int=Random(f"{node}:{value}").getrandbits(128), version=4))


def _device_uuid(node: str, value: str) -> str:
    """GPU-... stays GPU-..., and MIG-... MIG-..."""
    return f"{value.partition('-')[0]}-{_uuid(node, value)}"


def _serial(node: str, value: str) -> str:
    return str(Random(f"{node}:{value}").randrange(10 ** (len(value) - 1), 10 ** len(value)))


_CHANGES: dict[str, Callable[[str, str], str]] = {
    "uuid": _device_uuid,
    "parent_uuid": _device_uuid,
    "serial": _serial,
    "pod_uid": _uuid,
    "pod": lambda node, value: f"{value}-{node}",
    "hostname": lambda node, _: node,
}
