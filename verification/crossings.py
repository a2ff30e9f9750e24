"""Where two densities cross: places at which |p - q| has a kink, which belong between the pieces of an integral.

A rule for smooth functions errs at a kink by the square of the piece's length, and now and then two rules err alike, so that
their difference does not show it.
"""

from collections.abc import Callable

import numpy as np

from ppl_tunnels.verification.integration import NODES

# log p - log q at places [bracket, node] of rows [bracket]; only its sign is read.
Gap = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Brackets are cut into sixteen, fourteen times: to 2^-56 of their length.
_CUTS = np.arange(1, len(NODES) + 1) / (len(NODES) + 1)
_ROUNDS = 14


def with_crossings(gap: Gap, edges: np.ndarray) -> np.ndarray:
    """The edges, `[row, edge]`, and in each row the places between them at which the gap changes its sign; ascending.

    Changes of sign are looked for at as many places of each piece as an integration rule has nodes.

    Example:
        >>> with_crossings(lambda rows, x: x - 0.3, np.array([[-1.0, 1.0]])).round(12).tolist()
        [[-1.0, 0.3, 1.0]]
    """
    rows, pieces = edges.shape[0], edges.shape[1] - 1
    half = (edges[:, 1:] - edges[:, :-1]) / 2
    places = (edges[:, :-1] + half)[..., None] + half[..., None] * NODES
    signs = np.sign(gap(np.repeat(np.arange(rows), pieces), places.reshape(-1, len(NODES)))).reshape(rows, -1)
    places = places.reshape(rows, -1)
    row, place = np.nonzero(signs[:, 1:] * signs[:, :-1] < 0)
    if not row.size:
        return edges
    low, high, before = places[row, place], places[row, place + 1], signs[row, place]
    for _ in range(_ROUNDS):
        inner = low[:, None] + (high - low)[:, None] * _CUTS
        beyond = np.sign(gap(row, inner)) != before[:, None]
        ladder = np.concatenate([low[:, None], inner, high[:, None]], axis=1)
        first = np.where(beyond.any(axis=1), beyond.argmax(axis=1), len(_CUTS))
        each = np.arange(len(row))
        low, high = ladder[each, first], ladder[each, first + 1]
    nth = np.arange(len(row)) - np.searchsorted(row, row)
    found = np.repeat(edges[:, -1:], nth.max() + 1, axis=1)
    found[row, nth] = high
    return np.sort(np.concatenate([edges, found], axis=1), axis=1)
