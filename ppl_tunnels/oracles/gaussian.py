r"""Conditioning of a Gaussian belief: what Kalman filtering and Bayesian regression have in common.

A belief N(m, P) meets a linear observation y = H x + d + noise of covariance C:

    S = H P H' + C,  K = P H' S^-1,  m + K (y - H m - d),  (I - K H) P (I - K H)' + K C K',

the last in Joseph's form, which stays positive definite. A latent drawn on the way extends the belief, a step's end maps it.
All noise may have a common unknown factor 1/g, g ~ Gamma(a, b): the means do not depend on it, the covariances are those at
g = 1, and with q the sum of (y - H m - d)' S^-1 (y - H m - d) over k numbers seen,

    g | y ~ Gamma(a + k/2, b + q/2),      x | y  Student-t of 2a + k degrees, location m, scale matrix (b + q/2)/(a + k/2) P.

Source: Särkkä (2013), chapters 3 and 4; Bernardo and Smith (1994), section 5.2 for the unknown factor.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.log_gamma import log_gamma_ratio


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Belief:
    """N(mean, covariance), and what its evidence adds up to.

    Attributes:
        mean: `[n]`.
        covariance: `[n, n]`, at g = 1.
        seen: numbers seen so far.
        log_volume: sum of their log det S.
        square: sum of their q.
        log_jacobian: of the observations' own transforms, nats.
    """

    mean: jax.Array
    covariance: jax.Array
    seen: jax.Array
    log_volume: jax.Array
    square: jax.Array
    log_jacobian: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Linear:
    """A number or vector that is a linear function of the belief's variables, plus noise: `matrix` x + `offset`."""

    matrix: jax.Array
    offset: jax.Array
    noise: jax.Array


def nothing_seen(mean: jax.Array, covariance: jax.Array) -> Belief:
    """A belief before any evidence."""
    zero = jnp.zeros(())
    return Belief(mean, covariance, zero, zero, zero, zero)


def predicted(belief: Belief, of: Linear) -> tuple[jax.Array, jax.Array]:
    """Mean `[k]` and covariance `[k, k]` (at g = 1) of a linear function of the variables."""
    mean = of.matrix @ belief.mean + of.offset
    covariance = of.matrix @ belief.covariance @ of.matrix.T + of.noise
    return mean, (covariance + covariance.T) / 2


def extended(belief: Belief, drawn: Linear) -> Belief:
    """The belief with a newly drawn variable at its end."""
    mean, covariance = predicted(belief, drawn)
    cross = drawn.matrix @ belief.covariance
    joint = jnp.block([[belief.covariance, cross.T], [cross, covariance]])
    return dataclasses.replace(belief, mean=jnp.concatenate([belief.mean, mean]), covariance=joint)


def mapped(belief: Belief, matrix: jax.Array, offset: jax.Array) -> Belief:
    """The belief about `matrix` x + `offset`."""
    covariance = matrix @ belief.covariance @ matrix.T
    return dataclasses.replace(belief, mean=matrix @ belief.mean + offset, covariance=(covariance + covariance.T) / 2)


def kept(belief: Belief, variables: int) -> Belief:
    """The belief about the first so many variables."""
    return dataclasses.replace(
        belief, mean=belief.mean[:variables], covariance=belief.covariance[:variables, :variables]
    )


def conditioned(belief: Belief, seen: Linear, value: jax.Array, log_jacobian: jax.Array, shown: jax.Array) -> Belief:
    """The belief after an observation `[k]`, or unchanged where it is not shown."""
    mean, covariance = predicted(belief, seen)
    off = value - mean
    cross = seen.matrix @ belief.covariance
    if off.shape[0] == 1:  # a call into a linear algebra library costs more than the division
        gain = cross.T / covariance[0, 0]
        square, log_volume = off[0] ** 2 / covariance[0, 0], jnp.log(covariance[0, 0])
    else:
        factor = jnp.linalg.cholesky(covariance)
        gain = jax.scipy.linalg.cho_solve((factor, True), cross).T
        white = jax.scipy.linalg.solve_triangular(factor, off, lower=True)
        square, log_volume = white @ white, 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    left = jnp.eye(belief.mean.shape[0]) - gain @ seen.matrix
    updated = left @ belief.covariance @ left.T + gain @ seen.noise @ gain.T
    after = Belief(
        mean=belief.mean + gain @ off,
        covariance=(updated + updated.T) / 2,
        seen=belief.seen + off.shape[0],
        log_volume=belief.log_volume + log_volume,
        square=belief.square + square,
        log_jacobian=belief.log_jacobian + log_jacobian,
    )
    return jax.tree.map(lambda new, old: jnp.where(shown, new, old), after, belief)


def log_evidence(belief: Belief, factor: tuple[jax.Array, jax.Array] | None) -> jax.Array:
    """Nats, of everything seen; `factor` is (a, b) where the noise has an unknown factor."""
    volume = -0.5 * (belief.seen * math.log(2 * math.pi) + belief.log_volume) + belief.log_jacobian
    if factor is None:
        return volume - 0.5 * belief.square
    shape, rate = factor
    half = belief.seen / 2
    return (
        volume
        + log_gamma_ratio(shape, half)
        - half * jnp.log(rate + belief.square / 2)
        - shape * jnp.log1p(belief.square / (2 * rate))
    )


def factor_after(belief: Belief, factor: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """(a, b) of the unknown factor given everything seen."""
    return factor[0] + belief.seen / 2, factor[1] + belief.square / 2


def block_diagonal(blocks: Any) -> jax.Array:
    """`[block, k, k]` -> `[block * k, block * k]`."""
    count, size = blocks.shape[0], blocks.shape[-1]
    out = jnp.zeros((count, size, count, size))
    out = out.at[jnp.arange(count), :, jnp.arange(count), :].set(blocks)
    return out.reshape(count * size, count * size)
