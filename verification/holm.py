"""Several tests at once: Holm's step-down procedure.

Of m hypotheses with ordered p-values p_(1) <= ... <= p_(m), reject in order while p_(i) <= alpha / (m - i + 1). The
probability of rejecting any true hypothesis is at most alpha, whatever the dependence between the tests. The adjusted
p-value of a hypothesis is the smallest alpha at which it is rejected: the largest (m - j + 1) p_(j) with j <= i, at
most 1.

Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Holm(NamedTuple):
    """Which hypotheses are rejected; both fields have the shape of the p-values."""

    rejected: np.ndarray  # bool: with probability 1 - alpha, none of the rejected hypotheses is true
    adjusted: np.ndarray  # float64: the smallest alpha at which this hypothesis would be rejected


def holm(p_values: ArrayLike, *, alpha: float) -> Holm:
    """Reject what can be rejected with a familywise error of alpha.

    Args:
        p_values: any shape, each in [0, 1]; all of them together are the family, and an empty family rejects nothing.
        alpha: the probability of one false rejection or more that is accepted, in (0, 1).

    Raises:
        ValueError: a p-value that is NaN or outside [0, 1] (its index is named), or alpha outside (0, 1).

    Example:
        >>> holm([0.01, 0.04, 0.03], alpha=0.05).rejected.tolist()
        [True, False, False]
        >>> holm([0.01, 0.04, 0.03], alpha=0.05).adjusted.round(2).tolist()
        [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    valid = (p >= 0) & (p <= 1)  # False for NaN
    if not valid.all():
        index = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise ValueError(f"p_values[{', '.join(map(str, index))}] is {float(p[index])}; expected a number from 0 to 1")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; expected a number strictly between 0 and 1, such as 0.01")
    order = np.argsort(p, axis=None, kind="stable")
    remaining = np.arange(p.size, 0, -1)
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(remaining * p.reshape(-1)[order]), 1.0)
    adjusted = adjusted.reshape(p.shape)
    return Holm(rejected=adjusted <= alpha, adjusted=adjusted)
