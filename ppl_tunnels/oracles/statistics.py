"""Likelihoods as linear functions of the sufficient statistics of some latents, found by solving.

Every element of every latent is varied alone over a few values at which its statistics span; differences of log-likelihoods
then give its coefficients. At held-out values, all elements together, the equation must hold.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.families import Family
from ppl_tunnels.program import compile_time

_HELD_OUT = 2
# Solved counts are whole (or half) numbers; rounding is taken off them, relative to the size of the terms.
_WHOLE = 1e-12


@dataclasses.dataclass(frozen=True)
class Block:
    """The statistics of one latent site among those of all.

    Attributes:
        site: its name.
        family: of its base law.
        elements: shape of its elements, each a draw of the base law.
        size: statistics an element.
        start: place of its first statistic.
    """

    site: str
    family: Family
    elements: tuple[int, ...]
    size: int
    start: int

    @property
    def count(self) -> int:
        """How many elements there are."""
        return math.prod(self.elements)

    @property
    def stop(self) -> int:
        return self.start + self.count * self.size

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of one element's value."""
        return (self.size,) * self.family.event_dim

    def of(self, statistics: jax.Array) -> jax.Array:
        """`[..., statistic of any latent]` -> `[..., *elements, statistic]`."""
        own = statistics[..., self.start : self.stop]
        return own.reshape(*statistics.shape[:-1], *self.elements, self.size)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Linear:
    """Log-likelihoods <s, T> + c.

    Attributes:
        s: `[..., statistic]`.
        c: `[...]`, nats; -inf where the likelihood is zero whatever the latents are.
        residual: how far the equation is from holding at the held-out values, relative to the size of its terms, `[...]`; NaN
            where the program states no law.
    """

    s: jax.Array
    c: jax.Array
    residual: jax.Array


class Solver:
    """Finds s and c for any function of the latents.

    Args:
        blocks: the latents.
    """

    def __init__(self, blocks: tuple[Block, ...]):
        self.blocks, self.size = blocks, blocks[-1].stop if blocks else 0
        generator = np.random.default_rng(0)
        spanning = {block.site: block.family.points(block.size) for block in blocks}
        rows = {
            block.site: [np.broadcast_to(spanning[block.site][0], (*block.elements, *block.event))] for block in blocks
        }
        for varied in blocks:
            for place in np.ndindex(*varied.elements):
                for point in spanning[varied.site][1:]:
                    for block in blocks:
                        row = rows[block.site][0]
                        if block is varied:
                            row = row.copy()
                            row[place] = point
                        rows[block.site].append(row)
        held_out = {
            block.site: block.family.held_out(block.size, _HELD_OUT * block.count, generator).reshape(
                _HELD_OUT, *block.elements, *block.event
            )
            for block in blocks
        }
        self._points = {site: np.concatenate([np.stack(rows[site]), held_out[site]]) for site in rows}
        self._inverses = {}
        for block in blocks:
            with compile_time():
                statistics = np.asarray(block.family.statistics(jnp.asarray(spanning[block.site])))
            self._inverses[block.site] = np.linalg.pinv(statistics[1:] - statistics[0])

    @property
    def points(self) -> dict[str, np.ndarray]:
        """Base values at which a function of the latents is to be evaluated, `[point, *elements, *event]` a site."""
        return self._points

    def solve(self, log_likelihood: jax.Array) -> Linear:
        """s and c of log-likelihoods `[point, ...]` at `points`."""
        base, varied, tested = log_likelihood[0], log_likelihood[1:-_HELD_OUT], log_likelihood[-_HELD_OUT:]
        never = jnp.isneginf(base)
        # Impossible for some values of the latents only: no exponential family.
        lawless = (jnp.isneginf(log_likelihood) != never).any(axis=0)
        unstated = jnp.isnan(log_likelihood).any(axis=0)
        sane = ~never & ~lawless & ~unstated
        floor = jnp.where(sane, base, 0.0)
        change = jnp.where(sane, varied, 0.0) - floor
        size = 1 + jnp.abs(floor)
        found = [jnp.zeros((*base.shape, 0))]
        for block in self.blocks:
            own = change[block.start : block.stop].reshape(block.count, block.size, *base.shape)
            solved = jnp.einsum("ij,nj...->...ni", jnp.asarray(self._inverses[block.site]), own)
            halves = jnp.round(2 * solved) / 2
            noise = _WHOLE * size[..., None, None] * (1 + jnp.abs(solved))
            solved = jnp.where(jnp.abs(solved - halves) <= noise, halves, solved)
            found.append(solved.reshape(*base.shape, block.count * block.size))
        s = jnp.concatenate(found, axis=-1)
        at = self._statistics()
        c = jnp.where(sane, floor - s @ at[0], -jnp.inf)
        terms = [
            jnp.abs(jnp.where(sane, tested[i], 0.0) - (s @ at[1 + i] + jnp.where(sane, c, 0.0)))
            for i in range(_HELD_OUT)
        ]
        scale = [size + jnp.abs(s) @ jnp.abs(at[1 + i]) for i in range(_HELD_OUT)]
        residual = jnp.max(jnp.stack([off / scaled for off, scaled in zip(terms, scale, strict=True)]), axis=0)
        residual = jnp.where(lawless, jnp.inf, jnp.where(never, 0.0, residual))
        return Linear(s, c, jnp.where(unstated, jnp.nan, residual))

    def _statistics(self) -> jax.Array:
        """T at the base point and at the held-out values, `[1 + held out, statistic]`."""
        rows = [0, *range(-_HELD_OUT, 0)]
        parts = []
        for block in self.blocks:
            values = jnp.asarray(self._points[block.site][rows])
            parts.append(block.family.statistics(values).reshape(len(rows), -1))
        return jnp.concatenate([jnp.zeros((len(rows), 0)), *parts], axis=-1)


def evaluate(function: Callable[..., Any], solver: Solver, others: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Solve for a function of `(base values of the latents, values of other latents)`.

    Args:
        function: gives any pytree of log-likelihoods, and anything else that is wanted at every point.
        solver: of the latents.
        others: values of latents that the function must not depend on, `[1 + held out, ...]` a site: they change with the
            held-out points, so that a dependence shows as a residual.

    Returns:
        The same pytree of `Linear`, and the rest with a leading point axis.
    """
    base = {site: jnp.asarray(value) for site, value in solver.points.items()}
    points = solver.size + 1 + _HELD_OUT
    which = np.array([0] * (solver.size + 1) + list(range(1, 1 + _HELD_OUT)))
    elsewhere = {site: jnp.asarray(value[which]) for site, value in others.items()}
    log_likelihoods, rest = jax.vmap(function, axis_size=points)((base, elsewhere))
    return jax.tree.map(solver.solve, log_likelihoods), rest
