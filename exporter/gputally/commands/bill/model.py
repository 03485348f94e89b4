"""What a bill consists of, before it is rounded and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gputally.commands.bill.amounts import Amounts, total
from gputally.commands.bill.period import Period


class Kind(StrEnum):
    OWNER = "owner"
    """Pods, as the grouping names them."""
    HOST = "host"
    """An owner outside of Kubernetes."""
    UNALLOCATED = "unallocated"
    """GPUs that no owner held: free, lost or unobserved."""
    UNATTRIBUTED = "unattributed"
    """Energy that no owner is charged for, by reason."""


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    kind: Kind
    amounts: Amounts


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A time that the bill does not have, or only as a whole."""

    start: int
    end: int
    kind: str
    """`no data` or `unobserved`."""
    cluster: str
    node: str
    """Empty: all nodes of the cluster."""
    text: str
    """What it means for the bill."""


@dataclass(frozen=True, slots=True)
class Bill:
    period: Period
    by: str
    cluster: str
    currency: str
    source: str
    rows: Sequence[Row]
    meter_millijoules: int
    """What the hardware's energy counters counted."""
    unpriced_us: int
    """Allocated time of GPUs for which the rules have no price."""
    gaps: Sequence[Gap]

    @property
    def total(self) -> Amounts:
        return total(row.amounts for row in self.rows)

    @property
    def difference_millijoules(self) -> int:
        return self.meter_millijoules - self.total.millijoules
