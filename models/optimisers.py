"""Optimisers and their schedule.

Muon (Jordan et al. 2024) orthogonalises the momentum of each matrix; embeddings, positions, the head and gains are not
maps between activations and take AdamW (Loshchilov & Hutter 2019) with the same schedule: a linear rise, then half a
cosine down to zero. The last digits of a divergence come during the decay.
"""

from typing import Any

import optax
from flax import nnx
from optax.contrib import MuonDimensionNumbers

from ppl_tunnels.models.configuration import FitConfig
from ppl_tunnels.models.parameters import MUON_AXES, map_parameters

# The second moment of the tables forgets in about 20 steps. Adam's usual 0.999 remembers the large gradients of the
# start through the decay of a short run: on the 20-symbol bijection it ends at 1.0e-4 bits of KL, 0.95 at 3.3e-5.
SECOND_MOMENT_DECAY = 0.95


def schedule(config: FitConfig) -> optax.Schedule:
    """The learning rate at each step: 0 to the peak in `warmup` of the steps, then a half cosine to 0 at the last.

    Example:
        >>> rate = schedule(FitConfig(steps=100, learning_rate=0.5))
        >>> float(rate(0)), float(rate(4)), round(float(rate(52)), 3), round(float(rate(100)), 3)
        (0.0, 0.5, 0.25, 0.0)
    """
    rise = round(config.warmup * config.steps)
    fall = optax.cosine_decay_schedule(config.peak_learning_rate, max(config.steps - rise, 1))
    return optax.join_schedules([optax.linear_schedule(0.0, config.peak_learning_rate, max(rise, 1)), fall], [rise])


def optimiser(config: FitConfig) -> optax.GradientTransformation:
    """Gradients (clipped by their global norm) to updates, for an `nnx.State` of parameters."""
    rate = schedule(config)
    if config.optimizer == "muon":
        update = optax.contrib.muon(
            rate,
            weight_decay=config.weight_decay,
            adam_b2=SECOND_MOMENT_DECAY,
            muon_weight_dimension_numbers=muon_dimensions,
        )
    else:
        update = optax.adamw(
            rate, b2=SECOND_MOMENT_DECAY, nesterov=True, weight_decay=config.weight_decay, mask=matrices
        )
    return optax.chain(optax.clip_by_global_norm(config.clip), update)


def muon_dimensions(parameters: nnx.State) -> Any:
    """For each marked matrix its input and output axes, for every other parameter None."""

    def dimensions(parameter: nnx.Variable) -> MuonDimensionNumbers | None:
        axes = _axes(parameter)
        return None if axes is None else MuonDimensionNumbers(*axes)

    return map_parameters(dimensions, parameters)


def matrices(parameters: nnx.State) -> Any:
    """Which parameters are marked as matrices."""
    return map_parameters(lambda parameter: _axes(parameter) is not None, parameters)


def _axes(parameter: nnx.Variable) -> tuple[int, int] | None:
    return parameter.get_metadata().get(MUON_AXES)
