"""The choke point: every question to one device goes through here, and comes back as a value or None."""

from typing import Any

from gputally.devices.nvml.library import NOT_AVAILABLE, Library, Verdict

Values = dict[str, Any]
"""Fields of a `Reading` by name; what is not known is not in it."""


class Query:
    """Asks one device. Remembers what it cannot tell, and does not ask that again."""

    def __init__(self, library: Library, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self._unsupported: set[tuple[Any, ...]] = set()

    def ask(self, field: str, function: str, *arguments: Any, absent: Any = None) -> Any:
        """What pynvml's function returns for this device; None when it cannot tell.

        `absent` is returned instead when the driver says that there is no such thing now. `field` is
        what an error is counted under. Raises DeviceLost and LibraryGone.
        """
        question = (function, *arguments)
        if question in self._unsupported:
            return None
        nvml = self.library.nvml
        call = getattr(nvml, function, None)
        if call is None:  # this pynvml is older than the function
            self._unsupported.add(question)
            return None
        try:
            return call(self.handle, *arguments)
        except nvml.NVMLError as error:
            verdict = self.judge(error.value, field, question)
            return absent if verdict is Verdict.ABSENT else None
        except UnicodeDecodeError:  # text from a damaged infoROM
            self.library.errors[field, "garbled"] += 1
            return None

    def number(self, field: str, function: str, *arguments: Any) -> int | None:
        """Like `ask`, for functions that return one whole number."""
        value = self.ask(field, function, *arguments)
        return None if value is None or value in NOT_AVAILABLE else int(value)

    def first(self, field: str, functions: tuple[str, ...], *arguments: Any) -> int | None:
        """The number from the first of these functions that can tell: the newer one stands first."""
        for function in functions:
            if (value := self.number(field, function, *arguments)) is not None:
                return value
        return None

    def can(self, *question: Any) -> bool:
        """False when the device has said that it does not support this."""
        return question not in self._unsupported

    def judge(self, code: int, field: str, question: tuple[Any, ...]) -> Verdict:
        """For calls that are made without pynvml's wrapper: the same judgement, the same memory."""
        verdict = self.library.judge(code, field)
        if verdict is Verdict.UNSUPPORTED:
            self._unsupported.add(question)
        return verdict

    def forget(self) -> None:
        """Ask everything again: the device was changed so that it may tell more, or less."""
        self._unsupported.clear()


def some(values: dict[Any, Any]) -> dict[Any, Any] | None:
    """The values that are known, or None when none is."""
    known = {key: value for key, value in values.items() if value is not None}
    return known or None
