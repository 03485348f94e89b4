"""The scenario without a scenario file: every shape of workload and fault, repeated daily.

Eight roles are assigned to the GPUs in turn. With fewer than eight GPUs, several roles alternate on one.
"""

from collections.abc import Iterator
from dataclasses import replace

from gputally.simulator.gpu_models import AmdModel, AnyModel, NvidiaModel
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.scenario import (
    DEFAULT_GPUS,
    DEFAULT_MODEL,
    GpuFault,
    GpuFaultKind,
    Memory,
    Scenario,
    Shape,
    Workload,
)
from gputally.simulator.schedule import Moment, Span

_MINUTE, _HOUR = 60, 3600

_PRETRAIN = PodOwner("nlp", "pretrain-{run}", "trainer", "CronJob/pretrain")
_FINETUNE = PodOwner("vision", "finetune-{run}", "trainer", "CronJob/finetune")
_RANKER = PodOwner("search", "ranker-7d9c5f6b8-4xk2p", "server", "Deployment/ranker")
_RANKER_TOO = PodOwner("search", "ranker-7d9c5f6b8-qm8vt", "server", "Deployment/ranker")
_TRANSCODER = HostOwner("docker", "c41d7be09a52")
_NOTEBOOK = PodOwner("vision", "jupyter-ada-0", "notebook", "StatefulSet/jupyter-ada")
_OTHER_NOTEBOOK = PodOwner("nlp", "jupyter-grace-0", "notebook", "StatefulSet/jupyter-grace")
_THUMBNAILER = PodOwner("media", "thumbnailer-{run}", controller="Deployment/thumbnailer", requested=False)
_BATCH_JOB = HostOwner("slurm", "71{run}")
_SANDBOX = PodOwner("risk", "sandbox-0", "shell", "StatefulSet/sandbox")
_BACKTEST = PodOwner("risk", "backtest-{run}", "worker", "CronJob/backtest")

_ROLES: tuple[tuple[Shape, PodOwner | HostOwner], ...] = (
    (Shape.TRAINING, _PRETRAIN),
    (Shape.TRAINING, _FINETUNE),
    (Shape.INFERENCE, _RANKER),
    (Shape.INFERENCE, _TRANSCODER),
    (Shape.NOTEBOOK, _NOTEBOOK),
    (Shape.UNREQUESTED, _THUMBNAILER),
    (Shape.HANG, _BATCH_JOB),
    (Shape.IDLE, _SANDBOX),
)
_TURN = 4 * _HOUR
"""The period in which all roles run once, with fewer GPUs than roles."""


def default_scenario(gpus: int = DEFAULT_GPUS, model: str = DEFAULT_MODEL, seed: int = 0) -> Scenario:
    """A mixture of workloads for any number of GPUs of any known model."""
    idle = Scenario(gpus=gpus, model=model, seed=seed)
    return replace(
        idle,
        workloads=_in_turns(gpus) if gpus < len(_ROLES) else _side_by_side(gpus),
        faults=_faults(gpus, idle.card(0)),
    )


def _side_by_side(gpus: int) -> tuple[Workload, ...]:
    def role(number: int) -> tuple[int, ...]:
        return tuple(range(number, gpus, len(_ROLES)))

    trainers = tuple(sorted(role(0) + role(1)))
    return (
        # A long training with a break between two jobs.
        Workload(
            shape=Shape.TRAINING, gpus=trainers, span=Span(0, 340 * _MINUTE, 6 * _HOUR), owner=_PRETRAIN
        ),
        Workload(shape=Shape.INFERENCE, gpus=role(2), count=2, owner=_RANKER),
        Workload(shape=Shape.INFERENCE, gpus=role(3), load_percent=80, video=True, owner=_TRANSCODER),
        Workload(shape=Shape.NOTEBOOK, gpus=role(4), owner=_NOTEBOOK),
        # Two on one GPU: a notebook that requested it, and a pod without a request.
        Workload(shape=Shape.NOTEBOOK, gpus=role(5), memory=Memory(percent=40), owner=_OTHER_NOTEBOOK),
        Workload(
            shape=Shape.UNREQUESTED,
            gpus=role(5),
            span=Span(5 * _MINUTE, 125 * _MINUTE, 3 * _HOUR),
            owner=_THUMBNAILER,
        ),
        Workload(
            shape=Shape.HANG,
            gpus=role(6),
            span=Span(10 * _MINUTE, 100 * _MINUTE, 4 * _HOUR),
            owner=_BATCH_JOB,
        ),
        Workload(shape=Shape.IDLE, gpus=role(7)),
        # A second pod on the same GPU, at higher load.
        Workload(shape=Shape.INFERENCE, gpus=role(2), span=Span(15 * _MINUTE), owner=_RANKER_TOO),
        # Between two Slurm jobs, a pod with an allocated, idle GPU.
        Workload(
            shape=Shape.IDLE,
            gpus=role(6),
            span=Span(110 * _MINUTE, 230 * _MINUTE, 4 * _HOUR),
            owner=_SANDBOX,
        ),
        *_visitors(role(7)),
    )


def _visitors(gpus: tuple[int, ...]) -> tuple[Workload, ...]:
    """Short jobs, each in a pod of its own, and sometimes a process without a known owner."""
    return (
        Workload(
            shape=Shape.TRAINING,
            gpus=gpus,
            span=Span(20 * _MINUTE, 23 * _MINUTE, 10 * _MINUTE),
            memory=Memory(percent=15),
            load_percent=60,
            owner=_BACKTEST,
        ),
        Workload(
            shape=Shape.UNREQUESTED,
            gpus=gpus,
            span=Span(70 * _MINUTE, 75 * _MINUTE, 2 * _HOUR),
            name="a.out",
        ),
    )


def _in_turns(gpus: int) -> tuple[Workload, ...]:
    workloads = []
    for gpu in range(gpus):
        roles = [role for number, role in enumerate(_ROLES) if number % gpus == gpu]
        turn = _TURN // len(roles)
        workloads += [
            Workload(
                shape=shape,
                gpus=(gpu,),
                span=Span(place * turn, (place + 1) * turn, _TURN),
                video=shape is Shape.INFERENCE and gpu % 2 == 1,
                owner=owner,
            )
            for place, (shape, owner) in enumerate(roles)
        ]
    return (*workloads, *_visitors((gpus - 1,)))


def _faults(gpus: int, card: AnyModel) -> tuple[GpuFault, ...]:
    second, last = min(1, gpus - 1), gpus - 1
    faults = [
        GpuFault(
            kind=GpuFaultKind.THROTTLE,
            gpus=(second,),
            reason="hw_thermal_slowdown",
            span=Span(20 * _MINUTE, 30 * _MINUTE, 2 * _HOUR),
        ),
    ]
    gone = 3 * _HOUR
    if gpus > 1:
        faults.append(
            GpuFault(kind=GpuFaultKind.LOST, gpus=(last,), span=Span(gone, gone + 4 * _MINUTE, 12 * _HOUR))
        )
    if isinstance(card, NvidiaModel):
        hanging = (6,) if gpus >= len(_ROLES) else (last,)
        faults.append(
            GpuFault(kind=GpuFaultKind.XID, gpus=hanging, code=31, moment=Moment(12 * _MINUTE, 4 * _HOUR))
        )
        if gpus > 1:
            faults.append(
                GpuFault(kind=GpuFaultKind.XID, gpus=(last,), code=79, moment=Moment(gone, 12 * _HOUR))
            )
        faults += _nvidia_faults(second, card)
    else:
        faults += _amd_faults(card)
    return tuple(faults)


_BITS_FLIP = Moment(40 * _MINUTE, 3 * _HOUR)
_LINK_IS_DOWN = Span(2 * _HOUR, 2 * _HOUR + 5 * _MINUTE, 8 * _HOUR)


def _nvidia_faults(second: int, card: NvidiaModel) -> Iterator[GpuFault]:
    if card.ecc == "on":
        yield GpuFault(kind=GpuFaultKind.ECC, gpus=(0,), corrected=1, moment=_BITS_FLIP)
    if card.remap_banks or card.retires_pages:
        night = Span(8 * _HOUR, 9 * _HOUR, 24 * _HOUR)
        yield GpuFault(kind=GpuFaultKind.ROW_REMAP_PENDING, gpus=(second,), span=night)
        if card.recovery_action:
            yield GpuFault(kind=GpuFaultKind.RECOVERY, gpus=(second,), span=night, action="gpu_reset")
    if card.links:
        yield GpuFault(kind=GpuFaultKind.NVLINK_DOWN, gpus=(0,), links=(3,), span=_LINK_IS_DOWN)


def _amd_faults(card: AmdModel) -> Iterator[GpuFault]:
    if card.ras_blocks:
        yield GpuFault(kind=GpuFaultKind.RAS, gpus=(0,), block="umc", type="corrected", moment=_BITS_FLIP)
    if card.links:
        yield GpuFault(kind=GpuFaultKind.XGMI_DOWN, gpus=(0,), links=(3,), span=_LINK_IS_DOWN)
