"""What can go wrong on a node during a soak, one thing at a time.

A fault lasts while its context does. It yields what may be charged for the energy drawn meanwhile, beside the
owners on the GPU: nothing, unless docs/energy.md says otherwise.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.soaking.node import Account
from tools.soaking.upstream import HOSTILE
from tools.standin.scenario import Fault as DriverFault
from tools.standin.scenario import FaultKind

if TYPE_CHECKING:
    from tools.soaking.soak import Soak

UNOBSERVED: Account = ("unattributed", "unobserved")


@dataclass(slots=True)
class Effect:
    """What a fault may change."""

    also_charged: set[Account] = field(default_factory=set)
    """Accounts that may be charged, too."""
    new_ledger: bool = False
    """Whether the ledger may begin again."""


Fault = Callable[["Soak"], AbstractContextManager[Effect]]
_Steps = Iterator[Effect]


@contextmanager
def gpu_lost(soak: "Soak") -> _Steps:
    soak.node.break_driver(DriverFault(FaultKind.LOST, gpu=soak.some_gpu()))
    soak.samples(2)
    yield Effect({UNOBSERVED})
    soak.node.mend_driver()


@contextmanager
def gpu_missing(soak: "Soak") -> _Steps:
    soak.node.break_driver(DriverFault(FaultKind.ABSENT, gpu=soak.some_gpu()))
    soak.samples(2)
    yield Effect({UNOBSERVED})
    soak.node.mend_driver()


@contextmanager
def gpu_hangs(soak: "Soak") -> _Steps:
    gpu = soak.some_gpu()
    soak.node.break_driver(DriverFault(FaultKind.HANG, "nvmlDeviceGetTemperature", gpu=gpu))
    soak.samples(2)
    yield Effect({UNOBSERVED})
    soak.samples(2)
    soak.node.mend_driver()


@contextmanager
def driver_hangs(soak: "Soak") -> _Steps:
    soak.node.break_driver(DriverFault(FaultKind.HANG, "nvmlDeviceGetTemperature"))
    soak.source("nvml", up=False)
    yield Effect({UNOBSERVED})
    soak.samples(2)
    soak.node.mend_driver()


@contextmanager
def driver_reload(soak: "Soak") -> _Steps:
    soak.node.break_driver(DriverFault(FaultKind.DRIVER_GONE))
    soak.source("nvml", up=False)
    soak.drawn += soak.node.mend_driver(reloaded=True)
    yield Effect({UNOBSERVED})


@contextmanager
def driver_errors(soak: "Soak") -> _Steps:
    """The energy counter of one GPU cannot be read."""
    soak.node.break_driver(
        DriverFault(FaultKind.ERROR, "nvmlDeviceGetFieldValues", gpu=soak.some_gpu(), value=999)
    )
    soak.samples(2)
    yield Effect()
    soak.node.mend_driver()


@contextmanager
def kubelet_gone(soak: "Soak") -> _Steps:
    socket = soak.node.kubelet_socket
    aside = socket.with_name("kubelet.sock.gone")
    socket.rename(aside)
    soak.source("pod_resources", up=False)
    yield Effect()
    aside.rename(socket)


@contextmanager
def kubelet_garbage(soak: "Soak") -> _Steps:
    soak.node.kubelet_garbage = True
    soak.samples(3)
    yield Effect()
    soak.node.kubelet_garbage = False


@contextmanager
def kubelet_hangs(soak: "Soak") -> _Steps:
    soak.node.kubelet_answers.clear()
    soak.source("pod_resources", up=False)
    yield Effect()
    soak.node.kubelet_answers.set()


@contextmanager
def pod_logs_gone(soak: "Soak") -> _Steps:
    logs = soak.node.pod_logs
    aside = logs.with_name("pods.gone")
    logs.rename(aside)
    soak.samples(2)
    yield Effect()
    aside.rename(logs)


@contextmanager
def proc_blocks(soak: "Soak") -> _Steps:
    """A read of /proc that does not return. The GPU of that process draws nothing meanwhile."""
    gpu = soak.random.choice(soak.node.shared_out)
    soak.resting = {gpu}
    soak.node.churn([gpu], blocked=True)
    soak.answers(10)
    yield Effect()
    soak.node.unblock(gpu)
    soak.resting = set()


@contextmanager
def state_unwritable(soak: "Soak") -> _Steps:
    with soak.without_state_directory():
        soak.source("state_file", up=False)
        yield Effect()


@contextmanager
def relay_hostile(soak: "Soak") -> _Steps:
    soak.upstream.attack = soak.random.choice(sorted(HOSTILE))
    soak.samples(3)
    yield Effect()
    soak.upstream.attack = None


@contextmanager
def terminated(soak: "Soak") -> _Steps:
    soak.stop(signal.SIGTERM)
    yield Effect({UNOBSERVED})
    soak.start()


@contextmanager
def killed(soak: "Soak") -> _Steps:
    soak.stop(signal.SIGKILL)
    yield Effect({UNOBSERVED})
    soak.start()


@contextmanager
def killed_at_start(soak: "Soak") -> _Steps:
    soak.stop(signal.SIGKILL)
    soak.exporter.start()
    soak.exporter.wait_for_log(soak.random.randint(1, 6))
    soak.exporter.end(signal.SIGKILL)
    yield Effect({UNOBSERVED})
    soak.start()


@contextmanager
def killed_while_unwritable(soak: "Soak") -> _Steps:
    """What is in the state directory when it is back is older than what was served."""
    with soak.without_state_directory():
        soak.source("state_file", up=False)
        soak.draw()
        soak.samples(10)
        soak.stop(signal.SIGKILL)
    yield Effect({UNOBSERVED}, new_ledger=True)
    soak.start()


FAULTS: Mapping[str, Fault] = {
    "GPU lost and back": gpu_lost,
    "GPU missing from the driver's list and back": gpu_missing,
    "one GPU hangs": gpu_hangs,
    "driver hangs": driver_hangs,
    "driver reloaded, counters from zero": driver_reload,
    "energy counter cannot be read": driver_errors,
    "kubelet socket gone": kubelet_gone,
    "kubelet answers garbage": kubelet_garbage,
    "kubelet hangs": kubelet_hangs,
    "pod log directory gone": pod_logs_gone,
    "read of /proc blocks": proc_blocks,
    "state directory unwritable": state_unwritable,
    "relayed exporter hostile": relay_hostile,
}
RESTARTS: Mapping[str, Fault] = {
    "SIGTERM": terminated,
    "SIGKILL": killed,
    "SIGKILL during the start": killed_at_start,
    "SIGKILL while the state directory is unwritable": killed_while_unwritable,
}
