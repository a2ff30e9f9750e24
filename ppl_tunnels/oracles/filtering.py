"""Exact filtering of a scan whose carry takes finitely many values that depend on latents.

With state i, latents z and stream values y of one step, and given what the program can see (context, observed carry,
inputs), the step function gives p(z | i), p(y | i, z) and the next state j(i, z, y). Then

    belief_{t+1}[j] = sum over i, z that lead to j of belief_t[i] p(z | i) p(y_t | i, z), divided by its sum, p(y_t | y_<t).

Static latents that matter only through the first state are summed into the first belief; each joint value of the others, a
hypothesis, has beliefs of its own, and these are mixed by their evidence.

Beliefs are kept in linear space, which is exact until something underflows; if anything comes near, all is done over by
logarithms, so that what has probability e^-800 is still possible.

Source: Rabiner (1989), section III; the state space is read off the program (see `state_space`).
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.beliefs import Beliefs, Memory, Moves, Step, least_safe
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.given_episodes import Knowledge
from ppl_tunnels.oracles.joint_values import first_fastest, joint_values, step_batch
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.semirings import LINEAR, LOG
from ppl_tunnels.oracles.state_space import StateSpace, find_state_space
from ppl_tunnels.oracles.step_factors import Factors, Given, look_up
from ppl_tunnels.oracles.step_function import StepFunction, Unsuitable
from ppl_tunnels.oracles.support import MOST_LISTED_VALUES

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of the static latents that each get beliefs of their own.
MOST_HYPOTHESES = 4_096
# Laws mixed into one where the predicted site is not finite.
MOST_COMPONENTS = 4_096
# Numbers held by the episodes of one batch: these stay in a processor's cache, which is twice as fast as to fetch them at
# every step.
_BATCH_NUMBERS = 1 << 18


class FilteringEngine:
    """See the module; made by `from_tunnel`."""

    name = "filtering"

    def __init__(self, tunnel: "WindTunnel", step: StepFunction, space: StateSpace):
        self.tunnel, self.space, self.step = tunnel, space, step
        self.sites = tunnel.reading.sites
        self.factors = Factors(step, space)
        self.knowledge = Knowledge(step, space, self.factors)
        self.order = tuple(name for name in step.order if name in step.latents or name in step.streams)
        strides, stride = {}, 1
        for name in reversed(space.moved_by):
            strides[name] = stride
            stride *= len(self.factors.values[name])
        self.moves = Moves(space, strides)

    @classmethod
    def from_tunnel(cls, tunnel: "WindTunnel") -> "FilteringEngine | str":
        """The engine, or which condition the program fails."""
        reading = tunnel.reading
        if reading.axis != "the scan":
            return "the stream does not lie in a scan, so there is no state to filter"
        try:
            step = StepFunction(tunnel)
            _refuse_telling_context(step)
            space = find_state_space(tunnel, step)
        except Unsuitable as reason:
            return str(reason)
        hypotheses = math.prod(len(site.support) ** math.prod(site.batch_shape) for site in step.statics.values())
        if hypotheses > MOST_HYPOTHESES:
            return (
                f"the static latents {', '.join(map(repr, step.statics))} have {hypotheses:,} joint values (at most "
                f"{MOST_HYPOTHESES:,} get a filter each); use a smaller configuration"
            )
        return cls(tunnel, step, space)

    def explain(self) -> str:
        """Why this engine, and what a mask means."""
        others = [name for name in self.step.statics if name not in self.space.initial]
        mixed = f", mixed over the joint values of {', '.join(map(repr, others))}" if others else ""
        return (
            f"Filtering: the scan's carry takes {self.space.size:,} values that depend on latents, so a belief over them is carried "
            f"forward{mixed}. Here {meaning_of_a_mask(self.tunnel)}."
        )

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite | Mixture:
        """Law of a stream site, batch shape `[episode, step]`: a mixture of the program's own where it is not finite."""
        target = self.sites[site]
        if target.support is not None:
            return Finite(self._rows(episodes, site, visible), self._joint(site))
        if step_batch(target):
            raise TunnelError(
                f"stream site {site!r} has several values at each step; predictives are of sites with one"
            )
        weights, laws = self._run(self._mixture, episodes, site, visible)
        return Mixture(weights, laws)

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        if self.sites[site].per_step:
            return Finite(self._rows(episodes, site, visible), self._joint(site))
        return Finite(self._run(self._static, episodes, site, visible), self._joint(site))

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._run(self._evidence, episodes, None, None)

    def _joint(self, site: str) -> np.ndarray:
        """Joint values of one step's draws of a site (of all draws of a static one), the first draw running fastest."""
        target = self.sites[site]
        batch = step_batch(target) if target.per_step else target.batch_shape
        count = len(target.support) ** math.prod(batch)
        if count > MOST_LISTED_VALUES:
            raise TunnelError(f"the law of {site!r} has {count:,} values; use a smaller configuration")
        return first_fastest(target, batch)

    def _rows(self, episodes: Episodes, site: str, visible: jax.Array | None) -> jax.Array:
        return self._run(self._law, episodes, site, visible)

    def _run(self, function: Callable[..., Any], episodes: Episodes, site: str | None, visible: Any) -> Any:
        memory = Memory.of(visible)
        return function({**episodes.context, **episodes.stream}, memory.visible, site=site, width=memory.width)

    def _in_batches(self, function: Callable[..., Any], values: dict[str, jax.Array], memory: Memory) -> Any:
        """`function` of batches of episodes whose numbers fit into memory; results have a leading axis of episodes."""
        count = len(next(iter(values.values())))
        held = self.knowledge.hypotheses * (self.knowledge.numbers + memory.chains * self.moves.numbers)
        batch = max(1, _BATCH_NUMBERS // max(held, 1))
        if count <= batch:
            return function(values)
        batches = -(-count // batch)
        padded = jax.tree.map(
            lambda leaf: jnp.concatenate(
                [leaf, jnp.broadcast_to(leaf[:1], (batches * batch - count, *leaf.shape[1:]))]
            ),
            values,
        )
        split = jax.tree.map(lambda leaf: leaf.reshape(batches, batch, *leaf.shape[1:]), padded)
        out = jax.lax.map(function, split)
        return jax.tree.map(lambda leaf: leaf.reshape(batches * batch, *leaf.shape[2:])[:count], out)

    @functools.cached_property
    def _law(self) -> Callable[..., jax.Array]:
        """Log-probabilities `[episode, step, value]` of a site drawn at every step."""

        def law(values, visible, *, site, width):
            memory = Memory(width, visible)

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)
                return self._filtered(given, first, memory, site, functools.partial(_mixed, prior=prior))

            return self._in_batches(of, values, memory)

        return jax.jit(law, static_argnames=("site", "width"))

    @functools.cached_property
    def _mixture(self) -> Callable[..., Any]:
        """Log-weights `[episode, step, component]` and the program's own laws, `[episode, step, ...]` leading their leaves."""

        def mixture(values, visible, *, site, width):
            memory = Memory(width, visible)

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)

                def weighed(rows, weights, ring):
                    weights = jnp.zeros(()) if weights is None else weights
                    return ring.log(rows) + (weights + prior)[..., None, :, :]

                weights = self._filtered(given, first, memory, site, weighed)  # [step, own, hypothesis, episode]
                steps, own, hypotheses, count = weights.shape
                if own * hypotheses > MOST_COMPONENTS:
                    raise TunnelError(
                        f"the law of {site!r} is a mixture of {own * hypotheses:,} laws, one for each joint value of the latents (at "
                        f"most {MOST_COMPONENTS:,}); use a smaller configuration (posteriors and log_evidence are available)"
                    )
                weights = jnp.moveaxis(weights, -1, 0).reshape(count, steps, own * hypotheses)
                axes = 1 + 1 + len(self.step.latents)  # steps, states, latents

                def relaid(leaf):
                    leaf = jnp.moveaxis(leaf, axes + 1, 0)  # the episodes first
                    return leaf.reshape(count, steps, own * hypotheses, *leaf.shape[axes + 2 :])

                return normalised(weights), jax.tree.map(relaid, self.factors.laws(site, given))

            return self._in_batches(of, values, memory)

        return jax.jit(mixture, static_argnames=("site", "width"))

    @functools.cached_property
    def _static(self) -> Callable[..., jax.Array]:
        """Log-probabilities `[episode, step + 1, value]` of a static latent."""

        def law(values, visible, *, site, width):
            memory = Memory(width, visible)
            _, index = joint_values(self.step.statics, lambda each: each.batch_shape)
            order = _first_fastest_order(self.sites[site])
            member = jnp.where(index[site] == order[:, None], 0.0, -jnp.inf)  # [value, hypothesis]

            def of(values):
                given = self.knowledge.of(values, merge=False)
                prior, first = self.knowledge.hypotheses_of(given, merge=False)
                prefixes = self._filtered(given, first, memory, None)
                weights = jnp.moveaxis(prefixes + prior, -1, 0)[:, :, None]  # [episode, step + 1, 1, hypothesis]
                return normalised(logsumexp(weights + member, axis=-1))

            return self._in_batches(of, values, memory)

        return jax.jit(law, static_argnames=("site", "width"))

    @functools.cached_property
    def _evidence(self) -> Callable[..., jax.Array]:
        def log_evidence(values, visible, *, site, width):
            del visible, site, width

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)
                prefixes = self._filtered(given, first, Memory(), None)
                context = logsumexp(prior, axis=0)
                joint = logsumexp(prefixes[-1] + prior, axis=0)
                return jnp.where(
                    jnp.isneginf(context), -jnp.inf, joint - jnp.where(jnp.isneginf(context), 0.0, context)
                )

            return self._in_batches(of, values, Memory())

        return jax.jit(log_evidence, static_argnames=("site", "width"))

    def _filtered(
        self,
        given: Given,
        first: jax.Array,
        memory: Memory,
        site: str | None,
        mix: Callable[..., jax.Array] | None = None,
    ) -> jax.Array:
        """The recursion, in linear space or by logarithms.

        Args:
            given: what is known.
            first: log of the first belief, `[state, hypothesis, episode]`.
            memory: what is shown.
            site: whose rows; None for the evidence of prefixes.
            mix: of rows, weights (None for a single hypothesis) and ring, see `Beliefs.run`; for rows only.
        """
        tables = {name: self.factors.log_table(name, given) for name in self.order}
        own = self._own_table(site, given, tables)
        scales = {name: self._scale_of(table) for name, table in tables.items() if self._is_density(name)}
        tables |= {name: tables[name] - _as_factor(scale, tables[name]) for name, scale in scales.items()}
        least, near = math.log(least_safe(len(self.order))), jnp.asarray(False)
        for table in (first, *tables.values(), *([] if own is None else [own])):
            near |= jnp.any(jnp.isfinite(table) & (table < least))

        def run(ring):
            every = {name: ring.of_log(table) for name, table in tables.items()}
            if own is not None:
                every[_OWN] = every[site] if own is tables[site] else ring.of_log(own)
            kinds = {name: self.factors.factors[site if name == _OWN else name] for name in every}
            stepped = {name: table for name, table in every.items() if not kinds[name].tabulated}
            xs = (stepped, scales, given.index, jnp.asarray(self.space.row_of_step), jnp.arange(self.tunnel.length))

            def step_of(each):
                stepped, scales, index, row, number = each
                looked_up = {
                    name: self._looked_up(site if name == _OWN else name, every[name], index, own=name == _OWN)
                    for name in every
                    if name not in stepped
                }
                return Step(looked_up | stepped, scales, index, row, number)

            beliefs = Beliefs(self.moves, self.order, tuple(self.step.streams), len(self.step.latents), ring)
            read, until = self._reading(site, ring)
            weighted = first.shape[1] > 1
            out, came_near = beliefs.run(
                ring.of_log(first), xs, memory, step_of=step_of, read=read, until=until, weighted=weighted
            )
            return out if mix is None else mix(*out, ring=ring), came_near

        result, came_near = run(LINEAR)
        # Both are compiled, one is run.
        return jax.lax.cond(near | came_near, lambda: run(LOG)[0], lambda: result)

    def _own_table(self, site: str | None, given: Given, tables: dict[str, jax.Array]) -> jax.Array | None:
        """Log factor of a finite stream site at each of its values, an axis before the hypotheses."""
        if site is None or site not in self.step.streams or self.sites[site].support is None:
            return None
        if self.factors.factors[site].tabulated and not step_batch(self.sites[site]):
            return tables[site]
        return self.factors.log_table(site, given, self._joint(site))

    def _reading(self, site: str | None, ring: Any) -> tuple[Any, str | None]:
        """How a row is read, and before which site of the step."""
        hidden = tuple(range(1 + len(self.step.latents)))
        if site is None:
            return None, None
        if site in self.step.latents:
            own = 1 + list(self.step.latents).index(site)
            order = _first_fastest_order(self.sites[site])
            return (lambda w, step: ring.total(w, axis=tuple(a for a in hidden if a != own))[order]), None
        if self.sites[site].support is not None:
            return (lambda w, step: ring.total(ring.times(w[..., None, :, :], step.factors[_OWN]), axis=hidden)), site
        factor = self.factors.factors[site]
        kept = [factor.on_state, *(name in factor.latents for name in self.step.latents)]

        def components(w, step):
            for axis in hidden:
                if not kept[axis]:
                    w = jnp.expand_dims(ring.total(w, axis=axis), axis)
            return w.reshape(-1, *w.shape[-2:])

        return components, site

    def _looked_up(self, name: str, table: jax.Array, index: dict[str, jax.Array], *, own: bool = False) -> jax.Array:
        axis = 1 + len(self.step.latents)
        for other in self.factors.factors[name].looked_up:
            if own and other == name:
                break
            table = look_up(table, axis, index[other])
        return table

    def _is_density(self, name: str) -> bool:
        return name in self.step.streams and self.sites[name].support is None

    def _scale_of(self, table: jax.Array) -> jax.Array:
        """Log of the greatest density over states and latents, `[step, hypothesis, episode]`."""
        scale = jnp.max(
            table, axis=tuple(range(1, 2 + len(self.step.latents))), initial=-jnp.inf, where=~jnp.isnan(table)
        )
        return jnp.where(jnp.isfinite(scale), scale, 0.0)


def _as_factor(scale: jax.Array, table: jax.Array) -> jax.Array:
    return scale.reshape(len(scale), *[1] * (table.ndim - 3), *scale.shape[1:])


# Where a step keeps the factor that is read.
_OWN = " own"


def _first_fastest_order(site: Any) -> np.ndarray:
    """Joint values of a site in program order (last draw fastest) -> in the order of laws (first draw fastest)."""
    batch = step_batch(site) if site.per_step else site.batch_shape
    _, index = joint_values({site.name: site}, lambda _: batch)
    return np.argsort(index[site.name], kind="stable")


def _mixed(rows: jax.Array, weights: jax.Array | None, *, prior: jax.Array, ring: Any) -> jax.Array:
    """Rows of each hypothesis `[step, value, hypothesis, episode]`, mixed by evidence: `[episode, step, value]`."""
    rows = jnp.transpose(ring.log(rows), (3, 0, 1, 2))  # [episode, step, value, hypothesis]
    if weights is None:
        return jnp.where(jnp.isneginf(prior[0])[:, None, None], -jnp.inf, rows[..., 0])
    weights = jnp.moveaxis(weights + prior, -1, 0)[:, :, None]
    return normalised(logsumexp(jnp.where(jnp.isneginf(weights), -jnp.inf, rows + weights), axis=-1))


def _refuse_telling_context(step: StepFunction) -> None:
    """Context drawn at every step is known before the first: it must not tell on latents or stream."""
    told = {leaf for leaf in range(len(step.carry_from)) if _tells(step.first_from[leaf])}
    while True:
        more = told | {
            leaf for leaf, of in enumerate(step.carry_from) if _tells(of) or any(("carry", key) in of for key in told)
        }
        if more == told:
            break
        told = more
    for name in step.now:
        sources = step.law_from[name]
        if _tells(sources) or _tells(step.inputs_from) or any(("carry", leaf) in sources for leaf in told):
            raise Unsuitable(
                f"context site {name!r}, revealed up front, is drawn within the scan by a law that depends on latents or stream, so it "
                "is evidence about all of them at once; draw it by a law of its own"
            )


def _tells(sources: Any) -> bool:
    return any(kind in ("static", "latent", "stream") for kind, _ in sources)
