"""Colours that mean the same thing on every dashboard.

The set of Okabe and Ito, which people with any kind of colour blindness can distinguish. Good and bad also
differ in lightness, and every state is named in words as well.
"""

GOOD = "#009E73"
WARNING = "#E69F00"
CRITICAL = "#D55E00"
FREE = "#999999"
"""Free or unallocated: neither good nor bad."""
UNKNOWN = "#CC79A7"
"""Unknown: energy without an owner, processes that cannot be attributed."""
BUSY = "#0072B2"
HELD = "#56B4E9"
"""Allocated or in use, busy or not."""
IDLE = "#F0E442"
"""Held and idle."""
NEUTRAL = "#8AB8FF"
CLEAR = "transparent"
"""The background of cells and stats without a problem, so that the others stand out."""

POWER = WARNING
MEMORY = BUSY

BY_BASIS = {"measured": BUSY, "shared": HELD, "held": IDLE}
BY_REASON = {"idle": FREE, "unknown": UNKNOWN, "unobserved": NEUTRAL}
BY_SEVERITY = {"critical": CRITICAL, "warning": WARNING, "info": HELD}
