"""Log-densities of continuous laws (nats), inside their supports and at the edges, where they are limits.

With g(y; a) the log-density of Gamma(a, 1), a Dirichlet law is independent gammas given their sum: for n = sum of a_i,

    log Dirichlet(x; a) = sum of g(n x_i; a_i) + (K - 1/2) log n + 1/2 log 2π + δ(n),

in which no large numbers cancel; Beta and the compound gamma are the case K = 2.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from ppl_tunnels.oracles.log_gamma import HALF_LOG_2PI, deviance, log_gamma, log_gamma_ratio, stirling_remainder

# From here on, the saddle-point form of the gamma density is the more accurate one.
_LARGE = 10.0


@jax.jit
def standard_gamma(y, shape) -> jax.Array:
    """g(y; a): of Gamma(a, 1) at y ≥ 0; at 0 the limit, which is finite for a = 1 only."""
    y, shape = jnp.asarray(y), jnp.asarray(shape)
    direct = xlogy(shape - 1, y) - y - log_gamma(shape)
    positive = jnp.where(y > 0, y, 1.0)
    saddle = (
        0.5 * jnp.log(shape) - HALF_LOG_2PI - stirling_remainder(shape) - deviance(shape, positive) - jnp.log(positive)
    )
    result = jnp.where((shape < _LARGE) | (y == 0), direct, saddle)
    return jnp.where(jnp.isinf(y), -jnp.inf, result)


@jax.jit
def gamma(value, shape, rate) -> jax.Array:
    return standard_gamma(rate * value, shape) + jnp.log(rate)


def _given_their_sum(total, categories: int) -> jax.Array:
    return (categories - 0.5) * jnp.log(total) + HALF_LOG_2PI + stirling_remainder(total)


@jax.jit
def beta(value, heads, tails, complement=None) -> jax.Array:
    """The complement is 1 - value, for callers who know it better than by subtraction."""
    total, complement = heads + tails, 1 - value if complement is None else complement
    parts = standard_gamma(total * value, heads) + standard_gamma(total * complement, tails)
    return parts + _given_their_sum(total, 2)


@jax.jit
def dirichlet(value, concentration) -> jax.Array:
    """Where a coordinate 0 has an infinite factor and another a zero one, the density is taken to be 0."""
    total = jnp.sum(concentration, axis=-1)
    parts = standard_gamma(total[..., None] * value, concentration)
    never = jnp.any(jnp.isneginf(parts), axis=-1)
    density = jnp.sum(parts, axis=-1) + _given_their_sum(total, concentration.shape[-1])
    return jnp.where(never, -jnp.inf, density)


@jax.jit
def compound_gamma(value, shape, concentration, rate) -> jax.Array:
    """Gamma(shape, θ) with θ ~ Gamma(concentration, rate): value / (rate + value) is Beta(shape, concentration)."""
    total, span = shape + concentration, rate + value
    parts = standard_gamma(total * (value / span), shape) + standard_gamma(total * (rate / span), concentration)
    return parts + _given_their_sum(total, 2) + jnp.log(rate) - 2 * jnp.log(span)


@jax.jit
def normal(value, loc, scale) -> jax.Array:
    return -0.5 * jnp.square((value - loc) / scale) - jnp.log(scale) - HALF_LOG_2PI


@jax.jit
def student_t(value, df, loc, scale) -> jax.Array:
    return _student_t(jnp.abs((value - loc) / scale), df, jnp.log(scale), 1)


@jax.jit
def multivariate_normal(value, loc, scale_tril) -> jax.Array:
    square, log_det = _whitened(value, loc, scale_tril)
    return -0.5 * square - log_det - scale_tril.shape[-1] * HALF_LOG_2PI


@jax.jit
def multivariate_student_t(value, df, loc, scale_tril) -> jax.Array:
    square, log_det = _whitened(value, loc, scale_tril)
    return _student_t(jnp.sqrt(square), df, log_det, scale_tril.shape[-1])


def _student_t(distance, df, log_det, dimension: int) -> jax.Array:
    normaliser = log_gamma_ratio(df / 2, dimension / 2) - 0.5 * dimension * jnp.log(df * jnp.pi) - log_det
    far = distance > 1e100  # where squares overflow
    near = jnp.log1p(jnp.square(jnp.where(far, 1.0, distance)) / df)
    growth = jnp.where(far, 2 * jnp.log(distance) - jnp.log(df), near)
    return normaliser - 0.5 * (df + dimension) * growth


def _whitened(value, loc, scale_tril) -> tuple[jax.Array, jax.Array]:
    """Squared Mahalanobis distance and log-determinant of the scale, over the broadcast batch."""
    centred = (value - loc)[..., None]
    batch = jnp.broadcast_shapes(centred.shape[:-2], scale_tril.shape[:-2])
    lower = jnp.broadcast_to(scale_tril, (*batch, *scale_tril.shape[-2:]))
    centred = jnp.broadcast_to(centred, (*batch, *centred.shape[-2:]))
    white = jax.lax.linalg.triangular_solve(lower, centred, left_side=True, lower=True)[..., 0]
    log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(scale_tril, axis1=-2, axis2=-1))), axis=-1)
    return jnp.sum(jnp.square(white), axis=-1), log_det
