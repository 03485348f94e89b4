"""The guarded attribution: /proc of the host is read in it, which can block."""

from collections.abc import Iterable, Sequence

from gputally.attribution import OwnerFinder
from gputally.attribution.limits import limit_label_names
from gputally.attribution.owners import Attribution, Attributor
from gputally.attribution.resolve import PodIndex, index_pods
from gputally.model import Owner, PodInfo, Reading, SourceState
from gputally.sampling.guard import Attempt, Record, Worker, attempt

NAME = "cgroup"


class GuardedAttributor:
    """Finds the owners of the processes in one set of readings after another."""

    def __init__(self, owners: OwnerFinder) -> None:
        self._attributor = Attributor(owners)
        self._record = Record(NAME)
        self._worker = Worker(NAME, lambda: [attempt(NAME, self._attribute)])
        self._readings: Sequence[Reading] = ()
        self._pods = index_pods({})

    def attribute(
        self, readings: Sequence[Reading], pods: PodIndex, timeout_seconds: float
    ) -> Attribution | None:
        """None if it failed, or if it hangs: then it is not waited for again until it has ended."""
        if not self._worker.busy:
            self._worker.take()  # of earlier readings, if it came late
            self._readings, self._pods = readings, pods
            self._worker.start()
            if self._worker.wait(timeout_seconds):
                return self._absorb(*self._worker.take())
        self._record.overrun(
            timeout_seconds, "find the process whose /proc/PID blocks: ps -eo pid,stat,wchan,comm | grep ' D'"
        )
        return None

    def state(self) -> SourceState:
        return self._record.state()

    def with_exited(self, pods: Iterable[PodInfo], charged: Iterable[Owner]) -> tuple[PodInfo, ...]:
        """The pods on the GPUs and in the ledger, with no more labels than fit into a scrape."""
        limited, left_out = limit_label_names(self._attributor.with_exited(pods, charged))
        self._record.leave_out({"pod_labels": left_out})
        return limited

    def _attribute(self) -> Attribution:
        return self._attributor.attribute(self._readings, self._pods)

    def _absorb(self, tried: Attempt) -> Attribution | None:
        attribution: Attribution | None = tried.result
        if attribution is None:
            self._record.fail(tried)
        elif attribution.other_pid_namespace:
            self._record.mark_down(
                "none of the driver's processes is visible: the exporter is in another pid namespace",
                "share the host's pid namespace (hostPID: true, docker run --pid=host), or set --procfs",
            )
        else:
            self._record.succeed(tried, f"{attribution.processes} processes")
        if attribution is not None:
            self._record.leave_out({"processes": attribution.left_out})
        return attribution
