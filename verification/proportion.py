"""Exact one-sided bounds for a proportion, after k successes in n trials (n fixed in advance).

The upper bound is the p at which k successes or fewer have probability exactly alpha: the 1 - alpha quantile of
Beta(k + 1, n - k). The lower bound is the p at which k or more have probability alpha: the alpha quantile of
Beta(k, n - k + 1).

Source: Clopper and Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of the binomial".
"""

import operator

from scipy.special import betainccinv, betaincinv


def clopper_pearson_upper(successes: int, trials: int, *, confidence: float) -> float:
    """The largest proportion that k successes in n trials do not rule out at this confidence.

    Args:
        successes: k, from 0 to n.
        trials: n, at least 1.
        confidence: in (0, 1), one-sided.

    Raises:
        ValueError: counts out of order, or a confidence outside (0, 1).
        TypeError: counts that are not integers.

    Example:
        >>> round(clopper_pearson_upper(0, 4603, confidence=0.99), 6)  # 1 - .01 ** (1 / 4603)
        0.001
    """
    k, n = _checked(successes, trials, confidence)
    return 1.0 if k == n else float(betainccinv(k + 1, n - k, 1 - confidence))


def clopper_pearson_lower(successes: int, trials: int, *, confidence: float) -> float:
    """The smallest proportion that k successes in n trials do not rule out; all else as `clopper_pearson_upper`.

    Example:
        >>> round(clopper_pearson_lower(5, 5, confidence=0.99), 3)  # "5 of 5 training seeds certified"
        0.398
    """
    k, n = _checked(successes, trials, confidence)
    return 0.0 if k == 0 else float(betaincinv(k, n - k + 1, 1 - confidence))


def _checked(successes: int, trials: int, confidence: float) -> tuple[int, int]:
    k, n = operator.index(successes), operator.index(trials)
    if not 0 <= k <= n or n == 0:
        raise ValueError(f"{k} successes in {n} trials; expected 0 <= successes <= trials and at least one trial")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number strictly between 0 and 1, such as 0.99")
    return k, n
