"""Field values: every type of number, and one source for each value."""

import ctypes
import math
import struct
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.nvml.fields import ALL_LINKS, DEVICE_SLOTS, ENTRY, FieldBatch, Slot, decode
from gputally.devices.nvml.library import Library, Query
from gputally.model import Reading

LITTLE = {0: "<d", 1: "<I", 2: "<Q", 3: "<Q", 4: "<q", 5: "<i", 6: "<H"}


def packed(kind: int, number: float) -> int:
    return int.from_bytes(struct.pack(LITTLE[kind], number).ljust(8, b"\xaa"), "little")


def test_the_struct_layout_is_that_of_the_driver() -> None:
    assert ENTRY.size == ctypes.sizeof(pynvml.c_nvmlFieldValue_t)


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_integers(number: int) -> None:
    assert decode(5, packed(5, number)) == number
    assert decode(4, packed(4, number)) == number


@given(st.integers(0, 2**32 - 2))
def test_unsigned_integers_ignore_unused_bytes(number: int) -> None:
    assert decode(1, packed(1, number)) == number


@given(st.integers(0, 2**64 - 2))
def test_long_integers_are_exact(number: int) -> None:
    assert decode(2, packed(2, number)) == decode(3, packed(3, number)) == number


@given(st.integers(0, 2**16 - 1))
def test_short_integers(number: int) -> None:
    assert decode(6, packed(6, number)) == number


@given(st.floats())
def test_real_numbers(number: float) -> None:
    assert decode(0, packed(0, number)) == (number if math.isfinite(number) else None)


@pytest.mark.parametrize(("kind", "raw"), [(1, 2**32 - 1), (2, 2**64 - 1), (3, 2**64 - 1)])
def test_not_available_is_none(kind: int, raw: int) -> None:
    assert decode(kind, raw) is None


def test_every_slot_fills_a_field_of_the_model() -> None:
    assert {slot.field for slot in DEVICE_SLOTS} <= set(Reading.__dataclass_fields__)
    assert len({(slot.id, slot.scope) for slot in DEVICE_SLOTS}) == len(DEVICE_SLOTS)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (("corrected", "volatile"), "SBE_VOL_TOTAL"),
        (("uncorrected", "aggregate"), "DBE_AGG_TOTAL"),
        (("corrected", "volatile", "l2_cache"), "SBE_VOL_L2"),
        (("uncorrected", "volatile", "device_memory"), "DBE_VOL_DEV"),
        (("corrected", "aggregate", "register_file"), "SBE_AGG_REG"),
        (("uncorrected", "aggregate", "texture_memory"), "DBE_AGG_TEX"),
        (("uncorrected", "volatile", "cbu"), "DBE_VOL_CBU"),
        (("uncorrected", "aggregate", "cbu"), "DBE_AGG_CBU"),
    ],
)
def test_ids_of_ecc_counters_are_those_of_pynvml(labels: tuple[str, ...], name: str) -> None:
    id = getattr(pynvml, f"NVML_FI_DEV_ECC_{name}")
    assert [slot.id for slot in DEVICE_SLOTS if slot.labels == labels] == [id]


class Fields(Library):
    """A library whose only function answers field ids with (code, value)."""

    def __init__(self, **answers: tuple[int, int]) -> None:
        super().__init__()
        self.nvml = pynvml
        self.answers = answers
        self.asked: list[str] = []

    def function(self, *names: str) -> Any:
        assert names == ("nvmlDeviceGetFieldValues",)
        return self._fill

    def _fill(self, _: object, count: int, buffer: Any) -> int:
        self.asked = []
        for place in range(count):
            id, scope, *_rest = ENTRY.unpack_from(buffer, place * ENTRY.size)
            self.asked.append(f"f{id}_{scope}")
            code, value = self.answers.get(self.asked[-1], (3, 0))
            ENTRY.pack_into(buffer, place * ENTRY.size, id, scope, 0, 0, 3, code, value)
        return 0


RIVALS = (Slot("bytes", 1, ("tx",), 9), Slot("bytes", 2, ("tx",), 0), Slot("bytes", 2, ("tx",), 1))


def test_the_first_supported_id_is_used() -> None:
    library = Fields(f1_9=(0, 100), f2_0=(0, 30), f2_1=(0, 40))
    batch = FieldBatch(Query(library, None), RIVALS)
    assert [batch.read(), batch.read()] == [{"bytes": {("tx",): 100}}] * 2
    assert library.asked == ["f1_9"]


def test_scopes_of_one_id_are_summed_if_the_preferred_one_is_not_supported() -> None:
    library = Fields(f2_0=(0, 30), f2_1=(0, 40))
    batch = FieldBatch(Query(library, None), RIVALS)
    assert [batch.read(), batch.read()] == [{"bytes": {("tx",): 70}}] * 2
    assert library.asked == ["f2_0", "f2_1"]


def test_sum_over_all_links_is_not_added_to_its_links() -> None:
    slots = [Slot("bytes", 7, ("tx",), scope) for scope in (ALL_LINKS, 0, 1)]
    library = Fields(**{f"f7_{ALL_LINKS}": (0, 70), "f7_0": (0, 30), "f7_1": (0, 40)})
    batch = FieldBatch(Query(library, None), slots)
    assert [batch.read(), batch.read()] == [{"bytes": {("tx",): 70}}] * 2
    assert library.asked == [f"f7_{ALL_LINKS}"]


def test_an_id_that_fails_at_first_is_not_counted_twice_later() -> None:
    library = Fields(f1_9=(999, 0), f2_0=(0, 30))
    batch = FieldBatch(Query(library, None), RIVALS)
    assert batch.read() == {}
    library.answers["f1_9"] = (0, 100)
    assert batch.read() == {"bytes": {("tx",): 100}}
    assert library.errors == {("bytes", "unknown"): 1}


def test_an_error_is_counted_every_time_and_the_value_returns() -> None:
    slots = (Slot("ecc", 1, ("a",)), Slot("ecc", 2, ("b",)))
    library = Fields(f1_0=(0, 5), f2_0=(0, 6))
    batch = FieldBatch(Query(library, None), slots)
    whole = {"ecc": {("a",): 5, ("b",): 6}}
    assert [batch.read(), batch.read(), batch.read()] == [whole] * 3
    library.answers["f2_0"] = (999, 6)
    assert [batch.read(), batch.read()] == [{"ecc": {("a",): 5}}] * 2
    assert library.errors == {("ecc", "unknown"): 2}
    library.answers["f2_0"] = (0, 6)
    assert batch.read() == whole


def test_unsupported_ids_are_queried_again_after_a_reset() -> None:
    slots = (Slot("ecc", 1, ("a",)), Slot("ecc", 2, ("b",)))
    library = Fields(f1_0=(0, 5))
    batch = FieldBatch(Query(library, None), slots)
    batch.read()
    batch.read()
    assert library.asked == ["f1_0"]
    library.answers["f2_0"] = (0, 7)
    batch.forget()
    assert batch.read() == {"ecc": {("a",): 5, ("b",): 7}}
