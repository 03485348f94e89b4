"""`gputally verify pod`: checks that a pod was seen on a GPU and charged for it."""

from dataclasses import dataclass

from gputally.commands import FAILURE, NOT_CHECKED, OK, Finding
from gputally.commands.servers import PrometheusApi, RequestFailed
from gputally.commands.verify.prometheus import CHECK_THERE

_SUBJECTS = ("pod", "utilization", "gpu seconds", "energy")


@dataclass(frozen=True, slots=True)
class PodLoad:
    """A pod (a name, or a regular expression), and its minimal use of a GPU."""

    namespace: str
    pod: str
    utilization: float
    window_seconds: int

    def series(self, name: str) -> str:
        matchers = f'namespace="{self.namespace}",pod=~"{self.pod}"'
        return f"{name}{{{matchers}}}[{self.window_seconds}s]"


def verify_pod(prometheus: PrometheusApi, load: PodLoad) -> list[Finding]:
    """One finding for each of _SUBJECTS; never raises."""
    try:
        return _check(prometheus, load)
    except RequestFailed as error:
        text = f"{prometheus.server.url} is unavailable: {error}"
        return [Finding(FAILURE, "prometheus", text, "check --prometheus")]


def _check(prometheus: PrometheusApi, load: PodLoad) -> list[Finding]:
    name = f"{load.namespace}/{load.pod}"
    if not prometheus.count(f"count_over_time({load.series('gputally_pod_info')})"):
        text = f"{name} was not seen on a GPU in the last {load.window_seconds} s"
        return [
            Finding(FAILURE, "pod", text, f"check that the exporter on its node is up; {CHECK_THERE}"),
            *(Finding(NOT_CHECKED, subject, "the pod was not seen") for subject in _SUBJECTS[1:]),
        ]
    return [
        Finding(OK, "pod", f"{name} was seen on a GPU"),
        _utilization(_most_used(prometheus, load), load.utilization),
        _above_zero(prometheus, load, "gpu seconds", "gputally_pod_held_seconds_total", "s"),
        _above_zero(prometheus, load, "energy", "gputally_pod_energy_joules_total", "J"),
    ]


def _most_used(prometheus: PrometheusApi, load: PodLoad) -> float | None:
    """The pod's own utilisation, else that of its GPU if the driver does not report it by process."""
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
        return Finding(NOT_CHECKED, "utilization", "not reported by the driver, as on MIG devices")
    if found < wanted:
        return Finding(
            FAILURE,
            "utilization",
            f"at most {found:.2f}, less than {wanted:.2f}",
            "run more load for longer than two scrapes, or lower --utilization",
        )
    return Finding(OK, "utilization", f"up to {found:.2f}")


def _above_zero(prometheus: PrometheusApi, load: PodLoad, subject: str, name: str, unit: str) -> Finding:
    found = prometheus.number(f"sum(max_over_time({load.series(name)}))") or 0
    if found > 0:
        return Finding(OK, subject, f"{found:.1f} {unit}")
    return Finding(FAILURE, subject, f"the pod is not charged: {name} is 0 or missing", CHECK_THERE)
