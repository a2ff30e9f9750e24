"""Confidence bounds for the mean of i.i.d. X in [0, R], R known in advance, that hold at every sample size.

A gambler who believes that E X < m stakes the fraction c of their wealth on it at every observation, at odds that are
fair if E X = m. The wealth, averaged over five fixed fractions, is the e-value

    E(m) = mean over c in {.25, .5, .75, .9, .99} of prod_i (1 + c (m - x_i) / (R - m)).

If E X >= m, then E(m) is a nonnegative supermartingale in n that starts at 1, so the probability that it ever reaches
1/alpha is at most alpha (Ville's inequality): "the mean is below m" may be claimed at any stopping time. E(m) increases
with m, so what can be claimed is every m from the upper bound on. The mirror image bets that E X > m, with
(x_i - m) / m in place of (m - x_i) / (R - m), and gives the lower bound.

Nothing is assumed about the shape of the law of X. Bounds that do so (Student's t, the bootstrap) certify falsely when
errors are rare and large.

Sources: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", sections 3 and 4;
the fixed mixture of constant bets is theirs with a five-point prior.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ppl_tunnels.verification.bounded_sample import checked_sample, log_inverse_alpha, per_column

# Fractions of the wealth put at stake: small ones win for noisy errors, large ones for nearly constant errors.
BETS = (0.25, 0.5, 0.75, 0.9, 0.99)
# Of [mean, R]: the bound is the safe end of the last bracket, which is 1e-12 R wide.
HALVINGS = 40
# Nats of ln E(m) that rounding could add per observation, at most. In units of 2**-53: 400 for a factor 1 + c t >= .01
# (four roundings in c t, each magnified by |c t| / (1 + c t) <= 99), 1,200 for the sum of logarithms, each below 37.
ROUNDING_PER_OBSERVATION = 2.0**-42
# Factors lie in [.01, 2**53 + 1]: the product of this many neither overflows nor underflows, and needs one logarithm.
FACTORS_PER_LOG = 16


def log_evalue_mean_at_least(x: ArrayLike, m: ArrayLike, *, range_: ArrayLike) -> Any:
    """ln of the e-value E(m) against "the mean is at least m".

    Args:
        x: `[episode]` or `[episode, column]`, i.i.d. over episodes, in [0, R].
        m: in [0, R], a scalar or `[column]`; at R itself the (weaker) evidence just below R is returned.
        range_: R, in the units of x; a scalar or `[column]`. For a variable in [a, b] pass x - a, m - a and b - a.

    Returns:
        Nats; a float, or `[column]`. Values of ln(1/alpha) or more reject at level alpha, at any stopping time.

    Raises:
        ValueError: a NaN or a value out of range (its index is named), an empty x, or m outside [0, R].

    Example:
        >>> round(float(log_evalue_mean_at_least([0.0] * 60, 0.1, range_=1.0)), 3)
        5.279
    """
    return _checked_log_evalue(x, m, range_, _mean_at_least)


def log_evalue_mean_at_most(x: ArrayLike, m: ArrayLike, *, range_: ArrayLike) -> Any:
    """ln of the e-value against "the mean is at most m": the mirror image, E for R - x at R - m.

    Arguments, result and errors are those of `log_evalue_mean_at_least`.

    Example:
        >>> round(float(log_evalue_mean_at_most([1.0] * 60, 0.9, range_=1.0)), 3)
        5.279
    """
    return _checked_log_evalue(x, m, range_, _mean_at_most)


def p_value(log_evalue: ArrayLike) -> Any:
    """min(1, 1/E), a p-value by Markov's inequality, from ln E in nats (any shape).

    Raises:
        ValueError: a NaN.

    Example:
        >>> float(p_value(-3.0)), round(float(p_value(np.log(100.0))), 6)
        (1.0, 0.01)
    """
    nats = np.asarray(log_evalue, dtype=np.float64)
    if np.isnan(nats).any():
        raise ValueError(f"log_evalue is {log_evalue}; expected numbers: a NaN is no evidence for or against a claim")
    return np.exp(-np.maximum(nats, 0.0))


def upper_bound(x: ArrayLike, *, range_: ArrayLike, confidence: float) -> Any:
    """An upper confidence bound for the mean: the smallest m with E(m) >= 1 / (1 - confidence), rounded up.

    Args:
        x: `[episode]` or `[episode, column]`, i.i.d. over episodes, in [0, R].
        range_: R, known in advance, in the units of x; a scalar or `[column]`.
        confidence: in (0, 1); each column's bound holds with this probability by itself.

    Returns:
        A float, or `[column]`, in the units of x: from the sample mean to R, and at most 1e-11 R above the root.

    Raises:
        ValueError: a NaN or a value out of range (its index is named), an empty x, a confidence outside (0, 1).

    Example:
        >>> round(float(upper_bound([0.1] * 1000, range_=1.0, confidence=0.99)), 4)
        0.105
    """
    rows, ranges = checked_sample(x, range_=range_)
    return _shaped(_bisect(rows, ranges, confidence, _mean_at_least, end=ranges), x)


def lower_bound(x: ArrayLike, *, range_: ArrayLike, confidence: float) -> Any:
    """A lower confidence bound for the mean, rounded down; arguments and errors are those of `upper_bound`.

    Returns:
        A float, or `[column]`: at most the sample mean, at least 0. The two bounds together hold with probability
        2 * confidence - 1.

    Example:
        >>> round(float(lower_bound([0.1] * 1000, range_=1.0, confidence=0.99)), 4)
        0.0994
    """
    rows, ranges = checked_sample(x, range_=range_)
    return _shaped(_bisect(rows, ranges, confidence, _mean_at_most, end=np.zeros_like(ranges)), x)


# A null maps rows [column, episode], m and R [column, 1] to the payoff t, whose mean is <= 0 if the null is true: the
# bet c multiplies wealth by 1 + c t. Within 2**-53 R of the end of the range where t would be infinite, a null that is
# implied by the one asked about, and has less evidence against it, is tested in its place.
_Null = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _mean_at_least(rows: np.ndarray, m: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    m = np.minimum(m, np.nextafter(ranges, 0.0))
    return (m - rows) / (ranges - m)


def _mean_at_most(rows: np.ndarray, m: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    m = np.maximum(m, 2.0**-53 * ranges)
    return (rows - m) / m


def _log_evalue(rows: np.ndarray, m: np.ndarray, ranges: np.ndarray, null: _Null) -> np.ndarray:
    """ln E(m), nats `[column]`, for rows `[column, episode]`; valid rows only."""
    payoff = null(rows, m[:, None], ranges[:, None])
    columns, n = payoff.shape
    groups = -(-n // FACTORS_PER_LOG)
    factors = np.ones((columns, FACTORS_PER_LOG * groups))  # the tail beyond n stays 1, whose logarithm is 0
    wealth = np.empty((len(BETS), columns))
    for i, bet in enumerate(BETS):
        np.multiply(payoff, bet, out=factors[:, :n])
        factors[:, :n] += 1.0
        products = np.multiply.reduce(factors.reshape(columns, FACTORS_PER_LOG, groups), axis=1)
        wealth[i] = np.log(products).sum(axis=1)
    return np.logaddexp.reduce(wealth, axis=0) - np.log(len(BETS))


def _bisect(rows: np.ndarray, ranges: np.ndarray, confidence: float, null: _Null, *, end: np.ndarray) -> np.ndarray:
    """The bound `[column]` between the sample mean, where E <= 1, and the end of the range, which needs no evidence."""
    wanted = log_inverse_alpha(confidence) + ROUNDING_PER_OBSERVATION * rows.shape[1]
    unrefuted, refuted = rows.mean(axis=1), end
    for _ in range(HALVINGS):
        middle = (unrefuted + refuted) / 2
        proved = _log_evalue(rows, middle, ranges, null) >= wanted
        refuted, unrefuted = np.where(proved, middle, refuted), np.where(proved, unrefuted, middle)
    return refuted


def _checked_log_evalue(x: ArrayLike, m: ArrayLike, range_: ArrayLike, null: _Null) -> Any:
    rows, ranges = checked_sample(x, range_=range_)
    thresholds = np.broadcast_to(per_column(m, np.shape(x)[1:], name="m"), ranges.shape)
    inside = (thresholds >= 0) & (thresholds <= ranges)
    if not inside.all():
        raise ValueError(
            f"m is {m} and range_ {range_}; expected 0 <= m <= range_: no mean lies elsewhere, so a tolerance "
            "beyond the range claims nothing; choose a smaller one"
        )
    return _shaped(_log_evalue(rows, thresholds, ranges, null), x)


def _shaped(result: np.ndarray, x: ArrayLike) -> Any:
    return result.reshape(np.shape(x)[1:])[()]
