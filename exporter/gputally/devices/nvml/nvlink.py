"""How many NVLinks a device has, and what of them cannot be batched."""

from gputally.devices.nvml.fields import LINK_COUNT, FieldBatch, Slot
from gputally.devices.nvml.query import Query, Values

MOST_LINKS = 72
_STATE = "nvmlDeviceGetNvLinkState"
_ERROR_COUNTER = "nvmlDeviceGetNvLinkErrorCounter"
# nvmlNvLinkErrorCounter_t, for what has no field id beyond link 11
_COUNTERS = {"crc_flit": 2, "crc_data": 3, "ecc_data": 4}
_FIRST_LINK_WITHOUT_IDS = 12


def count_links(query: Query) -> int:
    """NVLinks on the device; 0 when it has none."""
    batch = FieldBatch(query, (Slot("nvlink_up", LINK_COUNT),))
    count = batch.read().get("nvlink_up")
    if count is not None:
        return min(int(count), MOST_LINKS)
    links = 0
    while links < MOST_LINKS and query.number("nvlink_up", _STATE, links) is not None:
        links += 1
    return links


def complete_links(query: Query, links: int, values: Values) -> None:
    """Add to the batch's values what the driver tells only link by link."""
    states = dict(values.get("nvlink_up", {}))
    for link in range(links):
        if (str(link),) not in states:
            state = query.number("nvlink_up", _STATE, link)
            if state is not None:
                states[str(link),] = state
    values["nvlink_up"] = {link: float(state != 0) for link, state in states.items()}  # 2: up, but asleep
    errors = dict(values.get("nvlink_errors", {}))
    for link in range(_FIRST_LINK_WITHOUT_IDS, links):
        for kind, counter in _COUNTERS.items():
            count = query.number("nvlink_errors", _ERROR_COUNTER, link, counter)
            if count is not None:
                errors[str(link), kind] = count
    values["nvlink_errors"] = errors
