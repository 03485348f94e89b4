"""The models that can be simulated, by the names that the command line and scenario files give them."""

from gputally.simulator import MODEL_NAMES
from gputally.simulator.amd_cards import AMD_CARDS
from gputally.simulator.cards import AnyCard
from gputally.simulator.nvidia_cards import NVIDIA_CARDS

CARDS: dict[str, AnyCard] = {**NVIDIA_CARDS, **AMD_CARDS}


def find_card(model: str) -> AnyCard:
    """The card of that name, in any case; ValueError names the allowed ones."""
    card = CARDS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card
