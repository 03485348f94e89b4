"""KFD's nodes and processes: on paper, in disorder, and gone while they are read."""

import errno
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.devices.amdgpu.kfd import ComputeUse, Kfd, KfdNode, locate_nodes, parse_properties
from tests.unit.devices.amdgpu.fake_host import FakeHost, location_id

CARD = "0000:c1:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def errors() -> Counter[tuple[str, str]]:
    return Counter()


@pytest.fixture
def kfd(host: FakeHost, errors: Counter[tuple[str, str]]) -> Kfd:
    return Kfd(host.sysfs, errors)


def test_a_host_without_kfd_has_no_processes(kfd: Kfd, errors: Counter[tuple[str, str]]) -> None:
    assert kfd.read() == ((), None)
    assert errors == {}


def test_nodes_are_the_gpus_in_the_order_of_their_numbers(kfd: Kfd, host: FakeHost) -> None:
    host.node(0, 0)  # a CPU
    host.node(10, 111, location_id(0xC2), drm_render_minor=129)
    host.node(2, 222, location_id(0xC1), drm_render_minor=128, gfx_target_version=90402)
    nodes, processes = kfd.read()
    assert nodes == (
        KfdNode(2, 222, 0, location_id(0xC1), render_minor=128, gfx_version=90402),
        KfdNode(10, 111, 0, location_id(0xC2), render_minor=129),
    )
    assert processes == {}


def test_processes_have_their_memory_and_queues(kfd: Kfd, host: FakeHost) -> None:
    host.node(1, 111, location_id(0xC1))
    host.node(2, 222, location_id(0xC2))
    host.computes(4242, 111, vram=1 << 34, occupied=76, queues=2)
    host.computes(4242, 222)
    assert kfd.read()[1] == {4242: {111: ComputeUse(1 << 34, True), 222: ComputeUse(0, False)}}


def test_only_memory_or_queues_put_a_process_on_a_gpu() -> None:
    assert ComputeUse(1, False).resident
    assert ComputeUse(0, True).resident
    assert not ComputeUse(0, False).resident
    assert not ComputeUse(None, None).resident


def test_occupancy_is_where_a_process_has_queues(kfd: Kfd, host: FakeHost) -> None:
    host.node(1, 111, location_id(0xC1))
    host.computes(1, 111, vram=5, queues=1)
    host.computes(2, 111, vram=5)
    processes = kfd.read()[1] or {}
    assert processes[1][111].directories == (f"{host.kfd}/proc/1/stats_111",)
    assert processes[2][111].directories == ()


def test_a_kernel_that_does_not_list_queues(kfd: Kfd, host: FakeHost) -> None:
    host.node(1, 111, location_id(0xC1))
    host.computes(1, 111, vram=5, occupied=3)
    (host.kfd / "proc/1/queues").rmdir()
    (use,) = (kfd.read()[1] or {})[1].values()
    assert (use.queues, len(use.directories)) == (None, 1)


def test_secondary_contexts_belong_to_the_process(kfd: Kfd, host: FakeHost) -> None:
    host.node(1, 111, location_id(0xC1))
    host.computes(7, 111, vram=100, occupied=4, queues=1)
    host.write(host.kfd / "proc/7/context_2/vram_111", "50\n")
    host.write(host.kfd / "proc/7/context_2/stats_111/cu_occupancy", "6\n")
    host.write(host.kfd / "proc/7/context_2/queues/9/gpuid", "111")
    first, second = f"{host.kfd}/proc/7/stats_111", f"{host.kfd}/proc/7/context_2/stats_111"

    def use() -> ComputeUse:
        return (kfd.read()[1] or {})[7][111]

    assert use() == ComputeUse(150, True)
    assert sorted(use().directories) == sorted([first, second])
    host.write(host.kfd / "proc/7/context_2/queues/9/gpuid", "222")
    assert (use(), use().directories) == (ComputeUse(150, True), (first,))


def test_the_topology_is_read_again_for_an_unknown_gpu(kfd: Kfd, host: FakeHost) -> None:
    host.node(1, 111, location_id(0xC1))
    assert [node.gpu_id for node in kfd.read()[0]] == [111]
    host.node(1, 333, location_id(0xC1))
    assert [node.gpu_id for node in kfd.read()[0]] == [111], "nothing says that it changed"
    host.computes(5, 333, vram=1)
    assert [node.gpu_id for node in kfd.read()[0]] == [333]


def test_topology_is_read_again_when_its_generation_changes(kfd: Kfd, host: FakeHost) -> None:
    host.write(host.kfd / "topology/generation_id", "2\n")
    host.node(1, 111, location_id(0xC1))
    kfd.read()
    host.node(2, 222, location_id(0xC2))
    host.write(host.kfd / "topology/generation_id", "3\n")
    assert [node.gpu_id for node in kfd.read()[0]] == [111, 222]


def node(number: int, location: int, domain: int = 0) -> KfdNode:
    return KfdNode(number, 1000 + number, domain, location)


def test_a_card_with_one_node_has_no_partitions() -> None:
    one = node(1, location_id(0xC1, 0x1E, 3), domain=0x10000)
    assert locate_nodes([one], ["10000:c1:1e.3"]) == {("10000:c1:1e.3", None): one}
    assert locate_nodes([one], [CARD]) == {}


def test_partitions_in_the_highest_bits_of_the_location() -> None:
    parts = [node(number, location_id(0xC1) | part << 28) for number, part in ((4, 0), (3, 2), (5, 1))]
    assert locate_nodes(parts, [CARD]) == {(CARD, 0): parts[0], (CARD, 1): parts[2], (CARD, 2): parts[1]}


def test_partitions_in_place_of_the_function() -> None:
    parts = [node(number, location_id(0xA4, 0, part)) for number, part in ((10, 0), (11, 1), (12, 2))]
    address = "0000:a4:00.0"
    assert locate_nodes(parts, [address]) == {(address, part): parts[part] for part in range(3)}


def test_a_function_that_is_a_separate_card_is_no_partition() -> None:
    cards = [node(1, location_id(0xA4, 0, 0)), node(2, location_id(0xA4, 0, 1))]
    addresses = ["0000:a4:00.0", "0000:a4:00.1"]
    assert locate_nodes(cards, addresses) == {(addresses[0], None): cards[0], (addresses[1], None): cards[1]}


def test_partitions_without_a_distinction_are_numbered_by_node() -> None:
    parts = [node(number, location_id(0xC1)) for number in (9, 7, 8)]
    assert [one.number for one in locate_nodes(parts, [CARD]).values()] == [7, 8, 9]


def fail(monkeypatch: pytest.MonkeyPatch, part: str, code: int) -> None:
    """Opening any file with `part` in its path fails."""
    real = os.open

    def open_(path: str, *args: int, **kwargs: int) -> int:
        if part in str(path):
            raise OSError(code, os.strerror(code), path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV, errno.ESRCH])
def test_files_that_disappear_while_they_are_read_are_not_an_error(
    kfd: Kfd,
    host: FakeHost,
    errors: Counter[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    host.node(1, 111, location_id(0xC1))
    host.computes(7, 111, vram=100, occupied=4, queues=1)
    fail(monkeypatch, "proc/7/", code)
    assert kfd.read()[1] == {7: {111: ComputeUse(None, False)}}
    assert errors == {}


@pytest.mark.parametrize(
    ("code", "counted"),
    [(errno.EIO, {("kfd", "eio"): 1}), (errno.EACCES, {("kfd", "permission"): 1})],
)
def test_one_failing_file_does_not_hide_the_others(
    kfd: Kfd,
    host: FakeHost,
    errors: Counter[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    counted: dict[tuple[str, str], int],
) -> None:
    host.node(1, 111, location_id(0xC1))
    host.computes(7, 111, vram=100, occupied=4, queues=1)
    fail(monkeypatch, "vram_", code)
    assert kfd.read()[1] == {7: {111: ComputeUse(None, True)}}
    assert errors == counted


def test_hidden_nodes_are_counted_once_per_sample(
    kfd: Kfd, host: FakeHost, errors: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.node(1, 111, location_id(0xC1))
    host.node(2, 222, location_id(0xC2))
    fail(monkeypatch, "gpu_id", errno.EPERM)
    assert kfd.read() == ((), {})
    assert kfd.read() == ((), {})
    assert errors == {("kfd", "permission"): 2}


def test_properties_that_are_not_numbers_are_omitted() -> None:
    text = b"simd_count 608\nname aldebaran\n\nhive_id -1\nx 1 2\n\xff\xfe 3\n"
    text += b"unique_id 18446744073709551615\nmore 18446744073709551616\n"
    assert parse_properties(text) == {
        "simd_count": 608,
        "unique_id": 2**64 - 1,
        "\N{REPLACEMENT CHARACTER}" * 2: 3,
    }


@given(st.binary(max_size=200))
def test_any_properties_are_parsed_without_an_error(text: bytes) -> None:
    assert all(0 <= number < 2**64 for number in parse_properties(text).values())


@settings(max_examples=40)
@given(
    content=st.lists(
        st.binary(max_size=40) | st.integers(-(2**70), 2**70).map(lambda n: b"%d\n" % n),
        min_size=5,
        max_size=5,
    )
)
def test_any_content_is_parsed_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes]
) -> None:
    host = FakeHost(tmp_path_factory.mktemp("host"))
    host.node(1, 111, location_id(0xC1))
    host.computes(7, 111, vram=100, occupied=4, queues=1)
    files = ["topology/nodes/1/gpu_id", "topology/nodes/1/properties", "topology/generation_id"]
    files += ["proc/7/vram_111", "proc/7/queues/1110/gpuid"]
    for name, text in zip(files, content, strict=True):
        (host.kfd / name).write_bytes(text)
    nodes, processes = Kfd(host.sysfs, Counter()).read()
    locate_nodes(nodes, [CARD])
    assert processes is not None
    assert all((use.vram_bytes or 0) >= 0 for use in processes[7].values())


def test_other_file_types_in_place_of_files_are_ignored(
    kfd: Kfd, host: FakeHost, errors: Counter[tuple[str, str]]
) -> None:
    host.node(1, 111, location_id(0xC1))
    (host.kfd / "proc/8/vram_111").mkdir(parents=True)
    (host.kfd / "proc/9").write_text("a file")
    (host.kfd / "proc/99999999999").mkdir()
    (host.kfd / "proc/self").mkdir()
    (host.kfd / "proc/8/vram_").write_text("1")
    (host.kfd / "proc/8/vram_x").write_text("1")
    assert kfd.read()[1] == {8: {111: ComputeUse(None, None)}, 9: {}}
    assert errors == {("kfd", "eisdir"): 1}
