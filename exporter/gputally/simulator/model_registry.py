"""The models that can be simulated, by the names that the command line and scenario files give them."""

from gputally.simulator import MODEL_NAMES
from gputally.simulator.amd_models import AMD_MODELS
from gputally.simulator.gpu_models import AnyModel
from gputally.simulator.nvidia_models import NVIDIA_MODELS

GPU_MODELS: dict[str, AnyModel] = {**NVIDIA_MODELS, **AMD_MODELS}


def find_model(model: str) -> AnyModel:
    """The card of that name, in any case; ValueError names the allowed ones."""
    card = GPU_MODELS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card
