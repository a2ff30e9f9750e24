"""Samples of a variable that lies in [0, R], R known before the data: the one assumption of every bound.

A value outside the range, or a NaN, would make a bound false rather than loose, so each is refused by its index. Values
that leave the range by rounding only (a mean of nineteen copies of R can exceed R by one unit in the last place) are
brought back to its end.
"""

import numpy as np
from numpy.typing import ArrayLike

# As a fraction of the range: far above the rounding of float64 sums of a thousand terms, far below any tolerance.
ROUNDING_ALLOWED = 1e-12


def checked_sample(x: ArrayLike, *, range_: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The sample as float64 and its range, or an error that names the first value which breaks the assumption.

    Args:
        x: `[episode]`, or `[episode, column]` for several variables seen in the same episodes; anything numpy can read.
        range_: R > 0 in the units of x: a scalar, or `[column]` where the columns' ranges differ.

    Returns:
        The values `[column, episode]`, each row sorted (a bound that does not depend on the order of the episodes then
        does not depend on it in its last bit either), and R `[column]`.

    Raises:
        ValueError: x is empty, not one- or two-dimensional, NaN somewhere or outside [0, R]; or R is not positive and
            finite.

    Example:
        >>> rows, ranges = checked_sample([0.5, 0.25], range_=1.0)
        >>> rows.tolist(), ranges.tolist()
        ([[0.25, 0.5]], [1.0])
    """
    values = np.asarray(x, dtype=np.float64)
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(
            f"x has shape {values.shape}; expected [episode] or [episode, column] with at least one of each: "
            "draw some episodes, and average over any further axis first"
        )
    columns = values.shape[1:]
    ranges = np.asarray(range_, dtype=np.float64)
    if not (np.all(np.isfinite(ranges)) and np.all(ranges > 0)):
        raise ValueError(f"range_ is {range_}; expected a positive finite number that was known before the data")
    ranges = per_column(ranges, columns, name="range_")
    slack = ROUNDING_ALLOWED * ranges
    # Written so that a NaN counts as a violation: every comparison with NaN is False.
    inside = (values >= -slack) & (values <= ranges + slack)
    if not inside.all():
        index = tuple(int(i) for i in np.argwhere(~inside)[0])
        top = ranges if ranges.ndim == 0 else ranges[index[-1]]
        raise ValueError(
            f"x[{', '.join(map(str, index))}] is {float(values[index])}; expected a value in [0, {float(top)}]: a NaN "
            "is a failure, never an observation; if the value is right, give the range that x cannot leave"
        )
    # Contiguous rows: sums along them are then pairwise, and a column's sum does not depend on its neighbours.
    rows = np.array(np.clip(values, 0.0, ranges).reshape(len(values), -1).T, order="C")
    rows.sort(axis=1)
    return rows, np.broadcast_to(ranges, columns).reshape(-1)


def per_column(value: ArrayLike, columns: tuple[int, ...], *, name: str) -> np.ndarray:
    """A scalar or one number a column, as float64; raises ValueError for any other shape.

    Example:
        >>> per_column(2, (3,), name="m").tolist()
        2.0
    """
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in {(), columns}:
        raise ValueError(
            f"{name} has shape {array.shape}; expected a scalar"
            + (f" or [column] = {columns}" if columns else ", since x has one column only")
        )
    return array


def log_inverse_alpha(confidence: float) -> float:
    """ln(1 / (1 - confidence)), in nats: what an e-value must reach to reject.

    Raises:
        ValueError: the confidence is not strictly between 0 and 1.

    Example:
        >>> round(log_inverse_alpha(0.99), 6)
        4.60517
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number strictly between 0 and 1, such as 0.99")
    return float(-np.log1p(-float(confidence)))
