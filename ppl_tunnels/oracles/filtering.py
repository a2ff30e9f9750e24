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
from jax.core import Tracer
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.beliefs import Memory
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.given_episodes import Knowledge
from ppl_tunnels.oracles.joint_values import draws_at_once, first_fastest_order, joint_values, listed_joint_values
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.recursion import Recursion
from ppl_tunnels.oracles.semirings import LINEAR, LOG
from ppl_tunnels.oracles.state_space import StateSpace, find_state_space
from ppl_tunnels.oracles.step_factors import Factors
from ppl_tunnels.oracles.step_function import StepFunction, Unsuitable

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of the static latents that each get beliefs of their own.
MOST_HYPOTHESES = 4_096
# Laws mixed into one where the predicted site is not finite.
MOST_COMPONENTS = 4_096
# Numbers held by the episodes of one batch: these stay in a processor's cache, which is twice as fast as to fetch them at
# every step.
_BATCH_NUMBERS = 1 << 17


class FilteringEngine:
    """See the module; made by `from_tunnel`."""

    name = "filtering"

    def __init__(self, tunnel: "WindTunnel", step: StepFunction, space: StateSpace):
        self.tunnel, self.space, self.step = tunnel, space, step
        self.sites = tunnel.reading.sites
        factors = Factors(step, space)
        self.knowledge = Knowledge(step, space, factors)
        self.recursion = Recursion(step, space, factors, self.sites)

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
            return Finite(self._run(self._law, episodes, site, visible), listed_joint_values(self.sites[site]))
        if draws_at_once(target):
            raise TunnelError(
                f"stream site {site!r} has several values at each step; predictives are of sites with one"
            )
        weights, laws = self._run(self._mixture, episodes, site, visible)
        return Mixture(weights, laws)

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        if self.sites[site].per_step:
            return Finite(self._run(self._law, episodes, site, visible), listed_joint_values(self.sites[site]))
        return Finite(self._run(self._static, episodes, site, visible), listed_joint_values(self.sites[site]))

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._run(self._evidence, episodes, None, None)

    def _run(self, function: Callable[..., Any], episodes: Episodes, site: str | None, visible: Any) -> Any:
        """A function of batches, in linear space, and by logarithms where that came near underflowing."""
        memory = Memory.of(visible)
        values = {**episodes.context, **episodes.stream}

        def by(ring):
            return function(values, memory.visible, site=site, width=memory.width, ring=ring)

        result, near = by(LINEAR)
        if isinstance(near, Tracer):
            return jax.lax.cond(near, lambda: by(LOG)[0], lambda: result)
        return by(LOG)[0] if near else result

    def _in_batches(self, function: Callable[..., Any], values: dict[str, jax.Array], memory: Memory) -> Any:
        """`function` of batches of episodes whose numbers fit into memory: what it returns, `[episode, ...]`, and whether anything
        came near underflowing."""
        count = len(next(iter(values.values())))
        held = self.knowledge.hypotheses * (self.knowledge.numbers + memory.chains * self.recursion.moves.numbers)
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
        out, near = jax.lax.map(function, split)
        out = jax.tree.map(lambda leaf: leaf.reshape(batches * batch, *leaf.shape[2:])[:count], out)
        return out, near.any()

    @functools.cached_property
    def _law(self) -> Callable[..., jax.Array]:
        """Log-probabilities `[episode, step, value]` of a site drawn at every step."""

        def law(values, visible, *, site, width, ring):
            memory = Memory(width, visible)

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)
                (rows, weights), near = self.recursion.run(given, first, memory, site, ring)
                return _mixed(ring.log(rows), weights, prior), near

            return self._in_batches(of, values, memory)

        return jax.jit(law, static_argnames=("site", "width", "ring"))

    @functools.cached_property
    def _mixture(self) -> Callable[..., Any]:
        """Log-weights `[episode, step, component]` and the program's own laws, `[episode, step, ...]` leading their leaves."""

        def mixture(values, visible, *, site, width, ring):
            memory = Memory(width, visible)

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)

                (rows, weights), near = self.recursion.run(given, first, memory, site, ring)
                weights = prior if weights is None else weights + prior
                weights = ring.log(rows) + weights[..., None, :, :]  # [step, own, hypothesis, episode]
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

                return (normalised(weights), jax.tree.map(relaid, self.recursion.factors.laws(site, given))), near

            return self._in_batches(of, values, memory)

        return jax.jit(mixture, static_argnames=("site", "width", "ring"))

    @functools.cached_property
    def _static(self) -> Callable[..., jax.Array]:
        """Log-probabilities `[episode, step + 1, value]` of a static latent."""

        def law(values, visible, *, site, width, ring):
            memory = Memory(width, visible)
            _, index = joint_values(self.step.statics, lambda each: each.batch_shape)
            order = first_fastest_order(self.sites[site])
            member = jnp.where(index[site] == order[:, None], 0.0, -jnp.inf)  # [value, hypothesis]

            def of(values):
                given = self.knowledge.of(values, merge=False)
                prior, first = self.knowledge.hypotheses_of(given, merge=False)
                prefixes, near = self.recursion.run(given, first, memory, None, ring)
                weights = jnp.moveaxis(prefixes + prior, -1, 0)[:, :, None]  # [episode, step + 1, 1, hypothesis]
                return normalised(logsumexp(weights + member, axis=-1)), near

            return self._in_batches(of, values, memory)

        return jax.jit(law, static_argnames=("site", "width", "ring"))

    @functools.cached_property
    def _evidence(self) -> Callable[..., jax.Array]:
        def log_evidence(values, visible, *, site, width, ring):
            del visible, site, width

            def of(values):
                given = self.knowledge.of(values)
                prior, first = self.knowledge.hypotheses_of(given, merge=True)
                prefixes, near = self.recursion.run(given, first, Memory(), None, ring)
                context = logsumexp(prior, axis=0)
                joint = logsumexp(prefixes[-1] + prior, axis=0)
                impossible = jnp.isneginf(context)
                return jnp.where(impossible, -jnp.inf, joint - jnp.where(impossible, 0.0, context)), near

            return self._in_batches(of, values, Memory())

        return jax.jit(log_evidence, static_argnames=("site", "width", "ring"))


def _mixed(log_rows: jax.Array, weights: jax.Array | None, prior: jax.Array) -> jax.Array:
    """Rows of each hypothesis `[step, value, hypothesis, episode]`, mixed by evidence: `[episode, step, value]`."""
    rows = jnp.transpose(log_rows, (3, 0, 1, 2))  # [episode, step, value, hypothesis]
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
