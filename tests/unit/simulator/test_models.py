"""The table of cards."""

import pytest

from gputally.devices.amd import MODELS
from gputally.simulator import MODEL_NAMES
from gputally.simulator.amd_models import AMD_MODELS
from gputally.simulator.gpu_models import AmdModel, AnyModel, NvidiaModel
from gputally.simulator.nvidia_models import NVIDIA_MODELS
from gputally.simulator.scenario import GPU_MODELS, find_model

cards = pytest.mark.parametrize("card", GPU_MODELS.values(), ids=GPU_MODELS.keys())
nvidia_cards = pytest.mark.parametrize("card", NVIDIA_MODELS.values(), ids=NVIDIA_MODELS.keys())
amd_cards = pytest.mark.parametrize("card", AMD_MODELS.values(), ids=AMD_MODELS.keys())


def test_every_name_of_the_command_line_has_a_model() -> None:
    assert tuple(GPU_MODELS) == MODEL_NAMES
    assert len({card.name for card in GPU_MODELS.values()}) == len(GPU_MODELS)


def test_names_are_found_in_any_case() -> None:
    assert find_model("H100") is find_model("h100") is GPU_MODELS["h100"]
    assert find_model("A100-80GB").name == "NVIDIA A100-SXM4-80GB"


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'voodoo2'.* a100, .*, rx7900xtx$"):
        find_model("voodoo2")


@cards
def test_the_values_of_a_model_are_consistent(card: AnyModel) -> None:
    assert 0 < card.idle_watts < card.least_limit_watts <= card.default_watts <= card.max_watts
    assert card.clocks_idle.graphics < card.clocks_max.graphics
    assert card.clocks_idle.memory <= card.clocks_max.memory
    limits = [card.full_load_celsius, card.slowdown_celsius, card.shutdown_celsius]
    known = [limit for limit in limits if limit is not None]
    assert known == sorted(known)


@nvidia_cards
def test_the_values_of_an_nvidia_model_are_consistent(card: NvidiaModel) -> None:
    assert 0 < card.clocks_idle.video <= card.clocks_max.video
    limits = [card.full_load_celsius, card.margin_from_celsius, card.slowdown_celsius]
    known = [limit for limit in limits if limit is not None]
    assert known == sorted(known)
    assert not (card.remap_banks and card.retires_pages), "Ampere replaced one by the other"
    assert bool(card.links) == bool(card.nvlink_errors)


@cards
def test_every_model_has_a_thermal_margin(card: AnyModel) -> None:
    tells_distance = isinstance(card, NvidiaModel) and card.margin_from_celsius is not None
    assert card.slowdown_celsius is not None or tells_distance


@amd_cards
def test_the_values_of_an_amd_model_are_consistent(card: AmdModel) -> None:
    assert card.sensors[0].critical == card.slowdown_celsius
    assert (card.sensors[0].idle, card.sensors[0].busy) == (0, 0), "the others are measured from it"
    assert "mem" in {sensor.name for sensor in card.sensors}
    for domain in card.domains:
        assert 0 < domain.idle <= domain.busy <= (domain.most or domain.busy)
    assert bool(card.ras_blocks) == bool(card.ras_types)


def test_amd_models_have_the_names_of_their_reader() -> None:
    assert GPU_MODELS["mi300x"].name == "AMD Instinct MI300X OAM"
    assert {GPU_MODELS["mi210"].name, GPU_MODELS["rx7900xtx"].name} <= {
        f"AMD {name}" for name in MODELS.values()
    }


@nvidia_cards
def test_mig_profiles_fit_their_model(card: NvidiaModel) -> None:
    for profile in card.mig_profiles:
        assert profile.name.startswith(f"{profile.slices}g.")
        assert profile.memory_mib <= card.memory_mib * profile.memory_slices / 8
        assert profile.multiprocessors <= card.multiprocessors
        assert profile.most * profile.slices <= 7
        assert profile.most * profile.memory_slices <= 8
