"""Numbers as text of a few characters; what is not known is a dash."""

UNKNOWN = "-"
GIB = 2**30
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = " ▏▎▍▌▋▊▉█"
_ASCII_LEVELS = " .:-=+*#%"


def percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.0f}%"


def gibibytes(used: float | None, total: float | None = None) -> str:
    if used is None:
        return UNKNOWN
    amount = _significant(used / GIB)
    return f"{amount}G" if total is None else f"{amount}/{_significant(total / GIB)}G"


def watts(power: float | None, limit: float | None = None) -> str:
    if power is None:
        return UNKNOWN
    if limit is not None:
        return f"{power:.0f}/{limit:.0f}W"
    if power >= 1e6:
        return f"{power / 1e6:.2f}MW"
    return f"{power / 1000:.1f}kW" if power >= 10_000 else f"{power:.0f}W"


def joules(energy: float | None) -> str:
    if energy is None:
        return UNKNOWN
    for size, unit in ((1e12, "TJ"), (1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if energy >= size:
            return f"{energy / size:.1f}{unit}"
    return f"{energy:.0f}J"


def celsius(temperature: float | None) -> str:
    return UNKNOWN if temperature is None else f"{temperature:.0f}C"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}".removesuffix(".0")


def bar(ratio: float | None, width: int, *, unicode: bool = True) -> str:
    """As wide as `width`, filled to the ratio."""
    if ratio is None:
        return " " * width
    eighths = round(max(0.0, min(1.0, ratio)) * width * 8)
    if not unicode:
        return ("#" * round(eighths / 8)).ljust(width, ".")
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BAR[rest] if rest else "")).ljust(width)


def columns(
    values: tuple[float | None, ...], top: float, height: int = 1, *, unicode: bool = True
) -> list[str]:
    """A graph of `height` lines, the upper one first: one column for each value."""
    levels = _BLOCKS if unicode else _ASCII_LEVELS
    lines = []
    for floor in range(height - 1, -1, -1):
        filled = (None if value is None else value / top * height - floor for value in values)
        # A measured value is never as empty as a missing one.
        lines.append(
            "".join(
                " " if share is None else levels[max(0 if floor else 1, min(8, round(share * 8)))]
                for share in filled
            )
        )
    return lines


def _significant(amount: float) -> str:
    return f"{amount:.0f}" if amount >= 9.95 or amount == 0 else f"{amount:.1f}"
