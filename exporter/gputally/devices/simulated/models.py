"""The models that can be simulated, by the names that the command line and scenario files give them."""

from gputally.devices.simulated import MODEL_NAMES
from gputally.devices.simulated.amd_cards import AMD_CARDS
from gputally.devices.simulated.cards import AnyCard
from gputally.devices.simulated.nvidia_cards import NVIDIA_CARDS

CARDS: dict[str, AnyCard] = {**NVIDIA_CARDS, **AMD_CARDS}


def find_card(model: str) -> AnyCard:
    """The card of that name, in any case; ValueError names the allowed ones."""
    card = CARDS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card
