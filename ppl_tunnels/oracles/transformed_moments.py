"""Means and variances of y = t_n(… t_1(x)) in closed form, from the moments of x.

Shifts, scales and new shapes carry them over. Of the curved transforms, exp of a normal or a gamma variable and powers of a
gamma variable have moments of their own, with m = E y:

    x ~ N(μ, v):             m = exp(μ + v / 2),               var y = m² (exp(v) - 1)
    l + s x, x ~ Gamma(a, r): m = exp(l) (1 - s/r)^(-a),       var y = m² ((1 + (s/r)² / (1 - 2 s/r))^a - 1)
    x^k, x ~ Gamma(a, r):    m = r^(-k) Γ(a + k) / Γ(a),       var y = m² (exp(D) - 1)

where D = log Γ(a + 2k) - 2 log Γ(a + k) + log Γ(a) is small for large a, and taken from Stirling's series term by term, in
which what is large cancels by algebra. Moments that do not exist are infinite.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform, ExpTransform, PowerTransform, ReshapeTransform

from ppl_tunnels.oracles.log_gamma import deviance, log_gamma_ratio, stirling_remainder

Moments = tuple[jax.Array, jax.Array]


def transformed_moments(base: Any, transforms: list[Any]) -> Moments:
    """Mean and variance of every number of y, `[*batch, *event]` each.

    Args:
        base: the law of x, with `mean` and `variance`.
        transforms: of NumPyro, the first applied first.

    Raises:
        NotImplementedError: no closed form is known here; the law and the transform are named.

    Example:
        >>> precision = dist.Gamma(3.0, 2.0)
        >>> mean, variance = transformed_moments(precision, [PowerTransform(-1.0)])  # an inverse gamma law
        >>> print(f"{mean:.6f} {variance:.6f}")
        1.000000 1.000000
    """
    moments: Moments = jnp.asarray(base.mean), jnp.asarray(base.variance)
    loc, scale, curved = jnp.zeros(()), jnp.ones(()), False
    for index, transform in enumerate(transforms):
        if isinstance(transform, AffineTransform):
            mean, variance = moments
            shift, factor = jnp.asarray(transform.loc), jnp.asarray(transform.scale)
            moments = shift + factor * mean, jnp.square(factor) * variance
            loc, scale = shift + factor * loc, factor * scale
        elif isinstance(transform, ReshapeTransform):
            moments = jnp.asarray(transform(moments[0])), jnp.asarray(transform(moments[1]))
        elif isinstance(transform, ExpTransform) and not curved and _is_normal(base):
            moments, curved = _exponential_of_normal(*moments), True
        elif isinstance(transform, ExpTransform) and not curved and isinstance(base, dist.Gamma):
            slope = scale / jnp.asarray(base.rate)
            moments, curved = _exponential_of_gamma(jnp.asarray(base.concentration), slope, loc), True
        elif isinstance(transform, PowerTransform) and index == 0 and isinstance(base, dist.Gamma):
            numbers = (jnp.asarray(each) for each in (base.concentration, base.rate, transform.exponent))
            moments, curved = _power_of_gamma(*numbers), True
        else:
            raise NotImplementedError(
                f"the mean and variance of {type(base).__name__} under {type(transform).__name__} have no closed form here; "
                "integrate over the law's log_prob, or average over its draws"
            )
    return moments


def _is_normal(base: Any) -> bool:
    return isinstance(base, dist.Normal | dist.MultivariateNormal)


def _exponential_of_normal(mean: jax.Array, variance: jax.Array) -> Moments:
    return _from_logs(mean + variance / 2, variance)


def _exponential_of_gamma(shape: jax.Array, slope: jax.Array, loc: jax.Array) -> Moments:
    """Of loc + slope · x with x ~ Gamma(shape, 1)."""
    once, twice = slope < 1, 2 * slope < 1
    log_mean = loc - shape * jnp.log1p(-jnp.where(once, slope, 0.0))
    safe = jnp.where(twice, slope, 0.0)
    growth = shape * jnp.log1p(jnp.square(safe) / (1 - 2 * safe))
    return _from_logs(jnp.where(once, log_mean, jnp.inf), jnp.where(twice, growth, jnp.inf))


def _power_of_gamma(shape: jax.Array, rate: jax.Array, exponent: jax.Array) -> Moments:
    once, twice = shape + exponent > 0, shape + 2 * exponent > 0
    safe = jnp.where(once, exponent, 0.0)
    log_mean = log_gamma_ratio(shape, safe) - safe * jnp.log(rate)
    growth = _second_difference(shape, jnp.where(twice, exponent, 0.0))
    return _from_logs(jnp.where(once, log_mean, jnp.inf), jnp.where(twice, growth, jnp.inf))


def _second_difference(shape: jax.Array, step: jax.Array) -> jax.Array:
    """log Γ(a + 2k) - 2 log Γ(a + k) + log Γ(a), relatively exact for large a too."""
    middle, far = shape + step, shape + 2 * step
    powers = deviance(far, middle) + deviance(shape, middle) - 0.5 * jnp.log1p(-jnp.square(step / middle))
    return powers + stirling_remainder(far) - 2 * stirling_remainder(middle) + stirling_remainder(shape)


def _from_logs(log_mean: jax.Array, growth: jax.Array) -> Moments:
    """From log E y and log E y² - 2 log E y."""
    mean = jnp.exp(log_mean)
    endless = jnp.isinf(log_mean) | jnp.isinf(growth)
    variance = jnp.exp(2 * jnp.where(endless, 0.0, log_mean)) * jnp.expm1(jnp.where(endless, 0.0, growth))
    return mean, jnp.where(endless, jnp.inf, variance)
