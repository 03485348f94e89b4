"""The models that can be simulated, by their names on the command line and in scenario files."""

from gputally.simulator import MODEL_NAMES
from gputally.simulator.amd_models import AMD_MODELS
from gputally.simulator.gpu_models import AnyModel
from gputally.simulator.nvidia_models import NVIDIA_MODELS

GPU_MODELS: dict[str, AnyModel] = {**NVIDIA_MODELS, **AMD_MODELS}


def find_model(model: str) -> AnyModel:
    """The model of that name, in upper or lower case; ValueError lists the allowed names."""
    card = GPU_MODELS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card
