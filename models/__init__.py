"""Sequence models in Flax NNX, their training and their checkpoints.

`import ppl_tunnels.models` is cheap: Flax, optax and orbax are loaded when a name is first used.

Example:
    >>> import ppl_tunnels.models
    >>> ppl_tunnels.models.FitConfig(steps=100).architecture
    'transformer'
"""

import importlib
from typing import TYPE_CHECKING

if __name__ != "ppl_tunnels.models":
    raise ImportError(
        f"this folder is the package ppl_tunnels.models, but it was imported as {__name__!r}; "
        "write 'import ppl_tunnels.models' (and if another 'models' was meant, take the repository's root off sys.path)"
    )

if TYPE_CHECKING:
    from ppl_tunnels.models.architectures import ARCHITECTURES as ARCHITECTURES
    from ppl_tunnels.models.architectures import Architecture as Architecture
    from ppl_tunnels.models.architectures import build as build
    from ppl_tunnels.models.checkpoint import load_model as load_model
    from ppl_tunnels.models.checkpoint import save_model as save_model
    from ppl_tunnels.models.configuration import FitConfig as FitConfig
    from ppl_tunnels.models.metrics import TrainingMetrics as TrainingMetrics
    from ppl_tunnels.models.predictor import ModelPredictor as ModelPredictor
    from ppl_tunnels.models.training import FitResult as FitResult
    from ppl_tunnels.models.training import TrainingDivergedError as TrainingDivergedError
    from ppl_tunnels.models.training import fit as fit
    from ppl_tunnels.models.transformer import Transformer as Transformer
    from ppl_tunnels.models.transformer import TransformerConfig as TransformerConfig

_HOMES = {
    "ARCHITECTURES": "architectures",
    "Architecture": "architectures",
    "FitConfig": "configuration",
    "FitResult": "training",
    "ModelPredictor": "predictor",
    "TrainingDivergedError": "training",
    "TrainingMetrics": "metrics",
    "Transformer": "transformer",
    "TransformerConfig": "transformer",
    "build": "architectures",
    "fit": "training",
    "load_model": "checkpoint",
    "save_model": "checkpoint",
}
__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "FitConfig",
    "FitResult",
    "ModelPredictor",
    "TrainingDivergedError",
    "TrainingMetrics",
    "Transformer",
    "TransformerConfig",
    "build",
    "fit",
    "load_model",
    "save_model",
]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"ppl_tunnels.models.{_HOMES[name]}"), name)
    raise AttributeError(
        f"module 'ppl_tunnels.models' has no attribute {name!r}; its public names are {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
