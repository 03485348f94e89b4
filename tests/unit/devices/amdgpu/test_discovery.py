"""Discovery of AMD cards, their order and identity."""

import errno
import shutil
from collections import Counter
from pathlib import Path

import pytest

from gputally.devices import Errors
from gputally.devices.amdgpu.discovery import DrmCard, find_cards, read_driver_version
from gputally.model import Gpu, Unavailable
from tests.support.amd_trees import plant, planted
from tests.unit.devices.amdgpu.trees import device, fail_files


def cards(tree: Path) -> list[DrmCard]:
    errors: Errors = Counter()
    found = find_cards(tree / "sys", errors)
    assert not errors
    return found


def refusal(tree: Path) -> Unavailable:
    with pytest.raises(Unavailable) as refused:
        find_cards(tree / "sys", Counter())
    return refused.value


def test_amd_cards_are_sorted_by_number_and_others_are_omitted() -> None:
    names = {path.name for path in (planted("card10") / "sys/class/drm").iterdir()}
    assert {"card0", "card1", "card2", "card3", "card10", "card10-DP-3", "renderD138"} <= names
    assert [(card.number, card.pci_address) for card in cards(planted("card10"))] == [
        (2, "0000:0c:00.0"),
        (10, "0000:0f:00.0"),
    ]


def test_a_card_has_its_identity() -> None:
    tree = planted("mi300x")
    (first, second) = cards(tree)
    assert first == DrmCard(
        number=1,
        directory=device(tree, 1),
        pci_address="0000:05:00.0",
        device_id=0x74A1,
        model="AMD Instinct MI300X OAM",
        uuid="GPU-e3aa140f9a5f9e31",
        serial="692432000017",
        vbios_version="113-M3000100-102",
    )
    assert second.gpu(1, "6.10.5") == Gpu(
        uuid="GPU-2250f807caf2231a",
        index=1,
        vendor="amd",
        model="AMD Instinct MI300X OAM",
        pci_bus_id="0000:27:00.0",
        serial="692432000018",
        vbios_version="113-M3000100-102",
        driver_version="6.10.5",
        minor_number=9,
    )


@pytest.mark.parametrize(
    ("tree", "uuid", "model"),
    [
        ("rx7900xtx", "GPU-9e2d6c3b1f50a874", "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE"),
        ("apu", "GPU-0000:64:00.0", "AMD Radeon 780M (Phoenix)"),
        ("vega-no-mem-busy", "GPU-0000:0b:00.0", "AMD Radeon RX Vega 56/64"),
        ("mi210", "GPU-4c7b1d52e60893af", "AMD Instinct MI210"),
    ],
)
def test_names_of_cards_with_incomplete_identity(tree: str, uuid: str, model: str) -> None:
    (card,) = cards(planted(tree))
    assert (card.uuid, card.model) == (uuid, model)


def test_the_partitions_of_a_card_are_not_cards() -> None:
    assert (planted("mi300x-cpx") / "sys/class/drm/card8/device/uevent").exists()
    assert [card.number for card in cards(planted("mi300x-cpx"))] == [1]


def test_an_unknown_model(tmp_path: Path) -> None:
    tree = plant("rx7900xtx", tmp_path)
    (device(tree, 0) / "device").write_text("0x9999\n")
    assert cards(tree)[0].model == "AMD GPU 0x9999"


@pytest.mark.parametrize("unique_id", ["0000000000000000\n", "", "\0" * 32, "no id"])
def test_an_invalid_id_is_not_used(tmp_path: Path, unique_id: str) -> None:
    tree = plant("rx7900xtx", tmp_path)
    (device(tree, 0) / "unique_id").write_text(unique_id)
    assert cards(tree)[0].uuid == "GPU-0000:03:00.0"


def test_cards_with_the_same_id_are_distinguished_by_pci_address(tmp_path: Path) -> None:
    tree = plant("mi250", tmp_path)
    for card in (0, 1):
        (device(tree, card) / "unique_id").write_text("1f9de0957d137942\n")
    assert [card.uuid for card in cards(tree)] == [
        "GPU-1f9de0957d137942-0000:29:00.0",
        "GPU-1f9de0957d137942-0000:2c:00.0",
    ]


def test_a_card_in_reset_does_not_get_the_name_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: Errors = Counter()
    fail_files(monkeypatch, errno.EPERM, lambda path: path.name == "unique_id")
    assert [card.uuid for card in find_cards(planted("card10") / "sys", errors)] == ["", ""]
    assert errors == {("uuid", "eperm"): 2}


def test_a_card_link_that_leaves_sysfs_is_ignored(tmp_path: Path) -> None:
    tree = plant("card10", tmp_path)
    outside = tmp_path / "outside"
    shutil.copytree(device(tree, 10), outside, symlinks=True)
    link = device(tree, 10) / "drm/card10/device"
    link.unlink()
    link.symlink_to(outside)
    assert [card.number for card in cards(tree)] == [2]


def test_a_card_that_disappears_while_it_is_read_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = plant("card10", tmp_path)
    gone = device(tree, 2)
    fail_files(monkeypatch, errno.ENODEV, lambda path: gone in path.parents)
    assert [card.number for card in find_cards(tree / "sys", Counter())] == [10]


def test_the_version_of_the_amd_driver_or_of_the_kernel(tmp_path: Path) -> None:
    instinct, desktop = planted("mi210"), planted("rx7900xtx")
    assert read_driver_version(instinct / "sys", instinct / "proc") == "6.8.5"
    assert read_driver_version(desktop / "sys", desktop / "proc") == "6.11.0-29-generic"
    assert read_driver_version(tmp_path, tmp_path) is None


def test_a_host_without_an_amd_gpu(tmp_path: Path) -> None:
    assert refusal(tmp_path).reason == "no AMD GPU"
    tree = plant("card10", tmp_path)
    for card in (2, 3, 10):
        shutil.rmtree(device(tree, card))
    assert refusal(tree).reason == "no AMD GPU"


def test_a_driver_that_is_not_loaded(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    shutil.rmtree(tree / "sys/class/drm")
    shutil.rmtree(tree / "sys/module/amdgpu")
    refused = refusal(tree)
    assert refused.reason == "the amdgpu driver is not loaded, but there are AMD GPUs: 0000:c1:00.0"
    assert refused.fix == "load the driver: modprobe amdgpu"


def test_gpus_assigned_to_a_virtual_machine(tmp_path: Path) -> None:
    tree = plant("mi300x", tmp_path)
    for card in (1, 9):
        directory = device(tree, card)
        (directory / "driver").unlink()
        (directory / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    shutil.rmtree(tree / "sys/class/drm")
    refused = refusal(tree)
    assert "another driver (vfio-pci): 0000:05:00.0, 0000:27:00.0" in refused.reason
    assert "bind them to amdgpu" in refused.fix


def test_a_driver_that_failed_to_initialise_a_gpu(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    (device(tree, 0) / "driver").unlink()
    shutil.rmtree(tree / "sys/class/drm")
    refused = refusal(tree)
    assert "0000:c1:00.0" in refused.reason
    assert "has not bound" in refused.reason
    assert "dmesg" in refused.fix


def test_files_without_read_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_files(monkeypatch, errno.EACCES, lambda path: path.name == "vendor")
    refused = refusal(planted("mi300x"))
    assert "no permission" in refused.reason
    assert "/sys readable" in refused.fix
