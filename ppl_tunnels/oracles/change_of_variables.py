"""The density of a transformed variable: log p(y) = log p(x) - log |dy/dx| at x = the inverse of y.

At an edge of the support both terms may be infinite (x² with x ~ Gamma(2, 1) has density 1/2 at 0, which is log 0 - log 0).
The density there is the limit from inside: it is read off two points very close to the edge, which also show whether it
goes to zero or to infinity instead.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, ExpTransform, PowerTransform

BaseLogProb = Callable[[Any, jax.Array], jax.Array]

# Two distances from an edge at 0, and (relatively) from one elsewhere.
_CLOSE = ((1e-30, 1e-6), (1e-60, 1e-12))
# How steeply, by powers of the distance, a density must go to zero or infinity not to be taken for a constant.
_STEEP = 1e-6


def transformed_log_prob(law: Any, value, base_log_prob: BaseLogProb) -> jax.Array:
    """Log-density (nats) of a TransformedDistribution, the base's taken from `base_log_prob`; -inf outside, never NaN."""
    value = jnp.asarray(value)
    density, inside = _density(law, value, base_log_prob, None)
    unclear = jnp.isnan(density) & inside
    density = jax.lax.cond(
        jnp.any(unclear),
        lambda: jnp.where(unclear, _limit(law, value, base_log_prob), density),
        lambda: density,
    )
    return jnp.where(inside & ~jnp.isnan(density), density, -jnp.inf)


def _limit(law: Any, value: jax.Array, base_log_prob: BaseLogProb) -> jax.Array:
    far, near = (_density(law, value, base_log_prob, distances)[0] for distances in _CLOSE)
    ratio = jnp.log(_CLOSE[0][0] / _CLOSE[1][0]) * jnp.ones_like(near)
    slope = (far - near) / ratio  # the least of the two ratios is the other one: a larger slope, of the same sign
    steep = jnp.where(slope > 0, -jnp.inf, jnp.inf)
    return jnp.where(jnp.abs(slope) > _STEEP, steep, near)


def _density(law: Any, y: jax.Array, base_log_prob: BaseLogProb, distances: tuple[float, float] | None):
    """log p(y) and whether y is in the support; with distances, an edge at which the Jacobian is infinite is kept off."""
    event_dim = len(law.event_shape)
    log_jacobian, inside = jnp.zeros(()), jnp.asarray(True)
    for transform in reversed(law.transforms):
        batch = event_dim - transform.codomain.event_dim
        inside = inside & _all_last(_reaches(transform, y), batch)
        x = transform.inv(y)
        if distances is not None and transform.domain.event_dim == 0:
            at_edge = ~jnp.isfinite(_log_jacobian(transform, x, y)) & _is_bound(y, transform.codomain)
            y = jnp.where(at_edge, _off_the_edge(y, transform.codomain, *distances), y)
            x = jnp.where(at_edge, transform.inv(y), x)
        log_jacobian = log_jacobian + _sum_last(_log_jacobian(transform, x, y), batch)
        event_dim = transform.domain.event_dim + batch
        y = x
    extra = event_dim - len(law.base_dist.event_shape)
    density = _sum_last(base_log_prob(law.base_dist, y), extra) - log_jacobian
    return density, jnp.broadcast_to(inside, density.shape)


def _reaches(transform: Any, y: jax.Array) -> jax.Array:
    if isinstance(transform, AffineTransform):
        return ~jnp.isnan(y)  # what it cannot reach, the law before it knows
    if isinstance(transform, ExpTransform | PowerTransform):
        return y >= 0
    if transform.codomain is constraints.unit_interval:
        return (y >= 0) & (y <= 1)
    return transform.codomain(y)


def _log_jacobian(transform: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    if isinstance(transform, PowerTransform):
        return jnp.log(jnp.abs(transform.exponent)) + jnp.log(y) - jnp.log(x)  # where y / x would under- or overflow
    return transform.log_abs_det_jacobian(x, y)


def _is_bound(y: jax.Array, codomain: Any) -> jax.Array:
    return (y == getattr(codomain, "lower_bound", jnp.inf)) | (y == getattr(codomain, "upper_bound", -jnp.inf))


def _off_the_edge(y: jax.Array, codomain: Any, absolute: float, relative: float) -> jax.Array:
    upper = getattr(codomain, "upper_bound", jnp.inf)
    step = jnp.where(y == 0, absolute, relative * jnp.abs(y))
    return jnp.where(y == upper, y - step, y + step)


def _sum_last(array: jax.Array, axes: int) -> jax.Array:
    return jnp.sum(array, axis=tuple(range(-axes, 0))) if axes else array


def _all_last(array: jax.Array, axes: int) -> jax.Array:
    return jnp.all(array, axis=tuple(range(-axes, 0))) if axes else array
