"""Reads the few protobuf messages of the kubelet that we need, without the protobuf package.

The format: https://protobuf.dev/programming-guides/encoding/. Whatever is wrong with the bytes is a
ValueError. Fields that nobody asks for are skipped, so messages of newer kubelets can be read.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class Message:
    """One message. A field is asked for by its number; a missing one is empty, as protobuf has it."""

    def __init__(self, encoded: bytes | memoryview) -> None:
        self._chunks: dict[int, list[memoryview]] = {}
        self._numbers: dict[int, int] = {}
        view = memoryview(encoded)
        position = 0
        while position < len(view):
            tag, position = _varint(view, position)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise ValueError("a field has the number 0")
            if kind == _VARINT:
                self._numbers[number], position = _varint(view, position)
                continue
            if kind == _BYTES:
                length, position = _varint(view, position)
            elif kind in (_FIXED32, _FIXED64):
                length = 4 if kind == _FIXED32 else 8
            else:
                raise ValueError(f"a field has the unknown wire type {kind}")
            end = position + length
            if end > len(view):
                raise ValueError("a field ends after its message")
            if kind == _BYTES:
                self._chunks.setdefault(number, []).append(view[position:end])
            position = end

    def text(self, number: int) -> str:
        chunks = self._chunks.get(number)
        return str(chunks[-1], "utf-8") if chunks else ""

    def texts(self, number: int) -> Iterator[str]:
        for chunk in self._chunks.get(number, ()):
            yield str(chunk, "utf-8")

    def number(self, number: int) -> int:
        """A number that is not negative (a negative one reads as 2^64 less its amount)."""
        return self._numbers.get(number, 0)

    def flag(self, number: int) -> bool:
        return self.number(number) != 0

    def message(self, number: int) -> "Message":
        # The parts of a message that was sent in parts are merged; joined bytes read as just that.
        chunks = self._chunks.get(number, [])
        return Message(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def messages(self, number: int) -> Iterator["Message"]:
        for chunk in self._chunks.get(number, ()):
            yield Message(chunk)

    def text_map(self, number: int) -> dict[str, str]:
        """A map<string, string>."""
        return {entry.text(1): entry.text(2) for entry in self.messages(number)}


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for nth, byte in enumerate(view[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * nth)
        if byte < 0x80:
            return value, position + nth + 1
    raise ValueError("a number has no end")
