"""A batch of laws evaluated row by row, at places of each row's own, with one compilation for each kind of law."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.laws import Finite

# How many pieces are evaluated at once.
_CHUNK = 256


class LawRows:
    """A function of a law and places, by row.

    Args:
        law: of batch shape `[row]`.
        function: of one law (without batch axes), its places `[node]` and the extras; traced, and compiled once for each
            function and kind of law. Returns an array `[node]` or a tuple of them.
        extras: further arguments, `[row]` each.
    """

    def __init__(self, law: dist.Distribution, function: Callable[..., Any], *extras: np.ndarray):
        if isinstance(law, Finite):  # its values are those of all rows
            law = jax.tree.unflatten(jax.tree.structure(law), [_per_row(leaf, law) for leaf in jax.tree.leaves(law)])
        self.leaves, self.structure = jax.tree.flatten(jax.tree.map(np.asarray, law))
        self.function, self.extras = function, extras

    def __call__(self, rows: np.ndarray, places: np.ndarray) -> Any:
        """`[piece, node]` for the row of each piece and its places `[piece, node]`."""
        parts = [self._chunk(rows[i : i + _CHUNK], places[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def _chunk(self, rows: np.ndarray, places: np.ndarray) -> Any:
        count = len(rows)
        rows = np.concatenate([rows, np.full(_CHUNK - count, rows[0])])
        places = np.concatenate([places, np.broadcast_to(places[:1], (_CHUNK - count, places.shape[1]))])
        law = jax.tree.unflatten(self.structure, [leaf[rows] for leaf in self.leaves])
        with jax.enable_x64(True):
            results = _evaluate(self.function, law, places, *(extra[rows] for extra in self.extras))
        return jax.tree.map(lambda array: np.asarray(array)[:count], results)


def _per_row(leaf: jax.Array, law: Finite) -> np.ndarray:
    return np.asarray(leaf) if leaf is law.log_probs else np.broadcast_to(leaf, (*law.batch_shape, *leaf.shape))


def _over_rows(function, law, places, *extras):
    return jax.vmap(function)(law, places, *extras)


_evaluate = jax.jit(_over_rows, static_argnums=0)
