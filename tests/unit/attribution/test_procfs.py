"""Processes: generated files, and real processes in real cgroups."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import CgroupOwner
from gputally.attribution.procfs import (
    ProcessFacts,
    Stat,
    parse_real_uid,
    parse_stat,
    read_process,
    read_start_time,
    sees_host,
)
from gputally.model import Unknown
from tools import Missing
from tools.servers.waiting import wait_until

PROC = Path("/proc")
UID = "9493223b-520e-4a97-a45f-359dcf967006"
ID = "25d057a4c6c9555f2a0eb106e8896968c28f1c44aca4754174851aca7f89ad26"
OTHER_ID = "65d752a38e1db784d521f48c3f1956f4f9a74ebb923377144f253f3aca9fa028"
POD_CGROUP = f"0::/kubepods/burstable/pod{UID}/{ID}\n".encode()
EXITING = 0x4
ROOT = b"Name:\tpython3\nUid:\t0\t0\t0\t0\n"


def stat_line(
    name: bytes = b"python3",
    state: str = "S",
    *,
    flags: int = 0x400000,
    threads: int = 1,
    started: int = 728037,
) -> bytes:
    before_threads = f"1 42 42 0 -1 {flags} 5 6 7 8 9 10 11 12 20 0"
    return b"42 (" + name + f") {state} {before_threads} {threads} 0 {started} 1000 200\n".encode()


# What the files say.


@pytest.mark.parametrize(
    "name",
    [b"python3", b"a b", b"x) R (y", b"(((", b")", b"", b"tmux: server", b"two\nlines", b") Z 1 1 1 1 1"],
)
def test_a_process_name_may_contain_any_character(name: bytes) -> None:
    assert parse_stat(stat_line(name, "R", threads=7)) == Stat(name.decode(), "R", 0x400000, 7, 728037)


@given(st.binary(max_size=64), st.sampled_from("RSDZTtXI"), st.integers(0, 2**64), st.integers(0, 10**6))
def test_every_valid_stat_is_parsed(name: bytes, state: str, started: int, threads: int) -> None:
    stat = parse_stat(stat_line(name, state, threads=threads, started=started))
    assert stat == Stat(name.decode("utf-8", "replace"), state, 0x400000, threads, started)


@given(st.one_of(st.binary(), st.text("0123456789() SZ\n-").map(str.encode)))
def test_random_bytes_are_not_a_stat(text: bytes) -> None:
    stat = parse_stat(text)
    assert stat is None or (b"(" in text and str(stat.start_time_ticks) in text.decode("ascii", "replace"))
    parse_real_uid(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"42",
        b"42 python3 S 1 2 3",
        stat_line()[:60],
        stat_line(threads=-1),
        stat_line(started=-1),
        stat_line(state="sleeping"),
        b"x" + stat_line(),
    ],
)
def test_a_malformed_stat_is_none(text: bytes) -> None:
    assert parse_stat(text) is None


def test_the_first_thread_may_exit_before_the_process() -> None:
    alone, leader = parse_stat(stat_line(state="Z", threads=1)), parse_stat(stat_line(state="Z", threads=3))
    assert alone is not None
    assert leader is not None
    assert (alone.ended, leader.ended) == (True, False)
    assert leader.exiting


def test_the_real_user_is_read() -> None:
    assert parse_real_uid(b"Name:\tUid: 7\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n") == "1000"
    assert parse_real_uid(b"Name:\tpython3\n") == ""


# What is done with them, on a /proc of our own.


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Path]:
    def write(stat: bytes = stat_line(), cgroup: bytes = POD_CGROUP, **others: bytes) -> Path:
        folder = tmp_path / "42"
        for name, text in {"stat": stat, "cgroup": cgroup, **others}.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
        return tmp_path

    return write


def test_a_process_of_a_pod(process: Callable[..., Path]) -> None:
    root = process()
    assert read_process(root, 42) == ProcessFacts(42, 728037, "python3", CgroupOwner("pod", UID, ID))
    assert read_start_time(root, 42) == 728037


@pytest.mark.parametrize(
    ("stat", "cgroup", "reason"),
    [
        (stat_line(state="Z"), POD_CGROUP, "zombie"),
        (stat_line(state="X", threads=0), POD_CGROUP, "zombie"),
        (b"garbage", POD_CGROUP, "unreadable"),
        (stat_line(), b"garbage", "unreadable"),
        (stat_line(), b"\xff\xfe\x00", "unreadable"),
        (stat_line(), POD_CGROUP + b"1:cpu:/kubepods/pod" + UID.replace("9", "8").encode(), "ambiguous_pod"),
    ],
)
def test_the_reason_without_an_owner(
    process: Callable[..., Path], stat: bytes, cgroup: bytes, reason: str
) -> None:
    assert read_process(process(stat, cgroup), 42) == Unknown(reason)


def test_a_missing_process_has_exited(tmp_path: Path, process: Callable[..., Path]) -> None:
    assert read_process(tmp_path, 42) == Unknown("exited")
    assert read_start_time(tmp_path, 42) is None
    root = process()
    (root / "42" / "cgroup").unlink()
    assert read_process(root, 42) == Unknown("exited")


def test_an_unreadable_start_time_is_none(process: Callable[..., Path]) -> None:
    assert read_start_time(process(b"garbage"), 42) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied"), "permission"),
        (ProcessLookupError(3, "No such process"), "exited"),
        (OSError(5, "Input/output error"), "unreadable"),
    ],
)
@pytest.mark.parametrize("file", ["stat", "cgroup"])
def test_a_file_that_cannot_be_read(
    process: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, file: str, error: OSError, reason: str
) -> None:
    real_open = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith(file):
            raise error
        return real_open(path, flags)

    root = process()
    monkeypatch.setattr(os, "open", refuse)
    assert read_process(root, 42) == Unknown(reason)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (stat_line(started=728038), "unstable"),
        (b"", "unstable"),
        (stat_line(state="Z"), "zombie"),
    ],
)
def test_a_process_that_changes_while_it_is_read_has_no_owner(
    process: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, second: bytes, reason: str
) -> None:
    root = process()
    real_open = os.open

    def replace_process(path: str, flags: int) -> int:
        if path.endswith("/cgroup"):
            (root / "42" / "stat").write_bytes(second)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", replace_process)
    assert read_process(root, 42) == Unknown(reason)


def test_an_exiting_process_is_not_attributed_to_the_host(process: Callable[..., Path]) -> None:
    # cgroup v1 says "/" of it, cgroup v2 still says the truth.
    ending = stat_line(state="D", flags=0x400000 | EXITING)
    thread = {"task__42__stat": ending}
    assert read_process(process(ending, b"4:memory:/\n0::/\n", **thread), 42) == Unknown("exited")
    assert read_process(process(ending, POD_CGROUP, **thread), 42) == ProcessFacts(
        42, 728037, "python3", CgroupOwner("pod", UID, ID)
    )


def test_a_process_whose_first_thread_has_exited_is_located_by_another_thread(
    process: Callable[..., Path],
) -> None:
    ended = stat_line(state="Z", flags=0x400000 | EXITING, threads=2)
    living = {"task__42__stat": ended, "task__43__stat": stat_line(threads=2), "status": ROOT}
    root_cgroup = b"4:memory:/\n0::/\n"
    root = process(ended, root_cgroup, **living, task__43__cgroup=POD_CGROUP)
    assert read_process(root, 42) == ProcessFacts(42, 728037, "python3", CgroupOwner("pod", UID, ID))
    root = process(ended, root_cgroup, **living, task__43__cgroup=root_cgroup)
    assert read_process(root, 42) == ProcessFacts(42, 728037, "python3", CgroupOwner("process"))


def test_a_thread_that_exits_meanwhile_does_not_hide_the_process(process: Callable[..., Path]) -> None:
    root = process(stat_line(state="Z", threads=2))
    (root / "42" / "task" / "43").mkdir(parents=True)
    assert read_process(root, 42) == ProcessFacts(42, 728037, "python3", CgroupOwner("pod", UID, ID))


def test_the_user_of_a_slurm_job_is_read_if_the_path_has_none(process: Callable[..., Path]) -> None:
    status = b"Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n"
    root = process(cgroup=b"0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", status=status)
    found = read_process(root, 42)
    assert isinstance(found, ProcessFacts)
    assert found.owner == CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="0", user="1000")


def test_where_no_cgroup_has_the_user_the_kernels_user_id_is_the_owner_and_not_the_name(
    process: Callable[..., Path],
) -> None:
    cgroup = b"4:memory:/\n0::/\n"
    for name in (b"python3", b"ollama", b"nvidia-cuda-mps"):
        found = read_process(
            process(stat_line(name=name), cgroup, status=ROOT.replace(b"\t0", b"\t1000")), 42
        )
        assert isinstance(found, ProcessFacts)
        assert found.owner == CgroupOwner("session", name="1000", user="1000")
    found = read_process(process(cgroup=cgroup, status=ROOT), 42)
    assert isinstance(found, ProcessFacts)
    assert found.owner == CgroupOwner("process"), "of root: its programs are the host's"


def test_a_long_file_is_read_completely(process: Callable[..., Path]) -> None:
    filler = b"".join(b"%d:name=c%d:/%s\n" % (n, n, b"x" * 200) for n in range(1000, 0, -1))
    found = read_process(process(cgroup=filler + POD_CGROUP), 42)
    assert isinstance(found, ProcessFacts)
    assert found.owner == CgroupOwner("pod", UID, ID)


def test_if_all_pids_are_missing_the_pid_namespace_differs(process: Callable[..., Path]) -> None:
    root = process()
    assert sees_host(root, [41, 42, 43])
    assert not sees_host(root, [41, 43])
    assert sees_host(root, [])


# Real processes.

LOOK_AT = (
    "import json,sys; from pathlib import Path; from gputally.attribution.procfs import read_process;"
    "p = read_process(Path('/proc'), int(sys.argv[1])); q = getattr(p, 'owner', None);"
    "print(json.dumps([q.kind, q.pod_uid, q.container_id, q.own_pod] if q else [p.reason]))"
)


@contextmanager
def running(code: str = "") -> Iterator[int]:
    """A Python process that has run `code` and then waits."""
    program = f"import sys, time\n{code}\nprint('ready', flush=True)\ntime.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child.pid
        finally:
            child.kill()


@pytest.fixture
def hierarchies() -> Iterator[dict[str, Path]]:
    """A directory of our own in a hierarchy of each version that this machine has, removed afterwards."""
    made: dict[str, Path] = {}
    for line in (PROC / "self" / "mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        kind, folder = source.split()[0], Path(mount.split()[4]) / f"gputally-test-{uuid4().hex}"
        # A cpuset takes no process before it is set up.
        if kind in ("cgroup", "cgroup2") and kind not in made and "cpuset" not in source:
            try:
                folder.mkdir()
            except OSError:
                continue
            made[kind] = folder
    if not made:
        raise Missing("no cgroup can be made: run as root, with a writable /sys/fs/cgroup")
    yield made
    for top in made.values():
        wait_until(lambda top=top: removed(top))  # type: ignore[misc]


def removed(top: Path) -> bool:
    """The kernel needs a moment between the end of a process and its cgroup being free."""
    try:
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return not top.exists()


def move(pid: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text(str(pid))


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"kubepods/burstable/pod{UID}/{ID}", CgroupOwner("pod", UID, ID)),
        (f"kubepods/pod{UID}/{ID}/docker/{OTHER_ID}", CgroupOwner("pod", UID, ID)),
        (
            f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
            CgroupOwner("pod", UID, ID),
        ),
        (
            f"system.slice/containerd.service/kubepods-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
            CgroupOwner("pod", UID, ID),
        ),
        (f"docker/{ID}", CgroupOwner("docker", container_id=ID, name=ID[:12])),
        (
            "slurm/uid_1000/job_42/step_0/task_0",
            CgroupOwner("slurm", name="42", slurm_job="42", slurm_step="0", user="1000"),
        ),
        ("system.slice/ollama.service", CgroupOwner("service", name="ollama.service")),
    ],
)
def test_a_real_process_is_found_in_its_real_cgroup(
    hierarchies: dict[str, Path], path: str, owner: CgroupOwner
) -> None:
    for folder in hierarchies.values():
        with running() as pid:
            before = read_process(PROC, pid)
            move(pid, folder / path)
            found = read_process(PROC, pid)
            assert isinstance(before, ProcessFacts)
            assert isinstance(found, ProcessFacts)
            assert found.owner == owner != before.owner
            assert found.start_time_ticks == before.start_time_ticks == read_start_time(PROC, pid)


def test_a_real_process_in_two_pods_is_refused(hierarchies: dict[str, Path]) -> None:
    with running() as pid:
        for number, folder in enumerate(hierarchies.values(), 1):
            move(pid, folder / f"kubepods/pod{str(number) * 8}{UID[8:]}/{ID}")
        found = read_process(PROC, pid)
    if len(hierarchies) > 1:
        assert found == Unknown("ambiguous_pod")
    else:  # cgroup v2 alone cannot contradict itself
        assert isinstance(found, ProcessFacts)
        assert found.owner.pod_uid == f"11111111{UID[8:]}"


@pytest.mark.parametrize(
    ("of_reader", "found"),
    [
        (f"kubepods/burstable/pod{UID}/{OTHER_ID}", ["pod", "", ID, True]),
        (f"kubepods/burstable/pod{UID.replace('9', '8')}/{OTHER_ID}", ["pod", UID, ID, False]),
        (f"kubepods/pod{UID.replace('9', '8')}/{OTHER_ID}", ["pod", UID, ID, False]),
    ],
)
def test_a_reader_in_its_own_cgroup_namespace_finds_the_pod(
    hierarchies: dict[str, Path], of_reader: str, found: list[object]
) -> None:
    for folder in hierarchies.values():
        home = folder / of_reader
        home.mkdir(parents=True)
        enter = (
            f"import ctypes; open({str(home / 'cgroup.procs')!r}, 'w').write('0');"
            "assert ctypes.CDLL(None).unshare(0x02000000) == 0;"
        )
        with running() as pid:
            move(pid, folder / f"kubepods/burstable/pod{UID}/{ID}")
            look = [sys.executable, "-c", f"{enter} {LOOK_AT}", str(pid)]
            paths = os.pathsep.join(filter(None, sys.path))
            result = subprocess.run(look, capture_output=True, env={"PYTHONPATH": paths}, check=False)
            assert result.returncode == 0, result.stderr
            assert json.loads(result.stdout) == found


def test_a_real_process_whose_first_thread_has_exited(hierarchies: dict[str, Path]) -> None:
    # The system call exit ends one thread; the process goes on with the other.
    end_first_thread = (
        "import ctypes, platform, threading\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)"
    )
    for folder in hierarchies.values():
        with running(end_first_thread) as pid:
            move(pid, folder / f"kubepods/pod{UID}/{ID}")
            wait_until(lambda pid=pid: b") Z " in (PROC / str(pid) / "stat").read_bytes())  # type: ignore[misc]
            found = read_process(PROC, pid)
            assert isinstance(found, ProcessFacts)
            assert found.owner == CgroupOwner("pod", UID, ID)


@pytest.mark.parametrize("name", ["tmux: server", "x) R (y", ")"])
def test_the_name_of_a_real_process(name: str) -> None:
    with running(f"open('/proc/self/comm', 'w').write({name!r})") as pid:
        found = read_process(PROC, pid)
        assert isinstance(found, ProcessFacts)
        assert found.name == name


def test_the_kernel_truncates_the_name_of_the_mps_server() -> None:
    with running("open('/proc/self/comm', 'w').write('nvidia-cuda-mps-server')") as pid:
        found = read_process(PROC, pid)
        assert isinstance(found, ProcessFacts)
        assert found.name == "nvidia-cuda-mps"


def test_real_processes_exit_while_they_are_read() -> None:
    with ExitStack() as children:
        pids = [children.enter_context(subprocess.Popen(["true"])).pid for _ in range(20)]
        looks = [read_process(PROC, pid) for pid in pids]
        assert all(isinstance(look, ProcessFacts) or look.reason in ("zombie", "exited") for look in looks)
        wait_until(lambda: all(read_process(PROC, pid) == Unknown("zombie") for pid in pids))
        assert all(read_start_time(PROC, pid) is not None for pid in pids)
    assert {read_process(PROC, pid) for pid in pids} == {Unknown("exited")}
