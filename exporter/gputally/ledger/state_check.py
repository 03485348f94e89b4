"""Checks a state that was read from a file: is it one that `Ledger.state` can have written?"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gputally.ledger.meter import SOURCES
from gputally.ledger.window import account_of
from gputally.model import BASES, UNATTRIBUTED, Owner

MOST_GPUS = 1024
_LONGEST_TEXT = 4096
_MOST = 2**63
_OWNER_FIELDS = {each.name for each in fields(Owner)}

Shape = Callable[[Any], bool] | Mapping[str, Any]
"""A predicate, or the keys of an object with the shape of each."""


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and -_MOST < value < _MOST and math.isfinite(value)


def _text(value: Any) -> bool:
    if type(value) is not str or len(value) > _LONGEST_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a surrogate, which cannot be served
        return False
    return True


def _owner(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= _OWNER_FIELDS
        and bool(value.get("kind"))
        and all(map(_text, value.values()))
    )


def _or_none(shape: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or shape(value)


def _list(shape: Callable[[Any], bool], length: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) == length and all(map(shape, value))


_ROLLING_MINIMUM = {"current": _or_none(_whole), "before": _or_none(_whole), "age_us": _whole}
_GPU = {
    "index": _whole,
    "began_at": _number,
    "meter": {
        "source": SOURCES.__contains__,
        "total": _whole,
        "counter": _whole,
        "nanojoules": _whole,
        "unfit": (True, False).__contains__,
    },
    "power": {"resident": _ROLLING_MINIMUM, "empty": _ROLLING_MINIMUM, "fit": _list(_number, 7)},
    "unattributed": dict.fromkeys(UNATTRIBUTED, _whole),
    "owners": lambda value: isinstance(value, list),
}
_ACCOUNT = {
    "device": _text,
    "owner": _owner,
    "millijoules": _list(_whole, len(BASES)),
    "held_us": _whole,
    "busy_us": _or_none(_whole),
    "unseen_us": _whole,
}


def check_state(state: Any) -> None:
    """Raises ValueError with what is wrong."""
    _check(state, {"boot_id": _text, "gpus": lambda gpus: isinstance(gpus, dict)}, "state")
    if len(state["gpus"]) > MOST_GPUS:
        raise ValueError(f"{len(state['gpus'])} GPUs")
    for uuid, gpu in state["gpus"].items():
        _check_gpu(uuid, gpu)


def _check_gpu(uuid: str, gpu: Any) -> None:
    where = f"gpus[{uuid[:80]!r}]"
    if not _text(uuid):
        raise ValueError(f"{where} is not a uuid")
    _check(gpu, _GPU, where)
    accounts = set()
    charged = sum(gpu["unattributed"].values())
    for number, entry in enumerate(gpu["owners"]):
        _check(entry, _ACCOUNT, f"{where}.owners[{number}]")
        accounts.add((entry["device"], account_of(Owner(**entry["owner"]))))
        charged += sum(entry["millijoules"])
    if len(accounts) < len(gpu["owners"]):
        raise ValueError(f"{where} has two accounts of one owner")
    if charged != gpu["meter"]["total"]:
        raise ValueError(f"{where}: {charged} mJ are charged, and {gpu['meter']['total']} mJ were used")


def _check(value: Any, shape: Shape, where: str) -> None:
    if not isinstance(shape, Mapping):
        if not shape(value):
            shown = (
                {dict: "an object", list: "a list"}[type(value)]
                if isinstance(value, (dict, list))
                else repr(value)[:80]
            )
            raise ValueError(f"{where} is {shown}")
    elif not isinstance(value, dict) or value.keys() != shape.keys():
        raise ValueError(f"{where} does not have the keys {', '.join(shape)}")
    else:
        for key, inner in shape.items():
            _check(value[key], inner, f"{where}.{key}")
