"""Sums over the range that a dashboard shows, of what is recorded once a minute.

Every number of a bill is made this way, from records of the same minutes: that is why they add up.
"""


def hours(selector: str, by: str = "") -> str:
    """GPU-hours of `:gpus`, watt-hours of `:watts`, and money or grams of what is per hour."""
    return _summed(selector, by, minutes=60)


def kilowatt_hours(selector: str, by: str = "") -> str:
    """Of `:watts`."""
    return _summed(selector, by, minutes=60_000)


def largest(selector: str, by: str, count: int = 10) -> str:
    """Over time, those of which there was the most in the whole range: the same ones at every moment."""
    most = f"topk({count}, sum by ({by}) (sum_over_time({selector}[$__range] @ end())))"
    return f"sum by ({by}) ({selector}) and on ({by}) {most}"


def _summed(selector: str, by: str, minutes: int) -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (sum_over_time({selector}[$__range]) / {minutes})"
