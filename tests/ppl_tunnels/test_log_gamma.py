"""Remainders and ratios of gamma functions, against 50-digit decimal arithmetic."""

import functools
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

from ppl_tunnels.oracles.log_gamma import (
    deviance,
    digamma_remainder,
    log_beta,
    log_factorial_excess,
    log_gamma,
    log_gamma_excess,
    log_gamma_ratio,
    stirling_remainder,
)

EULER = Decimal("0.57721566490153286060651209008240243104215933593992")
HALF_LOG_2PI = Decimal("0.91893853320467274178032973640561763986139747363778")
LARGE = 30  # from here on, thirty terms of Stirling's series are good to fifty digits


@functools.cache
def bernoulli(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    return -sum((comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def digits(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / fraction.denominator


def exact_log_gamma(z: Decimal) -> Decimal:
    below = Decimal(0)
    while z < LARGE:
        below, z = below + z.ln(), z + 1
    series = sum(digits(bernoulli(2 * k)) / (2 * k * (2 * k - 1) * z ** (2 * k - 1)) for k in range(1, 31))
    return (z - Decimal("0.5")) * z.ln() - z + HALF_LOG_2PI + series - below


def exactly(function, *arguments) -> float:
    with localcontext() as context:
        context.prec = 50
        return float(function(*(Decimal(float(argument)) for argument in arguments)))


A = [1e-8, 0.01, 0.3, 1.0, 2.7, 7.999, 8.0, 37.25, 1e3, 12345.6, 1e6, 3e9]
S = [1e-9, 1e-3, 0.5, 1.0, 2.0, 5.0, 7.5, 8.0, 33.25, 1e3, 1e6]
PAIRS = [(a, sign * s) for a in A for s in S for sign in (1, -1) if a + sign * s > 0]


def test_ratios_of_either_sign_at_all_sizes():
    """Would catch a difference of log-gammas (1e-9 off at 1e6), a wrong sign of s, and a term of the series that is off."""
    a, s = np.array(PAIRS).T
    expected = np.array([exactly(lambda a, s: exact_log_gamma(a + s) - exact_log_gamma(a), *pair) for pair in PAIRS])
    np.testing.assert_allclose(log_gamma_ratio(a, s), expected, rtol=3e-15)


def test_the_grid_tells_a_difference_of_log_gammas():
    """Would catch a grid on which the fault that this file is about cannot be seen."""
    naive = gammaln(1e6 + 1) - gammaln(1e6)
    assert abs(float(naive) / np.log(1e6) - 1) > 1e-11
    assert float(log_gamma_ratio(1e6, 1.0)) == pytest.approx(np.log(1e6), rel=2e-16)


def test_whole_steps_are_products():
    """Would catch rounding where the ratio is a small whole number: one more success doubles the odds, exactly."""
    assert float(log_gamma_ratio(1.0, 1.0)) == 0.0
    assert float(log_gamma_ratio(2.0, -1.0)) == 0.0
    assert float(log_gamma_ratio(3.0, 2.0)) == np.log(12.0)
    assert float(log_gamma_ratio(5.0, -2.0)) == -np.log(12.0)
    assert float(log_gamma_ratio(0.25, 0.0)) == 0.0


Z = [1e-6, 0.3, 0.999, 1.0, 1.7, 2.0, 6.5, 7.9999, 8.0, 8.1, 100.0, 1e6]


def test_log_gamma_and_its_remainder():
    """Would catch a wrong Bernoulli number, or arguments below 8 that are raised by one step too few."""
    np.testing.assert_allclose(log_gamma(np.array(Z)), [exactly(exact_log_gamma, z) for z in Z], rtol=2e-15, atol=1e-40)

    def remainder(z):
        return exact_log_gamma(z) - (z - Decimal("0.5")) * z.ln() + z - HALF_LOG_2PI

    np.testing.assert_allclose(stirling_remainder(np.array(Z)), [exactly(remainder, z) for z in Z], rtol=0, atol=2e-15)

    def excess(z):
        return exact_log_gamma(z) - z * z.ln() + z

    np.testing.assert_allclose(log_gamma_excess(np.array(Z)), [exactly(excess, z) for z in Z], rtol=1e-15, atol=1e-15)
    counts = [0.0, 1.0, 2.0, 20.0, 1e4]
    known = [exactly(lambda k: exact_log_gamma(k + 1) - (k * k.ln() if k else 0) + k, k) for k in counts]
    np.testing.assert_allclose(log_factorial_excess(np.array(counts)), known, rtol=1e-15, atol=1e-15)


def test_the_remainder_of_digamma():
    """Would catch ψ computed and subtracted, which is 1e-10 off at 1e6, and a wrong Bernoulli number."""
    counts = [1, 2, 3, 7, 8, 9, 100, 3000]
    with localcontext() as context:
        context.prec = 50
        known = [float(Decimal(n).ln() + EULER - sum(1 / Decimal(k) for k in range(1, n))) for n in counts]
    np.testing.assert_allclose(digamma_remainder(np.array(counts, float)), known, rtol=0, atol=1e-15)
    np.testing.assert_allclose(digamma_remainder(np.array([1e6])), [0.5e-6 + 1 / 12e12], rtol=1e-15)


def test_log_beta():
    """Would catch JAX's betaln, which errs by 3e-7 once an argument reaches 8."""
    pairs = [(a, b) for a in A[1:] for b in A[1:]]
    expected = [
        exactly(lambda a, b: exact_log_gamma(a) + exact_log_gamma(b) - exact_log_gamma(a + b), *pair) for pair in pairs
    ]
    np.testing.assert_allclose(log_beta(*np.array(pairs).T), expected, rtol=3e-15, atol=1e-15)


def test_deviance():
    """Would catch x log(x / m) + m - x evaluated as written: near x = m it is all rounding."""
    pairs = [
        (x, x * f) for x in (1e-5, 1.0, 1e6) for f in (1e-5, 0.59, 0.61, 0.9, 0.999999, 1.0000001, 1.3, 1.66, 5, 1e5)
    ]
    expected = [exactly(lambda x, m: x * (x / m).ln() + m - x, *pair) for pair in pairs]
    np.testing.assert_allclose(deviance(*np.array(pairs).T), expected, rtol=3e-15)
    at_edges = deviance(np.array([0.0, 0.0, 2.0, 2.0, 1e-300]), np.array([0.0, 3.0, 0.0, 2.0, 1e-300]))
    assert np.asarray(at_edges).tolist() == [0.0, 3.0, np.inf, 0.0, 0.0]


@pytest.mark.parametrize("function", [log_gamma_ratio, log_beta, deviance])
def test_all_broadcast_and_pass_through_jit_and_vmap(function):
    """Would catch a Python decision on a value, and shapes that only scalars survive."""
    a, s = jnp.array([0.5, 3.0, 1e5]), jnp.array([[1.0], [2.5]])
    together = function(a, s)
    assert together.shape == (2, 3) and together.dtype == jnp.float64
    np.testing.assert_allclose(jax.jit(function)(a, s), together, rtol=1e-15)
    rows = jax.vmap(function, in_axes=(None, 0))(a, s[:, 0])
    np.testing.assert_allclose(rows, together, rtol=1e-15)
