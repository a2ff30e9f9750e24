"""Integrals of many functions at once over the line cut into pieces, with error estimates.

Every piece is measured by the 15-point Kronrod rule and by the 7-point Gauss rule on a subset of its nodes; the pieces whose
two results differ are halved until their errors no longer matter. The estimate of a piece's error is QUADPACK's: with d the
difference of the rules and s the integral of |f - its mean|, it is s min(1, (200 d / s)^(3/2)), and never below rounding. To
that comes, once a piece is final, what the rounding of places does to a steep function: its variation times their grain.

Source: Piessens, de Doncker-Kapenga, Überhuber and Kahaner (1983), "QUADPACK", section 2.2 (QAG and QK15).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

# Positive nodes of the Kronrod rule on [-1, 1], their weights, and those of the Gauss rule that has every second node.
_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693150,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
_GAUSS = (
    0.0,
    0.129484966168869693270611432679082,
    0.0,
    0.279705391489276667901467771423780,
    0.0,
    0.381830050505118944950369775488975,
    0.0,
    0.417959183673469387755102040816327,
)
NODES = np.concatenate([-np.array(_NODES), np.array(_NODES)[-2::-1]])
KRONROD = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
GAUSS = np.concatenate([_GAUSS, _GAUSS[-2::-1]])

# A piece is left alone once its error is below this share of its row's tolerance.
_SHARE = 0.02
# Below this many units of rounding times the integral of |f|, an error estimate is not believed.
_EPSILON = np.finfo(np.float64).eps
_ROUNDING = 50 * _EPSILON

# Tails that fall more slowly, as exponentials per unit of length, are taken for endless.
_SLOWEST = 1e-4

# (rows [piece], places [piece, node]) -> [piece, node, function]
Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Integral:
    """Integrals of several functions in every row.

    Attributes:
        value: `[row, function]`.
        error: estimates of the absolute errors, `[row, function]`.
    """

    value: np.ndarray
    error: np.ndarray


def integrate(
    function: Integrand,
    edges: np.ndarray,
    *,
    tolerance: float = 1e-13,
    halvings: int = 40,
    most_pieces: int = 1000,
    kinked: bool = False,
    grain: np.ndarray | None = None,
) -> Integral:
    """The integral over [first edge, last edge] of every row, piece by piece.

    Args:
        function: takes the row number of each piece and its places, and returns the values of all functions there.
        edges: `[row, edge]`, in ascending order; where functions are not smooth, or vary on another scale, belongs an edge.
        tolerance: of the error, absolute, or relative where the integral exceeds 1.
        halvings: how often a piece is cut in two at most.
        most_pieces: new pieces of one row in one round of halving; further ones stay as they are (and in the error).
        kinked: whether functions may have kinks inside pieces: then the rules converge no faster than their difference says.
        grain: by how much places are rounded besides their own last bit, where they are shifted and scaled later, `[row]`.

    Returns:
        Values and errors; an error above the tolerance says that the limits of halving were met.

    Example:
        >>> result = integrate(lambda rows, x: np.exp(-x)[..., None], np.array([[0.0, 1.0, 40.0]]))
        >>> result.value.round(12).tolist(), bool(result.error.max() < 1e-12)
        ([[1.0]], True)
    """
    rows, lower, upper = _pieces(edges)
    count = edges.shape[0]
    total, errors, scale = None, None, None
    for round_ in range(halvings + 1):
        value, error, variation = _measure(function, rows, lower, upper, kinked)
        if total is None or errors is None or scale is None:
            total, errors = np.zeros((count, value.shape[-1])), np.zeros((count, value.shape[-1]))
            scale = np.ones_like(total)
            np.maximum(scale, _by_row(np.abs(value), rows, count), out=scale)
        coarse = np.any(error > _SHARE * tolerance * scale[rows], axis=-1) & (round_ < halvings)
        coarse &= lower + (upper - lower) / 2 > lower
        coarse = _fewest(coarse, rows, error.max(axis=-1), count, most_pieces)
        total += _by_row(value[~coarse], rows[~coarse], count)
        rounded = _EPSILON * np.maximum(np.abs(lower), np.abs(upper)) + (0.0 if grain is None else grain[rows])
        errors += _by_row((error + variation * rounded[:, None])[~coarse], rows[~coarse], count)
        if not coarse.any():
            break
        middle = (lower[coarse] + upper[coarse]) / 2
        rows = np.concatenate([rows[coarse], rows[coarse]])
        lower, upper = np.concatenate([lower[coarse], middle]), np.concatenate([middle, upper[coarse]])
    if total is None or errors is None:
        raise ValueError(f"edges has shape {edges.shape}; expected [row, edge] with at least one row")
    return Integral(total, errors)


@dataclasses.dataclass(frozen=True)
class Tail:
    """What lies beyond the last places integrated to, if functions fall as exponentials from there on.

    Attributes:
        rest: the integrals beyond, `[row, function]`; 0 where endless.
        doubt: by how much they may be off, `[row, function]`.
        last: the functions at the last place, `[row, function]`.
        rate: how fast they fall there, `[row, function]`; NaN where they are 0.
        endless: functions that fall too slowly to be told from ones whose integral is infinite, `[row, function]`.
    """

    rest: np.ndarray
    doubt: np.ndarray
    last: np.ndarray
    rate: np.ndarray
    endless: np.ndarray


def tail_beyond(function: Integrand, end: np.ndarray, sign: float) -> Tail:
    """The tail of every row.

    Args:
        function: as for `integrate`.
        end: the last place, `[row]`.
        sign: 1.0 if the rest lies above it, -1.0 if below.

    Example:
        >>> tail = tail_beyond(lambda rows, x: np.exp(-x)[..., None], np.array([3.0]), 1.0)
        >>> tail.rest.round(6).tolist(), bool(tail.doubt.max() < 1e-12), tail.endless.tolist()
        ([[0.049787]], True, [[False]])
    """
    values = function(np.arange(len(end)), end[:, None] - sign * np.array([0.0, 1.0, 2.0]))
    last, before, earlier = values[:, 0], values[:, 1], values[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, other = np.log(np.abs(before / last)), np.log(np.abs(earlier / before))
        falls = (last != 0) & (rate > _SLOWEST)
        tail = np.where(falls, last / rate, 0.0)
        # A rate that changes by c per unit of length changes by c / rate over the length of the tail.
        drift = (np.abs(other - rate) + _ROUNDING / 10) / rate**2
        doubt = np.where(falls, np.abs(tail) * np.minimum(drift, 1.0), 0.0)
    return Tail(tail, doubt, last, rate, (np.abs(last) > 0) & ~falls)  # NaN is not endless: it stays NaN


def _pieces(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    wide = edges[:, 1:] > edges[:, :-1]
    rows = np.nonzero(wide)[0]
    return rows, edges[:, :-1][wide], edges[:, 1:][wide]


def _measure(function: Integrand, rows, lower, upper, kinked: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integrals over the pieces, estimated errors, and total variations, `[piece, function]` each."""
    half = (upper - lower) / 2
    values = function(rows, (lower + half)[:, None] + half[:, None] * NODES)
    kronrod = np.einsum("pnf,n->pf", values, KRONROD)
    difference = np.abs(np.einsum("pnf,n->pf", values, KRONROD - GAUSS))
    spread = np.einsum("pnf,n->pf", np.abs(values - kronrod[:, None, :] / 2), KRONROD)
    size = np.einsum("pnf,n->pf", np.abs(values), KRONROD)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(spread > 0, spread * np.minimum(1.0, (200 * difference / spread) ** 1.5), difference)
    error = np.maximum(error, difference) if kinked else error
    error = np.maximum(error, _ROUNDING * size)
    return kronrod * half[:, None], error * half[:, None], np.abs(np.diff(values, axis=1)).sum(axis=1)


def _by_row(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    total = np.zeros((count, values.shape[-1]))
    np.add.at(total, rows, values)
    return total


def _fewest(coarse: np.ndarray, rows: np.ndarray, error: np.ndarray, count: int, most: int) -> np.ndarray:
    """Of the pieces to be halved, those with the largest errors if a row has too many."""
    per_row = np.bincount(rows[coarse], minlength=count)
    if coarse.sum() == 0 or per_row.max() <= most:
        return coarse
    kept = np.zeros_like(coarse)
    for row in range(count):
        mine = np.nonzero(coarse & (rows == row))[0]
        kept[mine[np.argsort(-error[mine], kind="stable")[:most]]] = True
    return kept
