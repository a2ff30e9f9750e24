"""Where a grid's points lie: coordinates in which densities are smooth and die out fast on both sides.

In such a coordinate the plain sum over equally spaced points (the trapezoidal rule) converges faster than any power of the
spacing (Trefethen & Weideman 2014). A positive value is exp(u - exp(-u)) times its law's mean and a probability is
1 / (1 + exp(-sinh u)), so that both tails die double-exponentially (Takahasi & Mori 1974); a simplex is a chain of such
probabilities (stick breaking), a Gaussian its law's location plus its scale times u. Locations and scales are those of the
law that the program states at the point itself, so that a width that depends on another latent is followed.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.errors import TunnelError

REAL, POSITIVE, UNIT = (-9.5, 9.5), (-4.5, 4.2), (-4.95, 4.28)


def ranges(fn: dist.Distribution, shape: tuple[int, ...]) -> list[tuple[float, float]]:
    """The range of every coordinate of a site's value, the value's first axes running slowest.

    Raises:
        TunnelError: no coordinate is known for the law.
    """
    base = _innermost(fn)
    if isinstance(base, dist.Dirichlet):
        return [UNIT] * (math.prod(shape[:-1]) * (shape[-1] - 1))
    if isinstance(base, dist.Normal | dist.MultivariateNormal):
        return [REAL] * math.prod(shape)
    if isinstance(base, dist.Gamma | dist.Exponential):
        return [POSITIVE] * math.prod(shape)
    if isinstance(base, dist.Beta | dist.Uniform):
        return [UNIT] * math.prod(shape)
    raise TunnelError(
        f"quadrature knows no coordinate for {type(base).__name__}; use Normal, MultivariateNormal, Gamma, Exponential, Beta, "
        "Uniform, Dirichlet, or transforms of these"
    )


def place(fn: dist.Distribution, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value at coordinates `u` (flat) under a law, and the logarithm of d value / d u, a scalar."""
    shape = fn.shape()
    if isinstance(_innermost(fn), dist.Dirichlet):
        shape = (*shape[:-1], shape[-1] - 1)
    value, log_slopes = _place(fn, u.reshape(shape))
    return value, jnp.sum(log_slopes)


def _innermost(fn: dist.Distribution) -> dist.Distribution:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.TransformedDistribution):
        fn = fn.base_dist
    return fn


def _place(fn: Any, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    if isinstance(fn, dist.TransformedDistribution):
        value, log_slope = _place(fn.base_dist, u)
        for transform in fn.transforms:
            moved = transform(value)
            log_slope, value = log_slope + jnp.asarray(transform.log_abs_det_jacobian(value, moved)), jnp.asarray(moved)
        return value, log_slope
    if isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        return _place(fn.base_dist, u)
    if isinstance(fn, dist.MultivariateNormal):
        slopes = jnp.log(jnp.diagonal(fn.scale_tril, axis1=-2, axis2=-1))
        return jnp.asarray(fn.loc) + jnp.einsum("...ij,...j->...i", fn.scale_tril, u), jnp.broadcast_to(slopes, u.shape)
    if isinstance(fn, dist.Normal):
        return jnp.asarray(fn.loc) + jnp.asarray(fn.scale) * u, jnp.broadcast_to(jnp.log(fn.scale), u.shape)
    if isinstance(fn, dist.Gamma | dist.Exponential):
        log_value = u - jnp.exp(-u) + jnp.log(jnp.asarray(fn.mean))
        return jnp.exp(log_value), log_value + jnp.log1p(jnp.exp(-u))
    logit = jnp.sinh(u)
    log_slope = jax.nn.log_sigmoid(logit) + jax.nn.log_sigmoid(-logit) + jnp.log(jnp.cosh(u))
    if isinstance(fn, dist.Dirichlet):
        kept = jnp.cumprod(jax.nn.sigmoid(-logit), axis=-1)
        before = jnp.concatenate([jnp.ones_like(kept[..., :1]), kept[..., :-1]], axis=-1)
        value = jnp.concatenate([before * jax.nn.sigmoid(logit), kept[..., -1:]], axis=-1)
        return value, log_slope + jnp.log(before)
    low, high = map(jnp.asarray, (fn.low, fn.high) if isinstance(fn, dist.Uniform) else (0.0, 1.0))
    return low + (high - low) * jax.nn.sigmoid(logit), log_slope + jnp.log(high - low)
