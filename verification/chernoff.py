"""The Chernoff-KL bound for the mean of n i.i.d. values in [0, R]: the one that anyone can recompute by hand.

With kl(a, b) = a ln(a/b) + (1 - a) ln((1 - a)/(1 - b)) and the sample mean xbar, the upper bound is the largest m with
n kl(xbar/R, m/R) <= ln(1/alpha), the lower bound the smallest. It uses nothing of the data but n and xbar, so it is
wide where errors vary little.

It holds at an n fixed in advance ONLY: stop when it looks good, and it is no bound (`bounds` has one that allows this).

Source: Hoeffding (1963), "Probability inequalities for sums of bounded random variables", theorem 1, inequality (2.1).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from ppl_tunnels.verification.bounded_sample import checked_sample, log_inverse_alpha

HALVINGS = 60  # of [0, 1]: the bracket then is as narrow as float64 allows
# Nats by which rounding could raise n kl, per observation: the mean is good to 2**-48 and the slope of kl in it stays
# below 60 ln 2 = 42 inside the brackets; a dozen roundings of 2**-53 in kl itself are small beside that.
ROUNDING_PER_OBSERVATION = 2.0**-42


def chernoff_upper_bound(x: ArrayLike, *, range_: ArrayLike, confidence: float) -> Any:
    """An upper confidence bound for the mean, valid at a sample size fixed in advance only; rounded up.

    Args:
        x: `[episode]` or `[episode, column]`, i.i.d. over episodes, in [0, R].
        range_: R, known in advance, in the units of x; a scalar or `[column]`.
        confidence: in (0, 1), for each column by itself.

    Returns:
        A float, or `[column]`, in the units of x, between the sample mean and R.

    Raises:
        ValueError: a NaN or a value out of range (its index is named), an empty x, a confidence outside (0, 1).

    Example:
        >>> round(float(chernoff_upper_bound([0.0] * 100, range_=1.0, confidence=0.99)), 6)  # 1 - .01 ** .01
        0.045007
    """
    return _bound(x, range_, confidence, end=1.0)


def chernoff_lower_bound(x: ArrayLike, *, range_: ArrayLike, confidence: float) -> Any:
    """A lower confidence bound, rounded down; all else as `chernoff_upper_bound`.

    Example:
        >>> round(float(chernoff_lower_bound([1.0] * 100, range_=1.0, confidence=0.99)), 6)  # .01 ** .01
        0.954993
    """
    return _bound(x, range_, confidence, end=0.0)


def _bound(x: ArrayLike, range_: ArrayLike, confidence: float, *, end: float) -> Any:
    rows, ranges = checked_sample(x, range_=range_)
    n = rows.shape[1]
    wanted = log_inverse_alpha(confidence) + ROUNDING_PER_OBSERVATION * n
    mean = np.minimum(rows.mean(axis=1) / ranges, 1.0)
    unrefuted, refuted = mean, np.full_like(mean, end)
    for _ in range(HALVINGS):
        middle = (unrefuted + refuted) / 2
        proved = n * (rel_entr(mean, middle) + rel_entr(1.0 - mean, 1.0 - middle)) >= wanted
        refuted, unrefuted = np.where(proved, middle, refuted), np.where(proved, unrefuted, middle)
    outward = np.nextafter(refuted * ranges, end * ranges)
    return outward.reshape(np.shape(x)[1:])[()]
