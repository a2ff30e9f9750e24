"""Arrays of finite laws, `[..., symbol]`, as they come from an oracle or a predictor: checked, never repaired.

A NaN, a negative number or a law that does not sum to 1 is a failure of whoever gave it. Clipped, skipped or
renormalised, it would be scored as something that it is not.
"""

import numpy as np
from numpy.typing import ArrayLike

# How far a law's sum may be from 1: a float32 softmax stays within it, a bfloat16 one does not.
NORMALISATION = 1e-6


def checked_laws(value: ArrayLike, name: str) -> np.ndarray:
    """`[..., symbol]` as float64, or an error that names the first position at which it is no probability law.

    Args:
        value: anything numpy can read, JAX arrays included.
        name: what to call it in an error.

    Raises:
        ValueError: no symbols, a NaN, a negative number, or a sum that is not 1 to within 1e-6.

    Example:
        >>> checked_laws([[0.5, 0.5], [1.0, 0.5]], "q")
        Traceback (most recent call last):
        ValueError: q[1] sums to 1.5; expected 1 to within 1e-06: take the softmax over all symbols, in float32 or more
    """
    laws = np.asarray(value, dtype=np.float64)
    if laws.ndim == 0 or laws.shape[-1] == 0:
        raise ValueError(f"{name} has shape {laws.shape}; expected [..., symbol] with at least one symbol")
    # Two passes over the array when all is well; both comparisons are written so that a NaN fails them.
    nonnegative = laws >= 0
    if not nonnegative.all():
        index = tuple(int(i) for i in np.argwhere(~nonnegative)[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, index))}] is {float(laws[index])}; expected a probability: NaN and "
            "negative numbers are failures of whatever gave them; nothing is skipped or clipped"
        )
    sums = laws.sum(axis=-1)
    normalised = np.abs(sums - 1) <= NORMALISATION
    if not normalised.all():
        index = tuple(int(i) for i in np.argwhere(~normalised)[0])
        where = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise ValueError(
            f"{where} sums to {float(sums[index])}; expected 1 to within {NORMALISATION:g}: take the softmax over "
            "all symbols, in float32 or more"
        )
    return laws


def checked_pair(p: ArrayLike, q: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """An exact law p and a predicted law q over the same symbols, both checked.

    Raises:
        ValueError: as for `checked_laws`, or shapes that do not match.

    Example:
        >>> [law.shape for law in checked_pair([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]])]
        [(2,), (2, 2)]
    """
    exact, predicted = checked_laws(p, "p"), checked_laws(q, "q")
    # Broadcasting is for the other axes: one symbol against many would be compared with each of them.
    if exact.shape[-1] != predicted.shape[-1] or not _broadcast(exact.shape, predicted.shape):
        raise ValueError(
            f"p has shape {exact.shape} and q {predicted.shape}; expected the same number of symbols on the last axis, "
            "and other axes that broadcast: give both laws in the order of the predicted site's support"
        )
    return exact, predicted


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    # From the last axis backwards; the axes that only one of them has match anything.
    return all(a == b or 1 in (a, b) for a, b in zip(first[::-1], second[::-1], strict=False))
