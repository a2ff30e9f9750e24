"""The finitely many states of a scan: the values that its carry can take where it depends on latents.

Carry leaves are split by dependency. *Observed* leaves are determined by what is given (context, stream, step inputs, a
hypothesis about the static latents) and are run forward with the episode. *Hidden* leaves depend on latents drawn in the
scan; their joint values are collected from the first ones by applying the step function to every latent and stream value
until nothing new appears. No value is ever left out for being improbable.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.dependence import dependence
from ppl_tunnels.oracles.scans import take_out_scan

if TYPE_CHECKING:
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel

# States, joint latent values of one step, and values met while closing; beyond, matrices of states are not the way.
MOST_STATES = 1_024
MOST_DRAWS = 4_096
_MOST_MET = 20_000


class Unsuitable(Exception):
    """Why a program has no finite state space; the message names the part and the remedy."""


@dataclasses.dataclass(frozen=True)
class StateSpace:
    """What filtering needs to know of a scan.

    Attributes:
        hidden: indices of the carry's leaves that depend on latents drawn in the scan.
        states: their joint values, one array `[state, *leaf]` a hidden leaf.
        draws: joint values of the latents of one step, `[draw, *value]` a site.
        draw_index: for each site, which joint value of its own (as one law) each draw is, `[draw]`.
        initial: static latents that matter only through the first hidden state.
        homogeneous: whether the step's laws and the next hidden state ignore observed leaves and step inputs.
    """

    hidden: tuple[int, ...]
    states: tuple[np.ndarray, ...]
    draws: dict[str, np.ndarray]
    draw_index: dict[str, np.ndarray]
    initial: tuple[str, ...]
    homogeneous: bool

    @property
    def size(self) -> int:
        """How many states there are (one where nothing is hidden)."""
        return len(self.states[0]) if self.states else 1


def joint_values(sites: "Mapping[str, Site]", shape_of: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every joint value of some finite sites, and for each site the index of its own joint value.

    Args:
        sites: finite sites.
        shape_of: `site -> batch shape` of the draws that belong together.

    Returns:
        `[value, *batch, *event]` a site, and `[value]` a site; the first draw of a site runs fastest in its index.
    """
    radix = [len(site.support) for site in sites.values() for _ in range(int(np.prod(shape_of(site), dtype=int)))]
    combinations = list(itertools.product(*(range(size) for size in radix)))
    flat = np.array(combinations, dtype=int).reshape(len(combinations), len(radix))
    values, index, at = {}, {}, 0
    for name, site in sites.items():
        shape = shape_of(site)
        count = int(np.prod(shape, dtype=int))
        own = flat[:, at : at + count]
        at += count
        values[name] = site.support[own].reshape(len(flat), *shape, *site.event_shape)
        index[name] = own @ (len(site.support) ** np.arange(count)) if count else np.zeros(len(flat), int)
    return values, index


def step_batch(site: "Site") -> tuple[int, ...]:
    """Batch shape of one step's draws."""
    return site.batch_shape[1:]


def find_state_space(tunnel: "WindTunnel") -> StateSpace:
    """Split the carry, close the hidden part.

    Raises:
        Unsuitable: the program has no such state space; says why.
    """
    return _Finder(tunnel).find()


class _Finder:
    def __init__(self, tunnel: "WindTunnel"):
        self.tunnel, self.program = tunnel, tunnel.configured_program
        sites = tunnel.reading.sites
        self.latents = {name: sites[name] for name in tunnel.reading.named("latent", per_step=True)}
        self.statics = {name: sites[name] for name in tunnel.reading.named("latent", per_step=False)}
        self.streams = {name: sites[name] for name in tunnel.reading.named("stream")}
        self.context = {name: sites[name] for name in tunnel.reading.named("context")}
        for name, site in {**self.latents, **self.statics}.items():
            if site.support is None:
                raise Unsuitable(
                    f"latent site {name!r} does not have a fixed finite support ({site.constraint}); discretise it on a grid"
                )
        count = np.prod([float(len(site.support)) ** np.prod(step_batch(site)) for site in self.latents.values()])
        if count > MOST_DRAWS:
            raise Unsuitable(f"the latents of one step have {count:.3g} joint values (at most {MOST_DRAWS:,})")
        self.draws, self.draw_index = joint_values(self.latents, step_batch)

    def find(self) -> StateSpace:
        shapes = self._shapes()
        first_of, step_of = self._dependences(shapes)
        leaves = len(first_of["carry"])
        hidden = self._hidden(step_of, leaves)
        self._refuse_context(hidden, first_of, step_of)
        states = self._closed(hidden, step_of) if hidden else ()
        return StateSpace(
            hidden=tuple(sorted(hidden)),
            states=states,
            draws=self.draws,
            draw_index=self.draw_index,
            initial=self._initial(hidden, first_of, step_of),
            homogeneous=self._homogeneous(hidden, step_of),
        )

    def _shapes(self) -> dict[str, Any]:
        def value(site, layout):
            return jax.ShapeDtypeStruct(layout, site.dtype)

        given = {name: value(site, site.layout) for name, site in self.context.items()}
        static = {name: value(site, site.layout) for name, site in self.statics.items()}
        try:
            first, inputs = jax.eval_shape(self._first, given, static)
        except LookupError:
            raise Unsuitable("the program has no scan, so there is no state to filter") from None
        return {
            "context": given,
            "static": static,
            "carry": jax.tree.leaves(first),
            "structure": jax.tree.structure(first),
            "input": jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs),
            "latent": {name: value(site, site.layout[1:]) for name, site in self.latents.items()},
            "stream": {name: value(site, site.layout[1:]) for name, site in self.streams.items()},
        }

    def _first(self, context, static):
        scan = take_out_scan(self.program, {**context, **static})
        return scan.first, jax.tree.map(jnp.asarray, scan.inputs)

    def _step(self, context, static, carry, given, latent, stream):
        scan = take_out_scan(self.program, {**context, **static})
        values = {**latent, **stream}
        following, laws = scan.step(jax.tree.unflatten(self.structure, carry), given, values)
        log_probs = {name: jnp.sum(exact_log_prob(laws[name], values[name])) for name in values}
        return jax.tree.leaves(following), log_probs

    def _dependences(self, shapes: dict[str, Any]) -> tuple[dict, dict]:
        """What the first carry and the step's results depend on, in words such as ("carry", 0) or ("static", "start")."""
        self.structure = shapes["structure"]

        def named(function, *parts):
            arguments = [shapes[part] for part in parts]
            labels = []
            for part, argument in zip(parts, arguments, strict=True):
                keys = sorted(argument) if isinstance(argument, dict) else range(len(jax.tree.leaves(argument)))
                labels += [(part, key) for key in keys]
            found = [frozenset(labels[i] for i in each) for each in dependence(function, *arguments)]
            structure = jax.tree.structure(jax.eval_shape(function, *arguments))
            return jax.tree.unflatten(structure, found)

        first, inputs = named(self._first, "context", "static")
        carry, log_probs = named(self._step, "context", "static", "carry", "input", "latent", "stream")
        is_set = lambda item: isinstance(item, frozenset)  # noqa: E731
        flat = jax.tree.leaves(first, is_leaf=is_set)
        self.inputs_from = frozenset().union(*jax.tree.leaves(inputs, is_leaf=is_set))
        return {"carry": flat}, {"carry": carry, "log_probs": log_probs}

    def _hidden(self, step_of: dict, leaves: int) -> set[int]:
        hidden: set[int] = set()
        while True:
            more = {
                leaf
                for leaf in range(leaves)
                if any(kind == "latent" or (kind == "carry" and key in hidden) for kind, key in step_of["carry"][leaf])
            }
            if more == hidden:
                return hidden
            hidden = more

    def _refuse_context(self, hidden: set[int], first_of: dict, step_of: dict) -> None:
        inputs_vary = any(kind in ("context", "static") for kind, _ in self.inputs_from)
        for leaf in hidden:
            sources = first_of["carry"][leaf] | step_of["carry"][leaf]
            mixed = [key for kind, key in sources if kind == "context"]
            if mixed:
                raise Unsuitable(
                    f"the scan's carry mixes latents with the context site {mixed[0]!r}, so its values differ between episodes; carry "
                    "the state itself and apply the context where the laws are computed"
                )
            if inputs_vary and any(kind == "input" for kind, _ in sources):
                raise Unsuitable(
                    "the scan's carry mixes latents with inputs that differ between episodes; carry the state itself and use the "
                    "inputs where the laws are computed"
                )

    def _initial(self, hidden: set[int], first_of: dict, step_of: dict) -> tuple[str, ...]:
        elsewhere = frozenset().union(*step_of["carry"], *step_of["log_probs"].values(), self.inputs_from)
        elsewhere |= frozenset().union(*(of for leaf, of in enumerate(first_of["carry"]) if leaf not in hidden))
        return tuple(name for name in self.statics if ("static", name) not in elsewhere)

    def _homogeneous(self, hidden: set[int], step_of: dict) -> bool:
        used = frozenset().union(*step_of["log_probs"].values(), *(step_of["carry"][leaf] for leaf in hidden))
        return all(kind != "input" and (kind != "carry" or key in hidden) for kind, key in used)

    def _closed(self, hidden: set[int], step_of: dict) -> tuple[np.ndarray, ...]:
        """Joint values of the hidden leaves, found together with the observed leaves that they depend on."""
        together = set(hidden)
        while True:
            more = together | {key for leaf in together for kind, key in step_of["carry"][leaf] if kind == "carry"}
            if more == together:
                break
            together = more
        sources = frozenset().union(*(step_of["carry"][leaf] for leaf in together))
        for name, site in self.streams.items():
            if ("stream", name) in sources and site.support is None:
                raise Unsuitable(
                    f"the scan's carry mixes latents with stream site {name!r}, which is not finite, so its values never close"
                )
        if any(kind == "context" for kind, _ in sources):
            raise Unsuitable(
                "the scan's carry mixes latents with leaves that depend on the context; carry the state itself"
            )
        moves = {name: site for name, site in self.streams.items() if ("stream", name) in sources}
        stream_values, _ = joint_values(moves, step_batch)
        static_values, _ = joint_values(self.statics, lambda site: site.batch_shape)
        context = {name: jnp.zeros(site.layout, site.dtype) for name, site in self.context.items()}
        idle = {
            name: jnp.zeros(site.layout[1:], site.dtype)
            if site.support is None
            else jnp.asarray(np.broadcast_to(site.support[0], site.layout[1:]))
            for name, site in self.streams.items()
            if name not in moves
        }
        order = sorted(together)

        def first(static):
            return [jax.tree.leaves(self._first(context, static)[0])[leaf] for leaf in order]

        def inputs(static):
            return jax.tree.map(jnp.asarray, self._first(context, static)[1])

        def following(leaves, static, given, latent, stream):
            every = [leaves[order.index(leaf)] if leaf in together else filler[leaf] for leaf in range(len(filler))]
            after, _ = self._step(context, static, every, given, latent, {**idle, **stream})
            return [after[leaf] for leaf in order]

        statics = jax.tree.map(jnp.asarray, static_values)
        one_static = jax.tree.map(lambda value: value[0], statics)
        filler = [jnp.asarray(leaf) for leaf in jax.tree.leaves(self._first(context, one_static)[0])]
        firsts = jax.vmap(first)(statics) if static_values else [leaf[None] for leaf in first({})]
        given = inputs(one_static)
        length = self.tunnel.length
        rows = _distinct([np.asarray(leaf) for leaf in jax.tree.leaves(given)], length)
        if not any(kind == "input" for kind, _ in sources):
            rows = rows[:1]
        given_rows = jax.tree.map(lambda leaf: leaf[np.asarray(rows)], given) if jax.tree.leaves(given) else given
        over = jax.vmap(following, in_axes=(None, None, None, None, 0)) if moves else following
        over = jax.vmap(over, in_axes=(None, None, None, 0, None)) if self.latents else over
        over = jax.vmap(over, in_axes=(None, None, 0, None, None)) if jax.tree.leaves(given) else over
        over = jax.vmap(over, in_axes=(None, 0, None, None, None)) if static_values else over
        over = jax.jit(jax.vmap(over, in_axes=(0, None, None, None, None)))
        latent_values = jax.tree.map(jnp.asarray, self.draws)
        stream_values = jax.tree.map(jnp.asarray, stream_values)
        met: dict[bytes, tuple[np.ndarray, ...]] = {}
        frontier = _new([np.asarray(leaf) for leaf in firsts], 1, met)
        for _ in range(length):
            if not frontier:
                break
            leaves = [jnp.asarray(np.stack([state[i] for state in frontier])) for i in range(len(order))]
            after = over(leaves, statics, given_rows, latent_values, stream_values)
            axes = 1 + bool(static_values) + bool(jax.tree.leaves(given)) + bool(self.latents) + bool(moves)
            frontier = _new([np.asarray(leaf) for leaf in after], axes, met)
            if len(met) > _MOST_MET:
                raise Unsuitable(
                    f"the scan's carry takes more than {_MOST_MET:,} values that depend on latents; it never closes: carry a state of "
                    "finitely many values"
                )
        positions = [order.index(leaf) for leaf in sorted(hidden)]
        states: dict[bytes, tuple[np.ndarray, ...]] = {}
        for state in met.values():
            own = tuple(state[i] for i in positions)
            states.setdefault(_key(own), own)
        if len(states) > MOST_STATES:
            raise Unsuitable(f"the scan's carry takes {len(states):,} hidden values (at most {MOST_STATES:,})")
        return tuple(np.stack(leaf) for leaf in zip(*states.values(), strict=True))


def _key(state: tuple[np.ndarray, ...]) -> bytes:
    # -0.0 and 0.0 are the same state.
    return b"".join((leaf + 0 if leaf.dtype.kind == "f" else leaf).tobytes() for leaf in state)


def _new(leaves: list[np.ndarray], axes: int, met: dict) -> list[tuple[np.ndarray, ...]]:
    """The values not met before, among all of these; `met` is updated."""
    flat = [leaf.reshape(-1, *leaf.shape[axes:]) for leaf in leaves]
    new = []
    for row in range(len(flat[0])):
        state = tuple(np.asarray(leaf[row]) for leaf in flat)
        key = _key(state)
        if key not in met:
            met[key] = state
            new.append(state)
    return new


def _distinct(leaves: list[np.ndarray], length: int) -> list[int]:
    """Steps whose inputs differ from those of all earlier steps."""
    seen: set[bytes] = set()
    rows = []
    for step in range(max(length, 1) if leaves else 1):
        key = b"".join(np.ascontiguousarray(leaf[step]).tobytes() for leaf in leaves)
        if key not in seen:
            seen.add(key)
            rows.append(step)
    return rows
