"""The table of cards."""

import pytest

from gputally.devices.simulated import MODEL_NAMES
from gputally.devices.simulated.models import CARDS, Card, find_card

cards = pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())


def test_every_name_that_the_command_line_offers_has_a_card() -> None:
    assert tuple(CARDS) == MODEL_NAMES
    assert len({card.name for card in CARDS.values()}) == len(CARDS)


def test_names_are_found_in_any_case() -> None:
    assert find_card("H100") is find_card("h100") is CARDS["h100"]
    assert find_card("A100-80GB").name == "NVIDIA A100-SXM4-80GB"


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^model 'voodoo2' is not known; allowed: a100, .*, gtx1080ti$"):
        find_card("voodoo2")


@cards
def test_a_card_can_be_what_it_says(card: Card) -> None:
    assert 0 < card.idle_watts < card.min_watts <= card.default_watts <= card.max_watts
    for idle, most in (
        (card.clocks_idle.graphics, card.clocks_max.graphics),
        (card.clocks_idle.memory, card.clocks_max.memory),
        (card.clocks_idle.video, card.clocks_max.video),
    ):
        assert 0 < idle <= most
    limits = [card.full_load_celsius, card.margin_from_celsius, card.slowdown_celsius, card.shutdown_celsius]
    known = [limit for limit in limits if limit is not None]
    assert known == sorted(known)
    assert not (card.remap_banks and card.retires_pages), "Ampere replaced one by the other"
    assert bool(card.nvlinks) == bool(card.nvlink_errors)


@cards
def test_mig_profiles_are_pieces_of_their_card(card: Card) -> None:
    for profile in card.mig_profiles:
        assert profile.name.startswith(f"{profile.slices}g.")
        assert profile.memory_mib <= card.memory_mib * profile.memory_slices / 8
        assert profile.multiprocessors <= card.multiprocessors
        assert profile.most * profile.slices <= 7
        assert profile.most * profile.memory_slices <= 8
