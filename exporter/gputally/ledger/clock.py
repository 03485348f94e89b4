"""Time on this boot of the host, including the time for which it was suspended."""

from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, clock_gettime_ns


def since_boot_us() -> int:
    return clock_gettime_ns(CLOCK_BOOTTIME) // 1000


def suspended_us() -> int:
    """The part of it that the monotonic clock does not count."""
    return (clock_gettime_ns(CLOCK_BOOTTIME) - clock_gettime_ns(CLOCK_MONOTONIC)) // 1000
