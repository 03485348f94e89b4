"""Clients of the driver: what their files say, whose they are, and how seldom the others are looked at."""

import errno
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.fdinfo import (
    Client,
    ClientScan,
    Opened,
    Scan,
    Task,
    join_holders,
    parse_fdinfo,
    parse_task,
)
from tests.unit.devices.amdgpu.fake_host import MIB, SECOND_NS, FakeHost, fdinfo

CARD = "0000:c1:00.0"
Errors = Counter[tuple[str, str]]


def parse(text: str) -> Client | None:
    return parse_fdinfo(text.encode())


def test_older_kernels_report_memory_and_engines() -> None:
    text = fdinfo(
        217,
        drm_memory_vram="2068 KiB",
        drm_memory_gtt="8192 KiB",
        drm_memory_cpu="0 KiB",
        amd_memory_visible_vram="2068 KiB",
        drm_engine_gfx="107322799 ns",
        drm_engine_enc_1="5 ns",
    ).replace("drm-engine-enc-1", "drm-engine-enc_1")
    assert parse(text) == Client(
        CARD,
        217,
        engine_ns={"gfx": 107322799, "enc_1": 5},
        memory_bytes={"vram": 2068 << 10, "gtt": 8192 << 10, "cpu": 0},
    )


def test_newer_kernels_report_resident_memory() -> None:
    text = fdinfo(
        3,
        drm_total_vram="96 MiB",
        drm_shared_vram="16 MiB",
        drm_resident_vram="64 MiB",
        drm_purgeable_vram="1 MiB",
        drm_memory_vram="65536 KiB",
        drm_total_gtt="1 GiB",
        drm_resident_cpu="4096",
    )
    client = parse(text)
    assert client is not None
    assert client.memory_bytes == {"vram": 64 * MIB, "gtt": 1 << 30, "cpu": 4096}


def test_engines_with_several_units() -> None:
    client = parse(fdinfo(3, drm_engine_dec="7 ns", drm_engine_capacity_dec="2", drm_engine_capacity_enc="0"))
    assert client is not None
    assert (client.engine_ns, client.capacity) == ({"dec": 7}, {"dec": 2})


def test_two_generations_of_one_engine_are_summed() -> None:
    client = parse(fdinfo(3) + "drm-engine-dec: 7 ns\ndrm-engine-dec: 5 ns\n")
    assert client is not None
    assert client.engine_ns == {"dec": 12}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pos:\t0\nflags:\t02\n",
        fdinfo(1).replace("amdgpu", "i915"),
        fdinfo(1).replace("drm-client-id", "drm-client-name"),
        fdinfo(-1),
        fdinfo(1, address="platform:gpu"),
        fdinfo(1, address=""),
    ],
)
def test_other_files_are_not_clients_of_this_driver(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("value", ["-5 ns", "5", "five ns", "5 s", "", "99999999999999999999999 ns", "٣ ns"])
def test_an_invalid_time_is_ignored(value: str) -> None:
    client = parse(fdinfo(1, drm_engine_gfx=value))
    assert client is not None
    assert client.engine_ns == {"gfx": 0}


@pytest.mark.parametrize("value", ["-5 KiB", "5 XiB", "much", ""])
def test_invalid_memory_is_unknown(value: str) -> None:
    client = parse(fdinfo(1, drm_memory_vram=value))
    assert client is not None
    assert client.memory_bytes == {}


LINES = st.tuples(
    st.sampled_from(
        [
            "drm-driver",
            "drm-pdev",
            "drm-client-id",
            "drm-engine-gfx",
            "drm-engine-capacity-gfx",
            "drm-memory-vram",
        ]
    )
    | st.text(max_size=12),
    st.sampled_from([":", "", "::", ":\t"]),
    st.sampled_from(["amdgpu", CARD, "7", "5 ns", "3 KiB", "-1", "9" * 5000]) | st.text(max_size=12),
).map("".join)


@given(st.binary(max_size=300) | st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode()))
def test_any_text_is_parsed_without_an_error(text: bytes) -> None:
    client = parse_fdinfo(text)
    if client is not None:
        assert all(ns >= 0 for ns in client.engine_ns.values())
        assert all(many > 0 for many in client.capacity.values())
        assert all(size >= 0 for size in client.memory_bytes.values())


@given(st.integers(0, 2**64 - 1), st.dictionaries(st.sampled_from(["gfx", "dec"]), st.integers(0, 2**63)))
def test_the_format_of_the_driver_is_parsed(client_id: int, engines: dict[str, int]) -> None:
    text = fdinfo(client_id, **{f"drm_engine_{name}": f"{ns} ns" for name, ns in engines.items()})
    assert parse(text) == Client(CARD, client_id, engine_ns=engines)


@given(st.text(max_size=20), st.integers(0, 2**63))
def test_a_process_name_may_contain_any_character(name: str, started: int) -> None:
    stat = f"7 ({name}) S {' '.join('0' * 18)} {started} 3 4\n".encode()
    task = parse_task(7, stat)
    assert task == Task(7, started, "")
    assert task.name == name


@given(st.binary(max_size=80))
def test_any_stat_is_parsed_without_an_error(text: bytes) -> None:
    parse_task(7, text)


# Whose a client is.

PARENT, CHILD = Task(500, 100, "train"), Task(400, 200, "worker")
LOGIND, COMPOSITOR = Task(300, 50, "systemd-logind"), Task(900, 80, "gnome-shell")


def test_a_client_inherited_by_a_fork_counts_once_for_the_older_process() -> None:
    client = Client(CARD, 1)
    (held,) = join_holders([Opened(client, CHILD), Opened(client, PARENT, 128), Opened(client, PARENT)])
    assert (held.owner, held.holders, held.render_minor) == (PARENT, frozenset({PARENT, CHILD}), 128)


def test_a_client_passed_on_by_a_broker_counts_for_its_user() -> None:
    client = Client(CARD, 1)
    (held,) = join_holders([Opened(client, LOGIND), Opened(client, COMPOSITOR)])
    assert held.owner == COMPOSITOR
    (held,) = join_holders([Opened(client, LOGIND)])
    assert held.owner == LOGIND


def test_clients_of_two_cards_may_have_the_same_id() -> None:
    held = join_holders([Opened(Client(CARD, 1), PARENT), Opened(Client("0000:c2:00.0", 1), PARENT)])
    assert len(held) == 2


def test_a_client_is_new_only_if_no_process_can_have_had_it_before() -> None:
    client = Client(CARD, 1)
    both = [Opened(client, PARENT, fresh=True), Opened(client, CHILD, fresh=False)]
    assert [held.fresh for held in join_holders(both)] == [False]
    assert [held.fresh for held in join_holders(both[:1])] == [True]


# Who is looked at, and when.


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


class Scanner:
    """Scans, and tells which processes were looked at."""

    def __init__(self, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: Errors = Counter()
        self.looked_at: list[int] = []
        self._scan = ClientScan(host.procfs, self.errors)
        real = os.open

        def open_(path: str, *args: int, **kwargs: int) -> int:
            directory = Path(path)
            if directory.name == "fd":
                self.looked_at.append(int(directory.parent.name))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", open_)

    def scan(self, at_seconds: float, always: tuple[int, ...] = ()) -> Scan:
        self.looked_at.clear()
        scan = self._scan.scan(round(at_seconds * SECOND_NS), always)
        assert scan is not None
        self.looked_at.sort()
        return scan


@pytest.fixture
def scanner(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    return Scanner(host, monkeypatch)


def test_processes_without_a_gpu_are_scanned_every_30_seconds(host: FakeHost, scanner: Scanner) -> None:
    host.starts(30)  # 30 % 30: due again after one second, then every 30
    host.starts(59)  # due again after 30
    host.starts(77)
    host.runs(77, 1, gfx=5)
    seen = []
    for at in (0, 0.5, 1, 2, 29, 30, 31):
        scanner.scan(at)
        seen.append(list(scanner.looked_at))
    assert seen == [[30, 59, 77], [77], [30, 77], [77], [77], [59, 77], [30, 77]]


def test_named_processes_are_always_scanned(host: FakeHost, scanner: Scanner) -> None:
    host.starts(59)
    scanner.scan(0)
    scan = scanner.scan(1, always=(59, 60))
    assert scanner.looked_at == [59]
    assert scan.tasks == {59: Task(59, 1000, "python3")}


def test_a_new_process_is_scanned_even_with_an_old_pid(host: FakeHost, scanner: Scanner) -> None:
    host.starts(59, started=1000)
    scanner.scan(0)
    host.starts(59, started=2000)
    host.runs(59, 8, gfx=5)
    host.starts(60)
    scan = scanner.scan(1)
    assert scanner.looked_at == [59, 60]
    assert [held.owner for held in scan.held] == [Task(59, 2000, "python3")]


def test_a_client_that_may_have_run_before_is_not_new(host: FakeHost, scanner: Scanner) -> None:
    host.starts(59)
    host.starts(77)
    host.runs(77, 1, gfx=5)
    assert [held.fresh for held in scanner.scan(0).held] == [False], "the first look knows nothing"
    host.starts(88)
    host.runs(88, 2, gfx=5)
    host.runs(77, 3, gfx=5)
    host.runs(59, 4, gfx=5)
    fresh = {held.client.client_id: held.fresh for held in scanner.scan(10).held}
    assert fresh == {1: True, 2: True, 3: True}
    scan = scanner.scan(31)
    assert {held.client.client_id: held.fresh for held in scan.held}[4] is False


@pytest.mark.parametrize(
    ("device", "minor"),
    [
        ("/dev/dri/renderD130", 130),
        ("/dev/dri/card1", None),
        ("/dev/dri/renderD130 (deleted)", 130),
        ("/var/lib/lxc/box/rootfs/dev/dri/renderD130", 130),
    ],
)
def test_devices_of_cards_are_recognised_by_name(
    host: FakeHost, scanner: Scanner, device: str, minor: int | None
) -> None:
    host.starts(77)
    host.opens(77, 3, fdinfo(1), device)
    assert [held.render_minor for held in scanner.scan(0).held] == [minor]


@pytest.mark.parametrize("device", ["/dev/null", "/home/me/dri/renderD128.txt", "socket:[1]", "/dev/kfd.log"])
def test_other_files_are_not_read(host: FakeHost, scanner: Scanner, device: str) -> None:
    host.starts(59)
    host.opens(59, 3, fdinfo(1), device)
    assert scanner.scan(0).held == ()
    scanner.scan(1)
    assert scanner.looked_at == []


def test_kfd_is_not_a_client_but_its_process_is_scanned(host: FakeHost, scanner: Scanner) -> None:
    host.starts(59)
    host.opens(59, 3, "pos:\t0\n", "/dev/kfd")
    assert scanner.scan(0).held == ()
    scanner.scan(1)
    assert scanner.looked_at == [59]


def test_an_empty_procfs_is_unavailable(host: FakeHost) -> None:
    assert ClientScan(host.procfs, Counter()).scan(0, ()) is None
    assert ClientScan(host.procfs / "nowhere", Counter()).scan(0, ()) is None


def deny(monkeypatch: pytest.MonkeyPatch, pid: int, code: int) -> None:
    real = os.open

    def open_(path: str, *args: int, **kwargs: int) -> int:
        if f"/{pid}/fd" in str(path):
            raise OSError(code, os.strerror(code), path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)


def test_denied_processes_are_one_error_per_sample(
    host: FakeHost, scanner: Scanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (58, 59, 77):
        host.starts(pid)
    host.runs(77, 1, gfx=5)
    deny(monkeypatch, 58, errno.EACCES)
    deny(monkeypatch, 59, errno.EACCES)
    scans = [scanner.scan(at) for at in (0, 1, 2)]
    assert all(scan.denied and len(scan.held) == 1 for scan in scans)
    assert scanner.errors == {("fdinfo", "permission"): 3}


@pytest.mark.parametrize(("code", "counted"), [(errno.EIO, 1), (errno.ENOENT, 0), (errno.ESRCH, 0)])
def test_a_process_that_cannot_be_scanned_once_is_scanned_again(
    host: FakeHost, scanner: Scanner, monkeypatch: pytest.MonkeyPatch, code: int, counted: int
) -> None:
    host.starts(77)
    host.runs(77, 1, gfx=5)
    scanner.scan(0)
    with monkeypatch.context() as patch:
        deny(patch, 77, code)
        assert scanner.scan(1).held == ()
    assert len(scanner.scan(2).held) == 1
    assert sum(scanner.errors.values()) == counted


def test_links_without_permission_count_as_denied(
    host: FakeHost, scanner: Scanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.starts(77)
    host.runs(77, 1, gfx=5)
    scanner.scan(0)

    def readlink(path: str, *, dir_fd: int) -> str:
        raise PermissionError(errno.EACCES, "denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", readlink)
        assert scanner.scan(1) == Scan((), {77: Task(77, 1000, "python3")}, {77: None}.keys(), denied=True)
    assert scanner.errors == {("fdinfo", "permission"): 1}
    scan = scanner.scan(2)
    assert (len(scan.held), scan.denied) == (1, False)


def test_files_that_disappear_while_they_are_read_are_not_an_error(host: FakeHost, scanner: Scanner) -> None:
    host.starts(77)
    host.runs(77, 1, gfx=5)
    host.runs(77, 2, gfx=5)
    (host.procfs / "77/fdinfo/41").unlink()
    assert [held.client.client_id for held in scanner.scan(0).held] == [2]
    (host.procfs / "77/stat").unlink()
    assert scanner.scan(1).held == ()
    assert scanner.errors == {}


def test_a_real_procfs_is_scanned_without_an_error() -> None:
    scan = ClientScan(Path("/proc"), Counter()).scan(0, (os.getpid(),))
    assert scan is not None
    assert os.getpid() in scan.pids
    assert scan.tasks[os.getpid()].started_ticks > 0
