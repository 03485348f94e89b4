"""Colours that mean the same thing on every dashboard.

From the set of Okabe and Ito, which people with any kind of colour blindness can tell apart. Good and bad
differ also in lightness, and every state has its word beside the colour.
"""

GOOD = "#009E73"
WARNING = "#E69F00"
CRITICAL = "#D55E00"
FREE = "#999999"
"""Nothing happens, and that is neither good nor bad."""
UNKNOWN = "#CC79A7"
"""Cannot be told: nobody's energy, a process without a name."""
BUSY = "#0072B2"
HELD = "#56B4E9"
"""Taken, whether it works or not."""
IDLE = "#F0E442"
"""Held and idle."""
NEUTRAL = "#8AB8FF"
CLEAR = "transparent"
"""For the ground of cells and stats that are as they should be, so that the others stand out."""

POWER = WARNING
MEMORY = BUSY
TEMPERATURE = CRITICAL

BY_BASIS = {"measured": BUSY, "shared": HELD, "held": IDLE}
BY_REASON = {"idle": FREE, "unknown": UNKNOWN, "unobserved": NEUTRAL}
BY_SEVERITY = {"critical": CRITICAL, "warning": WARNING, "info": HELD}
