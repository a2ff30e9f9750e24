"""The finitely many states of a scan: the values that its carry can take where it depends on latents.

Carry leaves are split by dependency. *Observed* leaves are determined by what is given (context, stream, step inputs, a
hypothesis about the static latents) and are run forward with the episode. *Hidden* leaves depend on latents drawn in the
scan; these, and whatever other leaves they depend on, take joint values that are collected from the first ones by applying
the step function to every latent and stream value until nothing new appears, in at most as many rounds as there are steps.
No value is ever left out for being improbable.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.joint_values import joint_values, step_batch
from ppl_tunnels.oracles.step_function import Source, Sources, StepFunction, Unsuitable
from ppl_tunnels.program import Site, compiled_quickly, evaluated

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# States, joint latent values of one step, and next states listed; beyond, beliefs over states are not the way.
MOST_STATES = 4_096
MOST_DRAWS = 4_096
_MOST_MOVES = 1 << 24
# Static and context values from which the first carry may start.
_MOST_STARTS = 4_096


@dataclasses.dataclass(frozen=True)
class StateSpace:
    """What filtering needs to know of a scan.

    Attributes:
        hidden: indices of the carry's leaves that are states.
        states: their joint values, one array `[state, *leaf]` a hidden leaf.
        draws: joint values of the latents of one step, `[draw, *value]` a site, the first site running slowest.
        draw_index: for each site, which joint value of its own (as one law) each draw is, `[draw]`.
        following: index of the next state, `[hypothesis or 1, row or 1, value or 1, state, draw]`; -1 where an episode ends
            before it could get there.
        row_of_step: which row each step uses, `[step]`.
        moved_by: stream and context sites of a step whose joint value the next state depends on.
        initial: static latents that matter only through the first state.
    """

    hidden: tuple[int, ...]
    states: tuple[np.ndarray, ...]
    draws: dict[str, np.ndarray]
    draw_index: dict[str, np.ndarray]
    following: np.ndarray
    row_of_step: np.ndarray
    moved_by: tuple[str, ...]
    initial: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self.states[0])


def find_state_space(tunnel: "WindTunnel", step: StepFunction | None = None) -> StateSpace:
    """Split the carry, close the hidden part.

    Raises:
        Unsuitable: the program has no such state space; says why.
    """
    step = StepFunction(tunnel) if step is None else step
    for name, site in {**step.latents, **step.statics}.items():
        if site.support is None:
            raise Unsuitable(
                f"latent site {name!r} does not have a fixed finite support ({site.constraint}); discretise it on a grid"
            )
    count = math.prod(float(len(site.support)) ** math.prod(step_batch(site)) for site in step.latents.values())
    if count > MOST_DRAWS:
        raise Unsuitable(f"the latents of one step have {count:.3g} joint values (at most {MOST_DRAWS:,})")
    hidden = _hidden(step)
    if not hidden:
        raise Unsuitable("no latent drawn in the scan is carried to a later step, so there is no state to filter")
    return _Closing(step, hidden).state_space()


def _hidden(step: StepFunction) -> tuple[int, ...]:
    """The leaves that depend on latents drawn in the scan, and those that their next values depend on."""

    def grown(leaves: set[int], wanted: Any) -> set[int]:
        while True:
            more = leaves | wanted(leaves)
            if more == leaves:
                return leaves
            leaves = more

    count = range(len(step.carry_from))
    drawn = {leaf for leaf in count if any(kind == "latent" for kind, _ in step.carry_from[leaf])}
    carries = grown(
        drawn, lambda known: {leaf for leaf in count if any(("carry", key) in step.carry_from[leaf] for key in known)}
    )
    return tuple(
        sorted(
            grown(
                carries, lambda known: {key for leaf in known for kind, key in step.carry_from[leaf] if kind == "carry"}
            )
        )
    )


class _Closing:
    """Collects the states, and where each goes under every latent, stream, input and static value."""

    def __init__(self, step: StepFunction, hidden: tuple[int, ...]):
        self.step, self.hidden = step, hidden
        self._compiled: dict[int, Any] = {}
        self.sources: Sources = frozenset().union(*(step.carry_from[leaf] for leaf in hidden))
        self._refuse_mixtures()
        given = {**step.now, **step.streams}
        self.moved_by = tuple(
            name for name in step.order if name in given and {("now", name), ("stream", name)} & self.sources
        )
        self.draws, self.draw_index = joint_values(step.latents, step_batch)
        self.statics, self.static_index = joint_values(step.statics, lambda site: site.batch_shape)
        self.moves, _ = joint_values({name: given[name] for name in self.moved_by}, step_batch)

    def _refuse_mixtures(self) -> None:
        step = self.step
        first = frozenset().union(*(step.first_from[leaf] for leaf in self.hidden))
        for kind, name in self.sources:
            if kind == "context":
                raise Unsuitable(
                    f"the scan's carry mixes latents with the context site {name!r}, so its values differ between episodes; carry "
                    "the state itself and apply the context where the laws are computed"
                )
            if kind == "input" and step.inputs_from:
                raise Unsuitable(
                    "the scan's carry mixes latents with inputs that differ between episodes; carry the state itself and use the "
                    "inputs where the laws are computed"
                )
            if kind in ("stream", "now") and (step.streams | step.now)[name].support is None:
                raise Unsuitable(
                    f"the scan's carry mixes latents with {'stream' if kind == 'stream' else 'context'} site {name!r}, which is not "
                    "finite, so its values never close"
                )
        for kind, name in first:
            if kind == "context" and step.context[name].support is None:
                raise Unsuitable(
                    f"the scan's first carry mixes latents with the context site {name!r}, which is not finite, so its values differ "
                    "between episodes; carry the state itself and apply the context where the laws are computed"
                )
        self.started_by = {name: step.context[name] for kind, name in sorted(first) if kind == "context"}

    def state_space(self) -> StateSpace:
        rows, row_of_step = self._input_rows()
        hypotheses = max(len(value) for value in self.statics.values()) if self._depends("static") else 1
        shape = (hypotheses, len(rows), self._count(self.moves), self._count(self.draws))
        met: dict[bytes, tuple[np.ndarray, ...]] = {}
        number: dict[bytes, int] = {}
        targets: list[np.ndarray] = []
        frontier = self._register(self._starts(), met, number)[1]
        for _ in range(self.step.length):
            if not frontier:
                break
            after = self._after(frontier, rows, hypotheses)
            known = len(met)
            index, frontier = self._register(after, met, number)
            targets.append(index.reshape(-1, *shape))
            if len(met) > MOST_STATES or len(met) * math.prod(shape) > _MOST_MOVES:
                raise Unsuitable(
                    f"the scan's carry takes more than {known:,} values that depend on latents before it closes, if ever (at most "
                    f"{MOST_STATES:,} states and {_MOST_MOVES:,} moves between them); carry a state of few values"
                )
        # Where these would go next is beyond the last step.
        targets.append(np.full((len(frontier), *shape), -1))
        following = np.moveaxis(np.concatenate(targets), 0, 3)
        states = tuple(np.stack(leaf) for leaf in zip(*met.values(), strict=True))
        return StateSpace(
            hidden=self.hidden,
            states=states,
            draws=self.draws,
            draw_index=self.draw_index,
            following=following,
            row_of_step=row_of_step,
            moved_by=self.moved_by,
            initial=self._initial(),
        )

    def _depends(self, kind: str) -> bool:
        return any(source == kind for source, _ in self.sources)

    @staticmethod
    def _count(values: dict[str, np.ndarray]) -> int:
        return len(next(iter(values.values()))) if values else 1

    def _initial(self) -> tuple[str, ...]:
        step = self.step
        observed = (of for leaf, of in enumerate(step.first_from) if leaf not in self.hidden)
        elsewhere = frozenset().union(*step.carry_from, *step.law_from.values(), step.inputs_from, *observed)
        return tuple(name for name in step.statics if ("static", name) not in elsewhere)

    def _idle(self) -> tuple[dict, dict]:
        """A value for every context site, and every site given at a step."""
        context = {name: _any_value(site, site.layout) for name, site in self.step.context.items()}
        return context, {
            name: _any_value(site, site.layout[1:]) for name, site in (self.step.now | self.step.streams).items()
        }

    def _starts(self) -> list[np.ndarray]:
        """The first values of the hidden leaves, `[start, *leaf]`."""
        contexts, _ = joint_values(self.started_by, lambda site: site.batch_shape)
        if self._count(contexts) * self._count(self.statics) > _MOST_STARTS:
            raise Unsuitable(
                f"the first carry starts from {self._count(contexts) * self._count(self.statics):,} joint values of what is drawn before "
                f"the scan (at most {_MOST_STARTS:,}); use a smaller configuration"
            )
        idle, _ = self._idle()

        def first(context, static):
            leaves, _, _ = self.step.first({**idle, **context}, static)
            return [leaves[leaf] for leaf in self.hidden]

        over = _over(_over(first, 1, bool(self.statics), 2), 0, bool(contexts), 2)
        return [_flat(leaf, 2) for leaf in evaluated(over, contexts, self.statics)]

    def _input_rows(self) -> tuple[list[int], np.ndarray]:
        """Steps that stand for all with the same inputs, and which of them each step is like."""
        length = self.step.length
        if not self._depends("input"):
            return [0], np.zeros(length, dtype=int)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self._inputs())]
        seen: dict[bytes, int] = {}
        rows, row_of_step = [], np.zeros(length, dtype=int)
        for step in range(length):
            key = b"".join(np.ascontiguousarray(leaf[step]).tobytes() for leaf in leaves)
            if key not in seen:
                seen[key] = len(rows)
                rows.append(step)
            row_of_step[step] = seen[key]
        return rows, row_of_step

    def _inputs(self) -> Any:
        context, _ = self._idle()
        static = {name: value[0] for name, value in self.statics.items()}
        return evaluated(lambda *given: self.step.first(*given)[1], context, static)

    def _after(self, frontier: list[tuple[np.ndarray, ...]], rows: list[int], hypotheses: int) -> list[np.ndarray]:
        """Next values of the hidden leaves, `[state, hypothesis, row, value, draw, *leaf]` flattened to one axis."""
        context, idle = self._idle()
        static = {name: value[0] for name, value in self.statics.items()}
        filler, inputs, _ = evaluated(lambda *given: (*self.step.first(*given)[:2], None), context, static)
        given = jax.tree.map(lambda leaf: leaf[np.asarray(rows)], inputs)
        padded = 1 << (len(frontier) - 1).bit_length()  # few sizes, so that few are compiled
        leaves = [
            np.stack([state[i] for state in (*frontier, *[frontier[0]] * (padded - len(frontier)))])
            for i in range(len(self.hidden))
        ]

        def following(leaves, static, given, moves, latent):
            carry = list(filler)
            for leaf, value in zip(self.hidden, leaves, strict=True):
                carry[leaf] = value
            at = {**idle, **moves}
            now = {name: at[name] for name in self.step.now}
            stream = {name: at[name] for name in self.step.streams}
            after, _ = self.step.laws(context, static, carry, given, now, latent, stream)
            return [after[leaf] for leaf in self.hidden]

        over = _over(following, 4, bool(self.draws), 5)
        over = _over(over, 3, bool(self.moves), 5)
        over = _over(over, 2, self.step.has_inputs, 5)
        over = _over(over, 1, hypotheses > 1, 5)
        over = _over(over, 0, True, 5)
        statics = self.statics if hypotheses > 1 else static
        arguments = (leaves, statics, given, self.moves, self.draws)
        if padded not in self._compiled:
            self._compiled[padded] = compiled_quickly(over, *arguments)
        after = self._compiled[padded](*arguments)
        return [_flat(np.asarray(leaf)[: len(frontier)], 5) for leaf in after]

    @staticmethod
    def _register(
        leaves: list[np.ndarray], met: dict[bytes, tuple[np.ndarray, ...]], number: dict[bytes, int]
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
        """The number of each value, `[value]`, and those not met before; `met` and `number` are updated."""
        rows = np.concatenate([_bytes(leaf) for leaf in leaves], axis=1)
        distinct, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        index, new = np.zeros(len(distinct), dtype=int), []
        for at in np.argsort(first):
            key = distinct[at].tobytes()
            if key not in number:
                number[key] = len(number)
                met[key] = tuple(leaf[first[at]] for leaf in leaves)
                new.append(met[key])
            index[at] = number[key]
        return index[inverse.reshape(-1)], new


def _over(function: Any, argument: int, mapped: bool, arguments: int) -> Any:
    """vmap over one argument, or an axis of length one in its place."""
    if mapped:
        return jax.vmap(function, in_axes=tuple(0 if i == argument else None for i in range(arguments)))
    return lambda *given: jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*given))


def _flat(leaf: Any, axes: int) -> np.ndarray:
    leaf = np.asarray(leaf)
    return leaf.reshape(-1, *leaf.shape[axes:])


def _bytes(leaf: np.ndarray) -> np.ndarray:
    # -0.0 and 0.0 are the same state.
    leaf = np.ascontiguousarray(leaf + 0 if leaf.dtype.kind == "f" else leaf)
    return leaf.reshape(len(leaf), -1).view(np.uint8).reshape(len(leaf), -1)


def _any_value(site: Site, shape: tuple[int, ...]) -> np.ndarray:
    if site.support is None:
        return np.zeros(shape, site.dtype)
    return np.broadcast_to(site.support[0], shape).astype(site.dtype)


__all__ = ["MOST_DRAWS", "MOST_STATES", "Source", "StateSpace", "Unsuitable", "find_state_space"]
