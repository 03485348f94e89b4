"""A state of a ledger is accepted; what no ledger writes is not, whatever its checksum."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.ledger.state_check import check_state
from tests.support.fuzz_targets.state_file import one_input, resume_all, signed
from tests.support.ledger_states import state

State = dict[str, Any]


def valid() -> State:
    """As it is after a file: text and numbers only."""
    found: State = json.loads(json.dumps(state(100, owners=2)))
    return found


def gpu(state: State) -> State:
    found: State = state["gpus"]["GPU-a"]
    return found


def first(state: State) -> State:
    found: State = gpu(state)["owners"][0]
    return found


def test_the_state_of_a_ledger_is_accepted_and_resumed() -> None:
    check_state(valid())
    resume_all(valid())


def moved(state: State) -> None:
    """A total below zero, and a sum that is right."""
    first(state)["millijoules"][0] -= 10**9
    gpu(state)["unattributed"]["idle"] += 10**9


def twice(state: State) -> None:
    gpu(state)["owners"].append(deepcopy(first(state)))
    gpu(state)["meter"]["total"] += sum(first(state)["millijoules"])


HOSTILE: dict[str, Callable[[State], object]] = {
    "no gpus": lambda state: state.pop("gpus"),
    "gpus as a list": lambda state: state.update(gpus=[1]),
    "thousands of gpus": lambda state: state.update(gpus={str(n): gpu(state) for n in range(2000)}),
    "no boot": lambda state: state.pop("boot_id"),
    "an unknown key": lambda state: state.update(more=1),
    "a gpu of another type": lambda state: state["gpus"].update({"GPU-b": 7}),
    "no meter": lambda state: gpu(state).pop("meter"),
    "an unknown source": lambda state: gpu(state)["meter"].update(source="guess"),
    "a source of another type": lambda state: gpu(state)["meter"].update(source=[]),
    "a total that is no number": lambda state: gpu(state)["meter"].update(total="100"),
    "a total that is a bool": lambda state: gpu(state)["meter"].update(total=True),
    "a total with a fraction": lambda state: gpu(state)["meter"].update(total=1.5),
    "a total beyond 64 bits": lambda state: gpu(state)["meter"].update(total=2**64),
    "a counter below zero": lambda state: gpu(state)["meter"].update(counter=-1),
    "no reasons": lambda state: gpu(state).update(unattributed={}),
    "one more reason": lambda state: gpu(state)["unattributed"].update(stolen=0),
    "an owner of another type": lambda state: gpu(state).update(owners=[[]]),
    "an owner without a kind": lambda state: first(state)["owner"].pop("kind"),
    "an owner with other fields": lambda state: first(state)["owner"].update(rank="admiral"),
    "a name that is a number": lambda state: first(state)["owner"].update(pod=7),
    "a name that is no text": lambda state: first(state)["owner"].update(pod="\udcff"),
    "a name of a megabyte": lambda state: first(state)["owner"].update(pod="x" * 2**20),
    "one basis too few": lambda state: first(state)["millijoules"].pop(),
    "energy below zero": moved,
    "seconds below zero": lambda state: first(state).update(held_us=-1),
    "unattributed energy": lambda state: gpu(state)["unattributed"].update(idle=10**12),
    "energy of too many": lambda state: first(state)["millijoules"].__setitem__(1, 10**12),
    "an owner twice": twice,
    "a fit that is infinite": lambda state: gpu(state)["power"].update(fit=[float("inf")] * 7),
    "a floor of another type": lambda state: gpu(state)["power"].update(empty=None),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_state_that_no_ledger_writes_is_refused(change: Callable[[State], object]) -> None:
    hostile = valid()
    change(hostile)
    with pytest.raises(ValueError, match=r"state|gpus|GPUs"):
        check_state(hostile)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in it, with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@given(st.data())
def test_one_changed_value_is_refused_or_harmless(data: st.DataObject) -> None:
    hostile = valid()
    container, key = data.draw(st.sampled_from(places(hostile)))
    container[key] = data.draw(json_values)
    one_input(signed(hostile))


@given(st.binary(max_size=200))
def test_any_bytes_are_harmless(data: bytes) -> None:
    one_input(data)
