"""Logarithms of gamma functions as exact laws need them: as remainders and ratios, never as differences of large numbers.

With Stirling's series  log Γ(z) = (z - 1/2) log z - z + 1/2 log 2π + δ(z),  δ(z) = 1/(12 z) - 1/(360 z³) + ...,  the large
terms of every law here cancel by algebra, and what remains is made of

    δ(z),    ρ(z) = log z - ψ(z),    d(x, m) = x log(x / m) + m - x ≥ 0,

each accurate where log Γ itself would leave an error of 1e-9 (at z = 1e6). Arguments below 8 are raised by
δ(z) - δ(z + 1) = (z + 1/2) log(1 + 1/z) - 1. Everything broadcasts, and passes through jit and vmap; double precision needs
`jax.enable_x64(True)` around the call.

Source: Abramowitz and Stegun (1964), 6.1.40 and 6.3.18; Loader (2000), "Fast and accurate computation of binomial
probabilities", for d.
"""

import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Bernoulli numbers B_2 ... B_20: from z = 8 on, the first term left out is below 1e-17.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, start=1))
_DIGAMMA = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, start=1))
_SHIFT = 8  # also the most factors that Γ(a + s) / Γ(a) is multiplied out to
# Terms of the series of d about x = m: (1/4)^(2 · 14) is below the rounding of the first.
_DEVIANCE_TERMS = 14


def _polynomial(coefficients: Iterable[float], x: jax.Array) -> jax.Array:
    total = jnp.zeros_like(x)
    for coefficient in reversed(tuple(coefficients)):
        total = total * x + coefficient
    return total


def _raised(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """z itself from 8 on, z + 8 below, and where that is."""
    small = z < _SHIFT
    return jnp.where(small, z + _SHIFT, z), small


def _stairs(z: jax.Array) -> jax.Array:
    """z, z + 1, …, z + 7 along a new last axis."""
    return z[..., None] + np.arange(_SHIFT)


@jax.jit
def stirling_remainder(z) -> jax.Array:
    """δ(z) = log Γ(z) - [(z - 1/2) log z - z + 1/2 log 2π] for z > 0, broadcast; absolute error about 1e-16.

    Example:
        >>> print(round(float(stirling_remainder(1.0)), 12))  # 1 - 1/2 log 2π
        0.081061466795
    """
    z = jnp.asarray(z, jnp.result_type(float))
    raised, small = _raised(z)
    remainder = _polynomial(_STIRLING, 1 / (raised * raised)) / raised
    stairs = _stairs(z)
    steps = jnp.sum((stairs + 0.5) * jnp.log1p(1 / stairs) - 1, axis=-1)
    return remainder + jnp.where(small, steps, 0.0)


@jax.jit
def digamma_remainder(z) -> jax.Array:
    """ρ(z) = log z - ψ(z) for z > 0, broadcast: 1/(2z) for large z, where the difference itself would cancel.

    Example:
        >>> print(round(float(digamma_remainder(1.0)), 12))  # Euler's constant
        0.577215664902
    """
    z = jnp.asarray(z, jnp.result_type(float))
    raised, small = _raised(z)
    remainder = 0.5 / raised + _polynomial(_DIGAMMA, 1 / (raised * raised)) / (raised * raised)
    stairs = _stairs(z)
    steps = jnp.sum(1 / stairs - jnp.log1p(1 / stairs), axis=-1)
    return remainder + jnp.where(small, steps, 0.0)


@jax.jit
def log_gamma(z) -> jax.Array:
    """log Γ(z) for z > 0, broadcast.

    Example:
        >>> print(round(float(log_gamma(5.0)), 12))  # log 24
        3.178053830348
    """
    z = jnp.asarray(z, jnp.result_type(float))
    above = jnp.where(z < 0.5, z, z - 1)
    ratio = log_gamma_ratio(jnp.ones_like(z), above)
    return jnp.where(z < 0.5, ratio - jnp.log(z), ratio)


@jax.jit
def log_gamma_excess(z) -> jax.Array:
    """log Γ(z) - z log z + z for z > 0, broadcast: what is left of log Γ where the large terms cancel."""
    z = jnp.asarray(z, jnp.result_type(float))
    return HALF_LOG_2PI - 0.5 * jnp.log(z) + stirling_remainder(z)


@jax.jit
def log_factorial_excess(k) -> jax.Array:
    """log k! - k log k + k for k ≥ 0, broadcast; 0 at k = 0.

    Example:
        >>> print(log_factorial_excess(0.0), round(float(log_factorial_excess(1.0)), 12))
        0.0 1.0
    """
    k = jnp.asarray(k, jnp.result_type(float))
    positive = jnp.where(k > 0, k, 1.0)
    excess = HALF_LOG_2PI + 0.5 * jnp.log(positive) + stirling_remainder(positive)
    return jnp.where(k > 0, excess, 0.0)


@jax.jit
def deviance(x, m) -> jax.Array:
    """d(x, m) = x log(x / m) + m - x for x, m ≥ 0, broadcast; 0 where x = m, infinite where m = 0 < x.

    Example:
        >>> print(deviance(3.0, 3.0), deviance(0.0, 2.0), deviance(1.0, 0.0))
        0.0 2.0 inf
    """
    x, m = jnp.asarray(x, jnp.result_type(float)), jnp.asarray(m, jnp.result_type(float))
    total = x + m
    v = (x - m) / jnp.where(total > 0, total, 1.0)
    near = jnp.abs(v) < 0.25
    square = jnp.where(near, v * v, 0.0)
    # log((1 + v) / (1 - v)) = 2 (v + v³/3 + ...), and x - m = v (x + m).
    series = (x - m) * v + 2 * x * v * square * _polynomial((1 / (2 * j + 3) for j in range(_DEVIANCE_TERMS)), square)
    ratio = x / m
    log_ratio = jnp.where((ratio > 0) & (ratio < jnp.inf), jnp.log(ratio), jnp.log(x) - jnp.log(m))
    far = jnp.where(x > 0, x * jnp.where(x > 0, log_ratio, 0.0), 0.0) + m - x
    return jnp.where(near, series, jnp.where(jnp.isinf(m), jnp.inf, far))


@jax.jit
def log_gamma_ratio(a, s) -> jax.Array:
    """log Γ(a + s) - log Γ(a) for a > 0 and a + s > 0, s of either sign; relative error a few 1e-16 for large a too.

    Args:
        a: positive.
        s: above -a; broadcasts with a.

    Returns:
        Natural logarithms, in the broadcast shape.

    Example:
        >>> print(round(float(log_gamma_ratio(3.0, 2.0)), 12))  # log(3 · 4)
        2.484906649788
    """
    a, s = jnp.broadcast_arrays(jnp.asarray(a, jnp.result_type(float)), jnp.asarray(s, jnp.result_type(float)))
    low, step = jnp.where(s < 0, a + s, a), jnp.abs(s)
    few = (step == jnp.round(step)) & (step <= _SHIFT) & (low < 1e30)
    taken = few[..., None] & (np.arange(_SHIFT) < step[..., None])
    factors = jnp.prod(jnp.where(taken, _stairs(low), 1.0), axis=-1)
    ratio = jnp.where(few, jnp.log(factors), _rise(low, step))
    return jnp.where(s < 0, -ratio, ratio)


def _rise(a: jax.Array, s: jax.Array) -> jax.Array:
    """log Γ(a + s) - log Γ(a) for s ≥ 0, from the difference of Stirling's series, taken term by term."""
    raised, small = _raised(a)
    fraction = raised / (raised + s)
    # fraction^(2k-1) - 1 = (fraction - 1)(1 + fraction + ... ), without cancellation for small s.
    power, geometric, difference, scale = fraction, jnp.ones_like(a), jnp.zeros_like(a), 1 / raised
    for coefficient in _STIRLING:
        difference = difference + coefficient * scale * geometric
        geometric = geometric + power + power * fraction
        power, scale = power * fraction * fraction, scale / (raised * raised)
    difference = -s / (raised + s) * difference
    main = (raised - 0.5) * jnp.log1p(s / raised) + s * (jnp.log(raised + s) - 1) + difference
    return main - jnp.where(small, jnp.sum(jnp.log1p(s[..., None] / _stairs(a)), axis=-1), 0.0)


@jax.jit
def log_beta(a, b) -> jax.Array:
    """log B(a, b) = log Γ(a) + log Γ(b) - log Γ(a + b) for a, b > 0, broadcast.

    Example:
        >>> print(round(float(log_beta(2.0, 3.0)), 12))  # log(1 / 12)
        -2.484906649788
    """
    a, b = jnp.asarray(a, jnp.result_type(float)), jnp.asarray(b, jnp.result_type(float))
    large, small = jnp.maximum(a, b), jnp.minimum(a, b)
    powers = -large * jnp.log1p(small / large) - small * jnp.log1p(large / small)
    remainders = stirling_remainder(large) - stirling_remainder(large + small) + stirling_remainder(small)
    return powers + HALF_LOG_2PI + 0.5 * (jnp.log1p(small / large) - jnp.log(small)) + remainders
