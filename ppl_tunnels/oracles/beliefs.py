"""Beliefs over states, carried through the steps of many episodes at once.

With w = belief_t[i] x (the factors of one step, in program order), an array over states, latents of the step, chains,
hypotheses and episodes, the next belief is the sum of w over all that leads to each state, divided by its total, which is
p(y_t | y_<t). Where a step is hidden the factors of its stream sites are left out of w.

A *chain* is a belief that has been shown some of the steps. Bayes needs one. A finite memory of w steps needs w + 1, by age:
the chain of age a has been shown the last a steps and not those before; the oldest one is read. Any other mask needs one
chain for each step that is predicted.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ppl_tunnels.oracles.semirings import Semiring
from ppl_tunnels.oracles.state_space import StateSpace

# (w of one chain `[state, *latents, hypothesis, episode]`, the step) -> a row `[value, hypothesis, episode]`.
Read = Callable[[jax.Array, "Step"], jax.Array]


class Step(NamedTuple):
    """What beliefs meet at one step.

    Attributes:
        factors: every site's factor, `[state, *latents, hypothesis, episode]`, axes of length one where it does not matter.
        scales: log of what a factor was divided by, `[hypothesis, episode]`, of the sites that have one.
        index: which joint value each finite site given at the step has, `[episode]` a site.
        row: which row of the moves it uses.
        number: of the step.
    """

    factors: dict[str, jax.Array]
    scales: dict[str, jax.Array]
    index: dict[str, jax.Array]
    row: jax.Array
    number: jax.Array


@dataclasses.dataclass(frozen=True)
class Memory:
    """Which steps each chain is shown.

    Attributes:
        width: of the band, how many of the last steps are visible; None for any other mask.
        visible: bool `[step, earlier step]`, or None where all of them are visible or there is a width.
    """

    width: int | None = None
    visible: jax.Array | None = None

    @property
    def chains(self) -> int:
        """How many chains it takes."""
        if self.visible is not None:
            return self.visible.shape[0]
        return 1 if self.width is None else self.width + 1

    @classmethod
    def of(cls, visible: Any) -> "Memory":
        """The memory of a mask; one of known numbers is looked at for being a band."""
        if visible is None:
            return cls()
        if isinstance(visible, Tracer):
            return cls(visible=visible)
        steps = len(visible)
        age = np.arange(steps)[:, None] - np.arange(steps)
        for width in (int(np.asarray(visible).sum(axis=1).max(initial=0)),):
            if np.array_equal(np.asarray(visible), (age >= 1) & (age <= width)):
                return cls() if width >= steps - 1 else cls(width=width)
        return cls(visible=jnp.asarray(visible))


class Moves:
    """Where states go: sums w over all that leads to each state."""

    def __init__(self, space: StateSpace, strides: dict[str, int]):
        self.size = space.size
        self.strides = strides
        # Beyond the last step beliefs are not read; only their total is.
        following = np.maximum(space.following, 0)
        self.following = following.reshape(*following.shape[:3], -1)
        self.fixed = self.following.shape[:3] == (1, 1, 1)
        draws = following.shape[-1]
        by_draw = following[0, 0, 0, 0]
        self.forgets = self.fixed and bool((following[0, 0, 0] == by_draw).all())
        self.identity = self.forgets and draws == self.size and bool((by_draw == np.arange(draws)).all())
        if self.fixed:
            self.into = _predecessors(by_draw if self.forgets else self.following[0, 0, 0], self.size)

    @property
    def numbers(self) -> int:
        """How many numbers one step of one chain holds at once."""
        return self.following.shape[-1] * (1 if self.fixed else self.size)

    def __call__(self, w: jax.Array, step: Step, ring: Semiring) -> jax.Array:
        """`[state, *latents, chain, hypothesis, episode]` to `[state, chain, hypothesis, episode]`."""
        batch = w.shape[-3:]
        if self.forgets:
            w = ring.total(w, axis=0)
        flat = w.reshape(-1, *batch)
        if self.identity:
            return flat
        if self.fixed:
            padded = jnp.concatenate([flat, jnp.full((1, *batch), ring.zero)])
            return ring.total(padded[self.into], axis=1)
        table = jnp.asarray(self.following)[:, step.row]  # [hypothesis, value, state and draw]
        if table.shape[1] == 1:
            index = table[:, 0].T[:, None, :, None]
        else:
            value = sum((step.index[name] * stride for name, stride in self.strides.items()), start=jnp.zeros((), int))
            index = jnp.moveaxis(table[:, value], 2, 0)[:, None]
        states = jnp.arange(self.size).reshape(-1, *[1] * flat.ndim)
        return ring.total(jnp.where(index == states, flat, ring.zero), axis=1)


def _predecessors(following: np.ndarray, size: int) -> np.ndarray:
    """For each state the flat indices of what leads to it, `[state, most]`, padded with one index beyond the last."""
    order = np.argsort(following, kind="stable")
    counts = np.bincount(following, minlength=size)
    into = np.full((size, max(int(counts.max(initial=0)), 1)), len(following))
    rank = np.arange(len(following)) - np.repeat(np.cumsum(counts) - counts, counts)
    into[following[order], rank] = order
    return into


class Beliefs:
    """The recursion.

    Args:
        moves: of the state space.
        order: sites of a step with a factor, in program order.
        streams: which of them are stream sites.
        latent_axes: how many latents a step has.
        ring: the arithmetic.
    """

    def __init__(self, moves: Moves, order: Sequence[str], streams: Sequence[str], latent_axes: int, ring: Semiring):
        self.moves, self.order, self.streams = moves, tuple(order), frozenset(streams)
        self.latent_axes, self.ring = latent_axes, ring

    def weigh(self, belief: jax.Array, step: Step, *, until: str | None = None, seen: bool = True) -> jax.Array:
        """w, `[state, *latents, *chain, hypothesis, episode]`, for a belief `[state, *chain, hypothesis, episode]`.

        Args:
            belief: what is believed before the step.
            step: the step.
            until: the site before which its sites count; all of them by default.
            seen: whether stream sites count.
        """
        chained = belief.ndim == 4
        w = belief.reshape(len(belief), *[1] * self.latent_axes, *belief.shape[1:])
        for name in self.order:
            if name == until:
                break
            if seen or name not in self.streams:
                factor = step.factors[name]
                w = self.ring.times(w, factor[..., None, :, :] if chained else factor)
        return w

    def run(
        self,
        first: jax.Array,
        steps: Any,
        memory: Memory,
        *,
        step_of: Callable[[Any], Step],
        read: Read | None,
        until: str | None,
        weighted: bool,
    ) -> tuple[Any, jax.Array]:
        """Through all steps.

        Args:
            first: belief before the first step, `[state, hypothesis, episode]`.
            steps: pytree with a leading axis of steps; `step_of` makes a step of each.
            memory: what is shown.
            step_of: see `steps`.
            read: of the chain that may be read at a step; None if only the evidence is wanted.
            until: the site before which a step's sites count when it is read.
            weighted: whether the probability of what rows condition on is wanted.

        Returns:
            What is read, `(rows [step, value, hypothesis, episode], in the numbers of the ring, that sum to one; if weighted, log of
            the probability of what each conditions on, [step, hypothesis, episode])`, or else log of the probability of each
            prefix, its own last step included, `[step + 1, hypothesis, episode]`; and whether anything came near underflowing.
        """
        ring, chains = self.ring, memory.chains
        start = jnp.broadcast_to(first[:, None], (len(first), chains, *first.shape[1:]))
        evidence = jnp.zeros(start.shape[1:])

        def advance(state, given):
            belief, evidence, smallest = state
            step, shown = step_of(given[0]), given[1]
            at = step.number if memory.visible is not None else chains - 1
            own, own_evidence = belief[:, at], evidence[at]
            out: Any = None
            if read is not None:
                row = _kept(read(self.weigh(own, step, until=until), step))
                total = ring.total(row, axis=0)
                counted = self.order if until is None else self.order[: self.order.index(until)]
                # Logarithms are taken afterwards, all at once.
                out = (
                    ring.over(row, total),
                    own_evidence + ring.log(total) + self._scale(step, counted) if weighted else None,
                )
            # The oldest chain is not shown any more, once it is read.
            pushed = belief[:, :-1] if memory.width and read is not None else belief
            after, gain = self._push(pushed, step, seen=True)
            if read is None:
                out = own_evidence + gain[at]
            if memory.width is not None:
                fresh, _ = self._push(belief[:, :1], step, seen=False)
                kept = slice(0, chains - 1)
                after = jnp.concatenate([fresh, after[:, kept]], axis=1)
                evidence = jnp.concatenate([jnp.zeros_like(evidence[:1]), evidence[kept] + gain[kept]])
            elif shown is not None:
                hidden, _ = self._push(belief, step, seen=False)
                after = jnp.where(shown[:, None, None], after, hidden)
                evidence = evidence + jnp.where(shown[:, None, None], gain, 0.0)
            else:
                evidence = evidence + gain
            smallest = jnp.minimum(smallest, jnp.min(jnp.where(after == ring.zero, 1.0, after), axis=0))
            return (after, evidence, smallest), out

        shown = None if memory.visible is None else memory.visible.T
        begin = (start, evidence, jnp.ones_like(evidence))
        (_, _, smallest), out = jax.lax.scan(advance, begin, (steps, shown))
        read_out: Any = out
        if read is None:
            read_out = jnp.concatenate([jnp.zeros_like(read_out[:1]), read_out])
        return read_out, jnp.any(smallest < least_safe(len(self.order)))

    def _push(self, belief: jax.Array, step: Step, *, seen: bool) -> tuple[jax.Array, jax.Array]:
        """The next beliefs, and the log-probability of the step (of nothing, if it is not seen)."""
        after = _kept(self.moves(self.weigh(belief, step, seen=seen), step, self.ring))
        total = self.ring.total(after, axis=0)
        after = self.ring.over(after, total)
        if not seen:
            return after, jnp.zeros_like(total)
        return after, self.ring.log(total) + self._scale(step, self.order)

    @staticmethod
    def _scale(step: Step, counted: Sequence[str]) -> jax.Array | float:
        return sum((scale for name, scale in step.scales.items() if name in counted), start=0.0)


def _kept(sums: jax.Array) -> jax.Array:
    """The same, stored: the compiler would rather make the terms of a sum again for each of its uses."""
    return jax.lax.optimization_barrier(sums)


def least_safe(factors: int) -> float:
    """The least probability of which a product with so many factors no smaller cannot underflow."""
    return 10.0 ** (-280 / (factors + 1))
