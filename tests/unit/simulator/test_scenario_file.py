"""Scenario files: what they say, and what is said about wrong ones."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.simulator import MODEL_NAMES
from gputally.simulator.engine import Engine
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.scenario import (
    GpuFault,
    GpuFaultKind,
    Memory,
    MigLayout,
    Scenario,
    ScenarioError,
    Shape,
    Workload,
)
from gputally.simulator.scenario_file import (
    _FAULT,
    _MIG,
    _TOP,
    _WORKLOAD,
    load_scenario,
    parse_scenario,
)
from gputally.simulator.schedule import Moment, Span
from tests.support.texts import missing

WHOLE = """
gpus = 4
model = "A100"
seed = 7
driver_version = "570.86.15"
cuda_version = "12.8"
power_limit = 300

[[workload]]
shape = "training"
gpus = [1, 2]
start = "1m30s"
stop = "2h"
every = "6h"
count = 2
memory = "30GiB"
load = "80%"
power = "60%"
name = "pretrain"
kind = "mps"
video = true
pod = "nlp/pretrain-{run}"
container = "trainer"
controller = "Job/pretrain-{run}"
requested = false

[[workload]]
shape = "notebook"
gpus = [0]
instance = 1
memory = "50%"
owner = "slurm/42"

[[fault]]
kind = "xid"
gpus = [3]
code = 79
at = 45
every = "1h"

[[fault]]
kind = "ecc"
gpus = [3]
at = "2m"
corrected = 4
uncorrected = 1
location = "l2_cache"

[[fault]]
kind = "throttle"
reason = "hw_power_brake_slowdown"
start = 10
stop = 20

[[fault]]
kind = "nvlink_down"
gpus = "all"
links = [5, 0]

[[mig]]
gpus = [0]
profiles = ["3g.20gb", "1g.5gb"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "night.toml"


def test_a_file_can_set_everything(path: Path) -> None:
    path.write_text(WHOLE)
    scenario = load_scenario(path)
    assert scenario == Scenario(
        gpus=4,
        model="a100",
        seed=7,
        driver_version="570.86.15",
        cuda_version="12.8",
        power_limit_watts=300,
        workloads=(
            Workload(
                shape=Shape.TRAINING,
                gpus=(1, 2),
                span=Span(90, 7200, 21600),
                count=2,
                memory=Memory(mib=30 * 1024),
                load_percent=80,
                power_percent=60,
                name="pretrain",
                kind="mps",
                video=True,
                owner=PodOwner("nlp", "pretrain-{run}", "trainer", "Job/pretrain-{run}", requested=False),
            ),
            Workload(
                shape=Shape.NOTEBOOK,
                gpus=(0,),
                instance=1,
                memory=Memory(percent=50),
                owner=HostOwner("slurm", "42"),
            ),
        ),
        faults=(
            GpuFault(kind=GpuFaultKind.XID, gpus=(3,), code=79, moment=Moment(45, 3600)),
            GpuFault(
                kind=GpuFaultKind.ECC,
                gpus=(3,),
                moment=Moment(120),
                corrected=4,
                uncorrected=1,
                location="l2_cache",
            ),
            GpuFault(
                kind=GpuFaultKind.THROTTLE,
                gpus=(0, 1, 2, 3),
                reason="hw_power_brake_slowdown",
                span=Span(10, 20),
            ),
            GpuFault(kind=GpuFaultKind.NVLINK_DOWN, gpus=(0, 1, 2, 3), links=(0, 5)),
        ),
        mig=(MigLayout((0,), ("3g.20gb", "1g.5gb")),),
    )
    assert len(Engine(scenario).readings(100)) == 4


def test_the_documented_example_is_valid(path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "simulator.md"
    path.write_text(page.read_text().partition("```toml\n")[2].partition("```")[0])
    scenario = load_scenario(path)
    assert (scenario.gpus, len(scenario.workloads), len(scenario.faults)) == (4, 3, 2)
    assert [reading.up for reading in Engine(scenario).readings(660)] == [True, True, True, False]


def test_the_documentation_has_a_row_for_every_fault_with_all_its_keys() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    cells = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    for kind in GpuFaultKind:
        (keys,) = [row[1] for row in cells if f"`{kind}`" in row[0]]
        assert all(f"`{key}`" in keys for key in _FAULT[kind]), kind
    assert all(f"`{model}`" in page for model in MODEL_NAMES)


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("", None),
        ('pod = "a/b"', PodOwner("a", "b", "main", "", True)),
        ('pod = "a/b"\nrequested = false', PodOwner("a", "b", requested=False)),
        ('owner = "service/ollama.service"', HostOwner("service", "ollama.service")),
        ('owner = "process/a/b"', HostOwner("process", "a/b")),
    ],
)
def test_a_workload_belongs_to_a_pod_to_the_host_or_to_no_owner(
    path: Path, text: str, owner: PodOwner | HostOwner | None
) -> None:
    path.write_text(f'[[workload]]\nshape = "training"\n{text}')
    assert load_scenario(path).workloads[0].owner == owner


def test_an_unrequested_pod_has_no_gpu_request_unless_the_file_sets_it(path: Path) -> None:
    path.write_text('[[workload]]\nshape = "unrequested"\npod = "a/b"')
    assert load_scenario(path).workloads[0].owner == PodOwner("a", "b", requested=False)
    path.write_text('[[workload]]\nshape = "unrequested"\npod = "a/b"\nrequested = true')
    assert load_scenario(path).workloads[0].owner == PodOwner("a", "b", requested=True)


def test_an_empty_file_is_eight_idle_gpus(path: Path) -> None:
    path.write_text("")
    readings = Engine(load_scenario(path)).readings(60)
    assert len(readings) == 8
    assert all(reading.gpu_utilization_ratio == 0 and reading.processes == () for reading in readings)


def test_arguments_override_the_file(path: Path) -> None:
    path.write_text('gpus = 4\nmodel = "t4"\nseed = 7\n[[workload]]\nshape = "training"\n')
    scenario = load_scenario(path, gpus=2, model="L4", seed=0)
    assert (scenario.gpus, scenario.model, scenario.seed) == (2, "l4", 0)
    assert scenario.workloads[0].gpus == (0, 1), "all of them, as many as there are now"


def test_each_gpu_can_have_its_own_model(path: Path) -> None:
    path.write_text('model = ["H100", "mi300x"]\n[[fault]]\nkind = "xid"\ngpus = [0]\ncode = 79\nat = 1\n')
    scenario = load_scenario(path)
    assert (scenario.gpus, scenario.model) == (2, ("h100", "mi300x"))
    assert load_scenario(path, model="t4").model == "t4"


def test_the_defaults_of_a_fault(path: Path) -> None:
    path.write_text(
        'model = "mi300x"\n'
        '[[fault]]\nkind = "ras"\nblock = "umc"\ntype = "deferred"\nat = "1h"\n'
        '[[fault]]\nkind = "hot"\n'
        '[[fault]]\nkind = "source_down"\nstart = "1m"\nstop = "2m"\n'
    )
    ras, hot, down = load_scenario(path, gpus=2).faults
    assert (ras.count, ras.moment, ras.gpus) == (1, Moment(3600), (0, 1))
    assert hot.margin_celsius == 3
    assert (down.source, down.gpus, down.span) == ("simulated", (), Span(60, 120))


def test_the_settings_of_a_fault(path: Path) -> None:
    path.write_text(
        'gpus = 1\n[[workload]]\nshape = "training"\nleak = "2GiB"\n'
        '[[fault]]\nkind = "nvlink_errors"\nlinks = [3, 1]\ntype = "crc_flit"\nrate = 0.5\n'
        '[[fault]]\nkind = "pcie_degraded"\ngeneration = 1\nwidth = 4\nstop = 60\n'
        '[[fault]]\nkind = "hot"\nmargin = 5\n'
        '[[fault]]\nkind = "source_down"\nsource = "simulated_pods"\n'
    )
    scenario = load_scenario(path)
    assert scenario.workloads[0].leak_mib == 2048
    errors, degraded, hot, down = scenario.faults
    assert (errors.links, errors.type, errors.rate) == ((1, 3), "crc_flit", 0.5)
    assert (degraded.generation, degraded.width, degraded.span) == (1, 4, Span(0, 60))
    assert hot.margin_celsius == 5
    assert down.source == "simulated_pods"


def test_fewer_gpus_than_the_file_names_is_an_error(path: Path) -> None:
    path.write_text('gpus = 4\n[[workload]]\nshape = "training"\ngpus = [3]\n')
    with pytest.raises(ScenarioError) as error:
        load_scenario(path, gpus=2)
    assert missing(str(error.value), f"{path}: workload 1: gpus: ", "GPU 3", "0 to 1") == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpus = ", "is not TOML: "),
        ("gpu = 4", "gpu: ... gpus, model, seed, "),
        ('"a\\nb" = 4', "'a\\nb': is not known; "),
        ("gpus = 0", "gpus: 0 ... 1 to 1024"),
        ("gpus = 1025", "gpus: 1025 ... 1 to 1024"),
        ("gpus = true", "gpus: True ... 1 to 1024"),
        ("seed = 1.5", "seed: 1.5 ... a whole number"),
        ('model = "voodoo2"', f"model 'voodoo2' ... {', '.join(MODEL_NAMES)}"),
        ("model = 7", "model: 7 ... the name of a model, or a list with one for each"),
        ("model = []", "model: [] ... the name of a model, or a list"),
        (
            'gpus = 3\nmodel = ["h100", "t4"]',
            "model: 2 models are not one for each of 3 GPUs",
        ),
        ('model = ["h100", "voodoo2"]', "model 'voodoo2' ... "),
        (
            'model = ["h100", "t4"]\npower_limit = 300',
            "power_limit: 300 W is not allowed on Tesla T4; allowed: 60 to 70",
        ),
        (
            'model = "mi300x"\npower_limit = 133',
            "power_limit: 133 W is not allowed on AMD Instinct MI300X OAM; allowed: 134 to 750",
        ),
        ('driver_version = "new"', "driver_version: 'new' ... numbers with dots"),
        (
            "power_limit = 10",
            "power_limit: 10 W is not allowed on NVIDIA H100 80GB HBM3; allowed: 200 to 700",
        ),
        ("workload = 1", "workload: is not a list of tables; write [[workload]]"),
        ("[[workload]]", "workload 1: shape: is missing"),
        (
            '[[workload]]\nshape = "mining"',
            "workload 1: shape: 'mining' ... allowed: training, inference, notebook, unrequested, hang, idle",
        ),
        (
            '[[workload]]\nshape = "idle"\n[[workload]]\nshape = "idle"\nspeed = 1',
            "workload 2: speed: ... shape, gpus, start, ",
        ),
        (
            '[[workload]]\nshape = "idle"\ngpus = 3',
            'workload 1: gpus: 3 ... "all", or a list',
        ),
        (
            '[[workload]]\nshape = "idle"\ngpus = [8]',
            "workload 1: gpus: there is no GPU 8 here; allowed: 0 to 7",
        ),
        ('[[workload]]\nshape = "idle"\ngpus = []', "workload 1: gpus: [] ... "),
        (
            '[[workload]]\nshape = "idle"\nstart = -1',
            "workload 1: start: -1 ... whole seconds",
        ),
        ('[[workload]]\nshape = "idle"\nstart = "5 m"', "workload 1: start: '5 m' ... "),
        ('[[workload]]\nshape = "idle"\nstart = ""', "workload 1: start: '' ... "),
        (
            '[[workload]]\nshape = "idle"\nstart = 5\nstop = 5',
            "workload 1: stop: 5 s is not after start (5 s)",
        ),
        ('[[workload]]\nshape = "idle"\nevery = "1h"', "workload 1: every: needs a stop as well"),
        (
            '[[workload]]\nshape = "idle"\nstop = 10\nevery = 7',
            "workload 1: every: 7 s does not divide a day; allowed: such as 10m, 1h, 6h or 1d",
        ),
        (
            '[[workload]]\nshape = "idle"\nstop = "2h"\nevery = "1h"',
            "workload 1: every: 3600 s is shorter than what it repeats (7200 s)",
        ),
        ('[[workload]]\nshape = "idle"\ncount = 0', "workload 1: count: 0 ... 1 to 100"),
        (
            '[[workload]]\nshape = "idle"\nmemory = 5',
            "workload 1: memory: 5 ... such as",
        ),
        (
            '[[workload]]\nshape = "idle"\nmemory = "101%"',
            "workload 1: memory: '101%' ... at",
        ),
        *(
            (
                f'[[workload]]\nshape = "training"\nleak = {leak!r}',
                f"workload 1: leak: {leak!r} ... such as",
            )
            for leak in ("5%", 5, "much")
        ),
        (
            '[[workload]]\nshape = "idle"\nleak = "1GiB"',
            "workload 1: leak: without a process nothing leaks",
        ),
        (
            'model = "mi300x"\n[[workload]]\nshape = "training"\nkind = "mps"',
            "workload 1: kind: mps is NVIDIA's",
        ),
        (
            '[[workload]]\nshape = "idle"\nload = "2GiB"',
            "workload 1: load: '2GiB' ... a share",
        ),
        (
            '[[workload]]\nshape = "idle"\nload = "0%"',
            "workload 1: load: 0 ... 1 to 100",
        ),
        (
            '[[workload]]\nshape = "idle"\nname = "a\\nb"',
            "workload 1: name: 'a\\nb' ... text on",
        ),
        (
            '[[workload]]\nshape = "idle"\nkind = "vulkan"',
            "workload 1: kind: 'vulkan' ... compute, graphics, mps",
        ),
        (
            '[[workload]]\nshape = "idle"\nvideo = 1',
            "workload 1: video: 1 ... true, false",
        ),
        (
            '[[workload]]\nshape = "idle"\ninstance = 1',
            "workload 1: instance: GPU 0 has no MIG instance 1; allowed: 0 to 0",
        ),
        (
            '[[workload]]\nshape = "idle"\npower = "101%"',
            "workload 1: power: 101 ... 1 to 100",
        ),
        *(
            (
                f'[[workload]]\nshape = "idle"\npod = "{pod}"',
                f"workload 1: pod: {pod!r} ... namespace/name, such as",
            )
            for pod in ("b", "a/", "/b", "a/B", "a/b/c", "a{run}/b_", "-/b", "a/b-", "a" * 64 + "/b")
        ),
        (
            '[[workload]]\nshape = "idle"\npod = 7',
            "workload 1: pod: 7 ... namespace/name, such as",
        ),
        (
            '[[workload]]\nshape = "idle"\npod = "{run}/b"',
            "workload 1: pod: '{run}/b' ... namespace/name, such as",
        ),
        (
            '[[workload]]\nshape = "idle"\npod = "a/b"\ncontainer = "C"',
            "workload 1: container: 'C' ... the name of a container",
        ),
        (
            '[[workload]]\nshape = "idle"\npod = "a/b"\ncontroller = "pretrain"',
            "workload 1: controller: 'pretrain' ... Kind/name, such as",
        ),
        (
            '[[workload]]\nshape = "idle"\npod = "a/b"\nrequested = 1',
            "workload 1: requested: 1 ... true, false",
        ),
        *(
            (f'[[workload]]\nshape = "idle"\n{key}', f"workload 1: {key.split()[0]}: needs a pod as well")
            for key in ('container = "main"', 'controller = "Job/a"', "requested = true")
        ),
        (
            '[[workload]]\nshape = "training"\npod = "a/b"\nowner = "slurm/1"',
            "workload 1: owner: is the pod already",
        ),
        (
            '[[workload]]\nshape = "training"\nowner = "pod/b"',
            "workload 1: owner: 'pod/b' ... "
            'allowed: kind/name, such as "slurm/42", of docker, podman, slurm, service, session, process',
        ),
        (
            '[[workload]]\nshape = "training"\nowner = "slurm/"',
            "workload 1: owner: 'slurm/' ... ",
        ),
        ('[[workload]]\nshape = "training"\nowner = [1]', "workload 1: owner: [1] ... "),
        (
            '[[workload]]\nshape = "idle"\nowner = "slurm/1"',
            "workload 1: owner: without a process only a pod can hold a GPU",
        ),
        ("[[fault]]", "fault 1: kind: is missing"),
        (
            '[[fault]]\nkind = "fire"',
            "fault 1: kind: 'fire' ... xid, ecc, throttle, lost, ",
        ),
        ('[[fault]]\nkind = "xid"\nat = 1', "fault 1: code: is missing"),
        ('[[fault]]\nkind = "xid"\ncode = 31', "fault 1: at: is missing"),
        ('[[fault]]\nkind = "xid"\ncode = 0\nat = 1', "fault 1: code: 0 ... 1 to 999"),
        (
            '[[fault]]\nkind = "xid"\ncode = 31\nat = 1\nstart = 2',
            "fault 1: start: ... kind, gpus, at, every, code",
        ),
        ('[[fault]]\nkind = "ecc"\nat = 1', "fault 1: needs corrected or uncorrected, at least 1"),
        (
            '[[fault]]\nkind = "ecc"\nat = 1\ncorrected = -1',
            "fault 1: corrected: -1 ... a whole",
        ),
        (
            '[[fault]]\nkind = "ecc"\nat = 1\ncorrected = 1\nlocation = "sky"',
            "fault 1: location: 'sky' ... device_memory, l2_cache",
        ),
        (
            'model = "rtx4090"\n[[fault]]\nkind = "ecc"\nat = 1\ncorrected = 1',
            "fault 1: kind: ecc ... NVIDIA GeForce RTX 4090 has no ECC",
        ),
        ('[[fault]]\nkind = "throttle"', "fault 1: reason: is missing"),
        (
            '[[fault]]\nkind = "throttle"\nreason = "gpu_idle"',
            "fault 1: reason: 'gpu_idle' ... applications_clocks_setting, ",
        ),
        (
            '[[fault]]\nkind = "lost"\nat = 5',
            "fault 1: at: ... kind, gpus, start, stop, every",
        ),
        (
            'model = "gtx1080ti"\n[[fault]]\nkind = "row_remap_pending"',
            "fault 1: kind: row_remap_pending ... NVIDIA GeForce GTX 1080 Ti has no spare memory rows",
        ),
        ('[[fault]]\nkind = "nvlink_down"', "fault 1: links: is missing"),
        (
            '[[fault]]\nkind = "nvlink_down"\nlinks = [18]',
            "fault 1: links: there is no link 18; allowed: 0 to 17",
        ),
        (
            'model = "t4"\n[[fault]]\nkind = "nvlink_down"\nlinks = [0]',
            "fault 1: kind: nvlink_down ... Tesla T4 has no NVLink",
        ),
        (
            '[[fault]]\nkind = "recovery"\naction = "pray"',
            "fault 1: action: 'pray' ... none, gpu_reset, node_reboot, ",
        ),
        (
            'model = "t4"\n[[fault]]\nkind = "recovery"\naction = "gpu_reset"',
            "fault 1: kind: recovery ... Tesla T4 has no recovery action",
        ),
        (
            'model = "t4"\n[[fault]]\nkind = "row_remap_failure"',
            "fault 1: kind: row_remap_failure ... Tesla T4 has no spare memory rows",
        ),
        ('[[fault]]\nkind = "nvlink_errors"\nlinks = [0]', "fault 1: type: is missing"),
        ('[[fault]]\nkind = "fabric"', "fault 1: problem: is missing"),
        (
            'model = "l40s"\n[[fault]]\nkind = "fabric"\nproblem = "failed"',
            "fault 1: kind: fabric cannot be, NVIDIA L40S has no NVLink fabric",
        ),
        (
            'model = "h100"\n[[fault]]\nkind = "fabric"\nproblem = "route_unhealthy"',
            "fault 1: problem: 'route_unhealthy' is not known; allowed: not_completed, failed",
        ),
        (
            '[[fault]]\nkind = "nvlink_errors"\nlinks = [0]\ntype = "crc_flit"',
            "fault 1: rate: is missing",
        ),
        (
            '[[fault]]\nkind = "nvlink_errors"\nlinks = [0]\ntype = "receive"\nrate = 1',
            "fault 1: type: 'receive' ... replay, recovery, crc_flit, crc_data",
        ),
        (
            '[[fault]]\nkind = "nvlink_errors"\nlinks = [18]\ntype = "replay"\nrate = 1',
            "fault 1: links: there is no link 18; allowed: 0 to 17",
        ),
        *(
            (
                f'[[fault]]\nkind = "pcie_replays"\nrate = {rate}',
                "fault 1: rate: ",
            )
            for rate in ("0", "-1", "1001", "nan", "true", '"1"')
        ),
        ('[[fault]]\nkind = "pcie_degraded"', "fault 1: needs generation or width"),
        (
            '[[fault]]\nkind = "pcie_degraded"\ngeneration = 6',
            "fault 1: generation: 6 ... 1 to 5",
        ),
        (
            '[[fault]]\nkind = "pcie_degraded"\nwidth = 3',
            "fault 1: width: 3 ... 1, 2, 4, 8, 12, 16",
        ),
        ('[[fault]]\nkind = "hot"\nmargin = 21', "fault 1: margin: 21 ... 0 to 20"),
        (
            'model = "gtx1080ti"\n[[fault]]\nkind = "energy_stuck"',
            "fault 1: kind: energy_stuck ... NVIDIA GeForce GTX 1080 Ti has no energy counter",
        ),
        (
            '[[fault]]\nkind = "source_down"\ngpus = [0]',
            "fault 1: gpus: ... kind, start, stop, every, source",
        ),
        (
            '[[fault]]\nkind = "source_down"\nsource = "kubelet"',
            "fault 1: source: 'kubelet' ... simulated, simulated_pods",
        ),
        (
            '[[fault]]\nkind = "ras"\nat = 1\nblock = "umc"\ntype = "corrected"',
            "fault 1: kind: ras ... NVIDIA H100 80GB HBM3 has no RAS errors",
        ),
        ('[[fault]]\nkind = "ras"\nat = 1\ntype = "corrected"', "fault 1: block: is missing"),
        ('[[fault]]\nkind = "ras"\nat = 1\nblock = "umc"', "fault 1: type: is missing"),
        (
            'model = "mi210"\n[[fault]]\nkind = "ras"\nat = 1\nblock = "pcie_bif"\ntype = "corrected"',
            "fault 1: block: 'pcie_bif' ... gfx, mmhub, sdma, umc",
        ),
        (
            'model = "mi210"\n[[fault]]\nkind = "ras"\nat = 1\nblock = "umc"\ntype = "deferred"',
            "fault 1: type: 'deferred' ... uncorrected, corrected",
        ),
        (
            'model = "mi210"\n[[fault]]\nkind = "ras"\nat = 1\nblock = "umc"\ntype = "corrected"\ncount = 0',
            "fault 1: count: 0 ... a whole number, 1 to 1000000",
        ),
        (
            'model = "mi210"\n[[fault]]\nkind = "xgmi_down"\nlinks = [0]',
            "fault 1: kind: xgmi_down ... AMD Instinct MI210 has no XGMI links",
        ),
        (
            'model = "mi300x"\n[[fault]]\nkind = "xid"\nat = 1\ncode = 79',
            "fault 1: kind: xid ... AMD Instinct MI300X OAM has no XID errors",
        ),
        (
            'model = "mi300x"\n[[fault]]\nkind = "ecc"\nat = 1\ncorrected = 1',
            "fault 1: kind: ecc ... AMD Instinct MI300X OAM has no ECC by location: take ras",
        ),
        (
            'model = "mi300x"\n[[fault]]\nkind = "nvlink_down"\nlinks = [0]',
            "fault 1: kind: nvlink_down ... AMD Instinct MI300X OAM has no NVLink",
        ),
        (
            'model = "mi300x"\n[[fault]]\nkind = "throttle"\nreason = "hw_power_brake_slowdown"',
            "fault 1: reason: 'hw_power_brake_slowdown' ... sw_power_cap, hw_slowdown, ",
        ),
        (
            'model = ["h100", "mi300x"]\n[[fault]]\nkind = "xid"\nat = 1\ncode = 79',
            "fault 1: kind: xid ... AMD Instinct MI300X OAM has no XID errors",
        ),
        ('model = "mi300x"\n[[mig]]\nprofiles = ["1g.5gb"]', "mig 1: AMD Instinct MI300X OAM has no MIG"),
        ("[[mig]]", "mig 1: profiles: is missing"),
        ("[[mig]]\nprofiles = 7", "mig 1: profiles: 7 ... a list of texts"),
        ("[[mig]]\nprofiles = []", "mig 1: profiles: needs at least one; allowed: 1g.10gb, 1g.20gb, "),
        (
            '[[mig]]\nprofiles = ["1g.5gb"]',
            "mig 1: profiles: '1g.5gb' is not known; "
            "allowed: 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
        ),
        (
            '[[mig]]\nprofiles = ["4g.40gb", "4g.40gb"]',
            "mig 1: profiles: at most 1 of 4g.40gb fit on one GPU",
        ),
        (
            '[[mig]]\nprofiles = ["3g.40gb", "3g.40gb", "2g.20gb"]',
            "mig 1: profiles: 3g.40gb + 3g.40gb + 2g.20gb do not fit on one GPU",
        ),
        ('model = "l4"\n[[mig]]\nprofiles = ["1g.10gb"]', "mig 1: NVIDIA L4 has no MIG mode"),
        (
            '[[mig]]\ngpus = [0]\nprofiles = ["7g.80gb"]\n[[mig]]\nprofiles = ["7g.80gb"]',
            "mig 2: gpus: GPU 0 has a layout already",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_location_and_value(
    path: Path, text: str, complaint: str
) -> None:
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(path)
    message = str(error.value)
    where, *terms = complaint.split(" ... ")
    assert message.startswith(f"{path}: {where}")
    assert missing(message, *terms) == []
    assert "\n" not in message


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(path)
    assert missing(str(error.value), f"{path}: ", "No such file") == []


def test_a_binary_file_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError) as error:
        load_scenario(path)
    assert str(error.value) == f"{path}: is not UTF-8 text"


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_KEYS = sorted({*_TOP, *_WORKLOAD, *_MIG, "at", *(key for keys in _FAULT.values() for key in keys)})
_words = st.sampled_from(
    [
        "training",
        "xid",
        "ecc",
        "throttle",
        "lost",
        "nvlink_down",
        "recovery",
        "ras",
        "hot",
        "pcie_degraded",
        "nvlink_errors",
        "source_down",
        "fabric",
        "degraded_bandwidth",
        "umc",
        "corrected",
        "1GiB",
        "mi300x",
        "all",
        "1h",
        "50%",
        "7g.80gb",
        "h100",
    ]
)
_table = st.dictionaries(st.sampled_from(_KEYS), _anything | _words | st.integers(0, 9), max_size=6)


@given(
    _table, st.fixed_dictionaries({}, optional={k: st.lists(_table) for k in ("workload", "fault", "mig")})
)
def test_any_tables_are_a_scenario_or_a_scenario_error(top: dict[str, Any], lists: dict[str, Any]) -> None:
    try:
        scenario = parse_scenario(top | lists)
    except ScenarioError as error:
        assert "\n" not in str(error)
    else:
        assert 1 <= scenario.gpus <= 1024
