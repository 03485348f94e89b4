"""The same series under the name of another node: other GPUs, other pods, the same values."""

from collections.abc import Callable
from functools import cache
from random import Random
from uuid import UUID

from tools.replay.tape import Labels


def renamed(node: str) -> Callable[[Labels], Labels]:
    """What makes the labels of one node those of another.

    GPUs and pods get other ids, and pods the name of the node at the end of their own. The same node gets the
    same names, whenever it is asked for.
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
