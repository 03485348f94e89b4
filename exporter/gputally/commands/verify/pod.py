"""`gputally verify pod`: was this pod seen on a GPU, and was it charged for it?"""

from dataclasses import dataclass

from gputally.commands.verify import FAILURE, NOT_CHECKED, OK, Finding
from gputally.commands.verify.asking import NotAnswered
from gputally.commands.verify.prometheus import Prometheus
from gputally.commands.verify.series import CHECK_THERE

_SUBJECTS = ("pod", "utilization", "gpu seconds", "energy")


@dataclass(frozen=True, slots=True)
class PodLoad:
    """A pod (a name, or a regular expression of it), and the use it must have made of a GPU."""

    namespace: str
    pod: str
    utilization: float
    window_seconds: int

    def series(self, name: str) -> str:
        matchers = f'namespace="{self.namespace}",pod=~"{self.pod}"'
        return f"{name}{{{matchers}}}[{self.window_seconds}s]"


def verify_pod(prometheus: Prometheus, load: PodLoad) -> list[Finding]:
    """A line for each of _SUBJECTS; never raises."""
    try:
        return _look(prometheus, load)
    except NotAnswered as error:
        told = f"{prometheus.server.url} does not answer: {error}"
        return [Finding(FAILURE, "prometheus", told, "--prometheus")]


def _look(prometheus: Prometheus, load: PodLoad) -> list[Finding]:
    name = f"{load.namespace}/{load.pod}"
    if not prometheus.count(f"count_over_time({load.series('gputally_pod_info')})"):
        told = f"{name} was not seen on a GPU in the last {load.window_seconds} s"
        return [
            Finding(FAILURE, "pod", told, f"is its node's exporter up? {CHECK_THERE}"),
            *(Finding(NOT_CHECKED, subject, "the pod was not seen") for subject in _SUBJECTS[1:]),
        ]
    return [
        Finding(OK, "pod", f"{name} was seen on a GPU"),
        _utilization(_most_used(prometheus, load), load.utilization),
        _above_zero(prometheus, load, "gpu seconds", "gputally_pod_held_seconds_total", "s"),
        _above_zero(prometheus, load, "energy", "gputally_pod_energy_joules_total", "J"),
    ]


def _most_used(prometheus: Prometheus, load: PodLoad) -> float | None:
    """The pod's own use, else that of the GPU it was on, where the driver does not tell it by process."""
    own = prometheus.number(f"max(max_over_time({load.series('gputally_pod_sm_utilization_ratio')}))")
    if own is not None:
        return own
    window = f"[{load.window_seconds}s]"
    there = f"max_over_time({load.series('gputally_pod_active')})"
    return prometheus.number(
        f"max(max_over_time(gputally_gpu_utilization_ratio{window}) and on (instance, uuid) {there})"
    )


def _utilization(found: float | None, wanted: float) -> Finding:
    if found is None:
        return Finding(NOT_CHECKED, "utilization", "the driver does not tell it here, as on MIG devices")
    if found < wanted:
        return Finding(
            FAILURE,
            "utilization",
            f"{found:.2f} at most, and not {wanted:.2f}",
            "more load for longer than two scrapes, or a lower --utilization",
        )
    return Finding(OK, "utilization", f"up to {found:.2f}")


def _above_zero(prometheus: Prometheus, load: PodLoad, subject: str, name: str, unit: str) -> Finding:
    found = prometheus.number(f"sum(max_over_time({load.series(name)}))") or 0
    if found > 0:
        return Finding(OK, subject, f"{found:.1f} {unit}")
    return Finding(FAILURE, subject, f"nothing is charged to the pod: no {name} above 0", CHECK_THERE)
