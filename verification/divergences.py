"""How far a predicted law q is from the exact law p, both over the same finite set, in bits; one number per prediction.

    H(p) = sum of -p log2 p                      KL(p || q) = sum of p log2(p / q)
    TV(p, q) = 1/2 sum of |p - q|                JS(p, q) = 1/2 KL(p || (p + q)/2) + 1/2 KL(q || (p + q)/2)

with 0 log 0 = 0. KL is infinite where q is 0 and p is not, and a finite-sample bound needs a range: what is certified
is the floored predictor (1 - d) q + d / V, whose KL is at most log2(V / d). With -log2(1 - d) = tolerance / 10,
flooring adds at most a tenth of the tolerance to the KL of any q.

Source: Cover and Thomas (2006), chapter 2; Lin (1991) for JS.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, rel_entr

from ppl_tunnels.verification.finite_laws import checked_laws, checked_pair

FLOOR_SHARE = 0.1  # of the tolerance: the most that flooring can add to a model's KL


def entropy_bits(p: ArrayLike) -> np.ndarray:
    """H(p) along the last axis.

    Args:
        p: `[..., symbol]`, each law nonnegative with sum 1 (to 1e-6).

    Returns:
        `[...]` float64 bits, in [0, log2 V].

    Raises:
        ValueError: a NaN, a negative number or a sum other than 1; the position is named.

    Example:
        >>> round(float(entropy_bits([0.25, 0.0, 0.75])), 6)
        0.811278
    """
    return _entropy(checked_laws(p, "p"))


def kl_bits(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """KL(p || q) along the last axis; +inf where q is 0 and p is not, exactly 0 where q equals p.

    Where sums miss 1 by rounding, this cancels to first order, because the sum of (q - p) / ln 2 is added: the KL of a
    float32 law is not off by 1e-7 bits because its sum is.

    Args:
        p: the exact law, `[..., symbol]`.
        q: the predicted law, the same number of symbols; other axes broadcast.

    Returns:
        `[...]` float64 bits, in [0, inf].

    Raises:
        ValueError: a NaN, a negative number or a sum other than 1 (the position is named), or shapes that do not match.

    Example:
        >>> kl_bits([0.5, 0.5], [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]).round(6).tolist()
        [0.207519, 0.0, inf]
    """
    return _relative_entropy(*checked_pair(p, q))


def total_variation(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """The largest difference in probability that p and q give any event; `[...]`, in [0, 1].

    Arguments and errors are those of `kl_bits`.

    Example:
        >>> float(total_variation([0.5, 0.5], [0.25, 0.75]))
        0.25
    """
    exact, predicted = checked_pair(p, q)
    return np.minimum(np.abs(exact - predicted).sum(axis=-1) / 2, 1.0)


def jensen_shannon_bits(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """The Jensen-Shannon divergence along the last axis; `[...]` bits, in [0, 1], symmetric.

    Arguments and errors are those of `kl_bits`.

    Example:
        >>> float(jensen_shannon_bits([1.0, 0.0], [0.0, 1.0]))
        1.0
    """
    exact, predicted = checked_pair(p, q)
    both = exact + predicted  # compared with 2 p and 2 q, because half of the smallest float64 is 0
    return np.minimum((_relative_entropy(2 * exact, both) + _relative_entropy(2 * predicted, both)) / 4, 1.0)


def entropy_error_bits(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """|H(q) - H(p)|, the published criterion; `[...]` bits, in [0, log2 V]. Swapping two labels leaves it at 0.

    Taken for each prediction, before any average: errors of opposite sign must not cancel. Arguments and errors are
    those of `kl_bits`.

    Example:
        >>> float(entropy_error_bits([0.9, 0.1], [0.1, 0.9]))
        0.0
    """
    exact, predicted = checked_pair(p, q)
    return np.abs(_entropy(predicted) - _entropy(exact))


def floored(q: ArrayLike, tolerance_bits: float) -> np.ndarray:
    """(1 - d) q + d / V with d = `kl_floor(tolerance_bits)`; `[..., symbol]`, float64.

    A q that is 0 where the exact law is not must be reported before flooring: afterwards it cannot be seen.

    Raises:
        ValueError: as for `entropy_bits`, or a tolerance that is not positive and finite.

    Example:
        >>> floored([1.0, 0.0], tolerance_bits=0.01).round(6).tolist()
        [0.999654, 0.000346]
    """
    predicted, d = checked_laws(q, "q"), kl_floor(tolerance_bits)
    return (1 - d) * predicted + d / predicted.shape[-1]


def kl_floor(tolerance_bits: float) -> float:
    """d, the mass that flooring spreads evenly: -log2(1 - d) = tolerance / 10.

    Raises:
        ValueError: a tolerance that is not positive and finite.

    Example:
        >>> round(kl_floor(0.01), 8)
        0.00069291
    """
    return float(-np.expm1(-FLOOR_SHARE * np.log(2) * _tolerance(tolerance_bits)))


def kl_range_bits(symbols: int, tolerance_bits: float) -> float:
    """log2(V / d), the largest KL(p || floored q) can be; less H(p), where every p has at least that entropy.

    Args:
        symbols: V, the number of symbols, at least 1.
        tolerance_bits: fixes d.

    Raises:
        ValueError: V below 1, or a tolerance that is not positive and finite.

    Example:
        >>> round(kl_range_bits(20, 0.01), 4)
        14.817
    """
    if not symbols >= 1:
        raise ValueError(f"symbols is {symbols}; expected the number of symbols, at least 1")
    return float(np.log2(symbols / kl_floor(tolerance_bits)))


def total_variation_tolerance(tolerance_bits: float) -> float:
    """sqrt(tolerance ln 2 / 2): the total variation that Pinsker's inequality allows at this KL.

    Raises:
        ValueError: a tolerance that is not positive and finite.

    Example:
        >>> round(total_variation_tolerance(0.01), 4)
        0.0589
    """
    return float(np.sqrt(_tolerance(tolerance_bits) * np.log(2) / 2))


def _entropy(p: np.ndarray) -> np.ndarray:
    return np.clip(entr(p).sum(axis=-1) / np.log(2), 0.0, np.log2(p.shape[-1]))


def _relative_entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    # scipy's kl_div adds q - p as well, but is infinite for a subnormal q; rel_entr is not.
    return np.maximum((rel_entr(p, q) + (q - p)).sum(axis=-1) / np.log(2), 0.0)


def _tolerance(tolerance_bits: float) -> float:
    if not 0 < tolerance_bits < np.inf:
        raise ValueError(f"tolerance_bits is {tolerance_bits}; expected a positive finite number of bits, such as 0.01")
    return float(tolerance_bits)
