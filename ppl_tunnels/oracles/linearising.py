"""A program's Gaussian means as linear functions of its latents, and their noise, read off by differentiation."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.gaussian import Linear, block_diagonal

# Means linear near zero only (a kink, a threshold) show at one of these scales; signs differ from number to number.
_SCALES = (1.0, -1.0, 30.0, 0.01)
# Precisions of the unknown factor at the held-out values; 1 where the matrices are taken.
_PRECISIONS = (2.375, 0.5, 1.0, 7.0)

Moments = dict[str, tuple[jax.Array, jax.Array]]


def moments(base: Any, shape: tuple[int, ...], step_axis: int | None) -> tuple[jax.Array, jax.Array]:
    """Mean `[(step), k]` and covariance `[(step), k, k]` of a Normal or multivariate Normal law.

    Args:
        base: the law, its parameters not broadcast.
        shape: of the value.
        step_axis: which axis of it is the step; None for a value of one step or one episode.
    """
    mean = jnp.broadcast_to(jnp.asarray(base.loc), shape)
    vector = not isinstance(base, dist.Normal)
    if vector:
        noise = jnp.broadcast_to(jnp.asarray(base.covariance_matrix), (*shape, shape[-1]))
    else:
        noise = jnp.broadcast_to(jnp.asarray(base.scale), shape) ** 2
    if step_axis is None:
        return _flat(mean, noise, vector)
    mean, noise = jnp.moveaxis(mean, step_axis, 0), jnp.moveaxis(noise, step_axis, 0)
    return jax.vmap(lambda m, c: _flat(m, c, vector))(mean, noise)


def _flat(mean: jax.Array, noise: jax.Array, vector: bool) -> tuple[jax.Array, jax.Array]:
    if not vector:
        return mean.reshape(-1), jnp.diag(noise.reshape(-1))
    return mean.reshape(-1), block_diagonal(noise.reshape(-1, *noise.shape[-2:]))


def held_out_vectors(size: int) -> np.ndarray:
    """Values of the latents at which linearity is checked, `[held out, size]`."""
    direction = np.random.default_rng(1).standard_normal(size)
    return np.stack([scale * np.roll(direction, place) for place, scale in enumerate(_SCALES)])


def linearised(
    function: Callable[[jax.Array, jax.Array, int], tuple[dict[str, jax.Array], dict[str, jax.Array]]],
    size: int,
    *,
    scaled: bool,
) -> tuple[dict[str, Linear], jax.Array]:
    """Matrices and offsets of some means, their covariances, and how far they are from linear and constant.

    Args:
        function: `(latents [size], precision of the unknown factor, which values other latents have)` -> means
            `[..., k]` and covariances `[..., k, k]` by name (no covariance for what has no noise).
        size: how many latent numbers.
        scaled: whether the covariances have a common unknown factor, divided by the precision.
    """
    zero, one = jnp.zeros(size), jnp.ones(())
    mean, noise = function(zero, one, 0)
    if size:
        slopes = jax.jacfwd(lambda latents: function(latents, one, 0)[0])(zero)
    else:
        slopes = {name: jnp.zeros((*of.shape, 0)) for name, of in mean.items()}
    out = {name: Linear(slopes[name], mean[name], noise.get(name, jnp.zeros(()))) for name in mean}
    off = [jnp.zeros(())]
    for which, (latents, precision) in enumerate(zip(held_out_vectors(size), _PRECISIONS, strict=True)):
        precision = precision if scaled else 1.0
        there, there_noise = function(jnp.asarray(latents), jnp.asarray(precision), 1 + which % 2)
        off += [misfit(of, jnp.asarray(latents), there[name]) for name, of in out.items()]
        off += [noise_misfit(noise[name], there_noise[name], precision) for name in noise]
    return out, jnp.max(jnp.stack(off))


def misfit(of: Linear, latents: jax.Array, mean: jax.Array) -> jax.Array:
    """How far a mean is from its linear function, relative to the size of its terms; NaN counts as infinity."""
    said = jnp.einsum("...kn,...n->...k", of.matrix, latents) + of.offset
    size = 1 + jnp.abs(of.offset) + jnp.einsum("...kn,...n->...k", jnp.abs(of.matrix), jnp.abs(latents))
    return _worst(jnp.abs(said - mean) / size)


def noise_misfit(noise: jax.Array, there: jax.Array, precision: Any) -> jax.Array:
    """How far covariances are from being divided by the precision, relative to their size."""
    return _worst(
        jnp.abs(there * precision - noise) / jnp.max(jnp.abs(noise), initial=0.0, axis=(-1, -2), keepdims=True)
    )


def _worst(off: jax.Array) -> jax.Array:
    return jnp.max(jnp.where(jnp.isnan(off), jnp.inf, off), initial=0.0)


def numbers(shape: tuple[int, ...]) -> int:
    """How many numbers an array of this shape holds."""
    return math.prod(shape)
