"""Exact filtering of a scan whose carry takes finitely many values that depend on latents.

With state i, latents z and stream values y of one step, and given what the program can see (context, observed carry,
inputs), the step function gives p(z | i), p(y | i, z) and the next state j(i, z, y). Summed over z,

    M_t[i, j] = sum_z p(z | i) p(y_t | i, z) [j(i, z, y_t) = j],      belief_{t+1} = belief_t M_t / (its sum),

and the sum is p(y_t | y_<t). Beliefs are normalised at every step, in linear space: exact, and impossibility is a zero sum.
Where a step is hidden, p(y_t | i, z) is left out of M_t. Static latents that matter only through the first state are summed
into the first belief; each joint value of the others has a filter of its own, and the filters are mixed by their evidence.

Source: Rabiner (1989), section III; the state space is read off the program (see `state_space`).
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.scans import take_out_scan
from ppl_tunnels.oracles.state_space import StateSpace, Unsuitable, find_state_space, joint_values, step_batch
from ppl_tunnels.program import from_layout, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of the static latents that each get a filter of their own.
MOST_HYPOTHESES = 4_096
# Joint values of one step's stream for which matrices are made in advance.
_MOST_LABELS = 256


class FilteringEngine:
    """See the module; made by `from_tunnel`."""

    name = "filtering"

    def __init__(self, tunnel: "WindTunnel", space: StateSpace):
        self.tunnel, self.space = tunnel, space
        self.program, self.sites = tunnel.configured_program, tunnel.reading.sites
        self.streams = tunnel.reading.named("stream")
        self.statics = tunnel.reading.named("latent", per_step=False)
        streams = {name: self.sites[name] for name in self.streams}
        labels = math.prod(
            (site.support_size or _MOST_LABELS + 1) ** math.prod(step_batch(site)) for site in streams.values()
        )
        self.labelled = space.homogeneous and labels <= _MOST_LABELS
        if self.labelled:
            self.label_values, self.label_index = joint_values(streams, step_batch)

    @classmethod
    def from_tunnel(cls, tunnel: "WindTunnel") -> "FilteringEngine | str":
        """The engine, or which condition the program fails."""
        reading = tunnel.reading
        if reading.axis != "the scan":
            return "the stream does not lie in a scan, so there is no state to filter"
        try:
            space = find_state_space(tunnel)
        except Unsuitable as reason:
            return str(reason)
        hypotheses = math.prod(
            len(reading.sites[name].support) ** math.prod(reading.sites[name].batch_shape)
            for name in reading.named("latent", per_step=False)
        )
        if hypotheses > MOST_HYPOTHESES:
            return (
                f"the static latents {', '.join(map(repr, reading.named('latent', per_step=False)))} have {hypotheses:,} joint values (at "
                f"most {MOST_HYPOTHESES:,} get a filter each); use a smaller configuration"
            )
        return cls(tunnel, space)

    def explain(self) -> str:
        """Why this engine, and what a mask means."""
        others = [name for name in self.statics if name not in self.space.initial]
        mixed = f", mixed over the joint values of {', '.join(map(repr, others))}" if others else ""
        return (
            f"Filtering: the scan's carry takes {self.space.size:,} values that depend on latents, so a belief over them is carried "
            f"forward{mixed}. Here {meaning_of_a_mask(self.tunnel)}."
        )

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a stream site, batch shape `[episode, step]`."""
        target = self.sites[site]
        if target.support is None:
            raise TunnelError(
                f"stream site {site!r} has no finite support ({target.constraint}); filtering gives predictives of finite sites only "
                "(its posteriors and log_evidence are available)"
            )
        return Finite(self._law(episodes, visible, site=site), target.support)

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        target = self.sites[site]
        shape = step_batch(target) if target.per_step else target.batch_shape
        values, index = joint_values({site: target}, lambda _: shape)
        # The joint values of a site come with its first draw running slowest; laws list them with it running fastest.
        order = np.argsort(index[site], kind="stable")
        log_probs = (
            self._law(episodes, visible, site=site) if target.per_step else self._static(episodes, visible, site=site)
        )
        return Finite(log_probs, values[site][order])

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._log_evidence(episodes)

    @functools.cached_property
    def _law(self) -> Callable[..., jax.Array]:
        def law(episodes, visible, *, site):
            def one(observed, context):
                prior, filters = self._hypotheses(context, merge=True)

                def of(static, first):
                    return self._filter(context, static, first, observed, visible, site)

                log_rows, log_before = jax.vmap(of)(*filters)
                weights = (prior[:, None] + log_before)[:, :, None]
                return normalised(logsumexp(log_rows + weights, axis=0))

            return jax.vmap(one)(episodes.stream, episodes.context)

        return jax.jit(law, static_argnames="site")

    @functools.cached_property
    def _static(self) -> Callable[..., jax.Array]:
        def law(episodes, visible, *, site):
            _, index = joint_values({name: self.sites[name] for name in self.statics}, lambda each: each.batch_shape)
            own = index[site]

            def one(observed, context):
                prior, filters = self._hypotheses(context, merge=False)

                def of(static, first):
                    return self._filter(context, static, first, observed, visible, None)

                weights = prior[:, None] + jnp.asarray(jax.vmap(of)(*filters))  # [hypothesis, step + 1]
                member = jnp.where(own[:, None] == np.arange(own.max() + 1), 0.0, -jnp.inf)
                return normalised(logsumexp(weights[:, :, None] + member[:, None, :], axis=0))

            return jax.vmap(one)(episodes.stream, episodes.context)

        return jax.jit(law, static_argnames="site")

    @functools.cached_property
    def _log_evidence(self) -> Callable[[Episodes], jax.Array]:
        def log_evidence(episodes):
            def one(observed, context):
                prior, filters = self._hypotheses(context, merge=True)

                def of(static, first):
                    return self._filter(context, static, first, observed, None, None)[-1]

                return logsumexp(prior + jax.vmap(of)(*filters)) - logsumexp(prior)

            return jax.vmap(one)(episodes.stream, episodes.context)

        return jax.jit(log_evidence)

    def _hypotheses(self, context: dict, *, merge: bool) -> tuple[jax.Array, tuple[dict, jax.Array]]:
        """Log prior of each hypothesis `[h]` (with the context's), its static values, and its first belief `[h, state]`."""
        static_sites = {name: self.sites[name] for name in self.statics}
        values, index = joint_values(static_sites, lambda site: site.batch_shape)
        count = len(next(iter(values.values()))) if values else 1

        def begin(static):
            scan = take_out_scan(self.program, {**context, **self._own(static)})
            given = {**context, **static}
            log_prior = sum(
                (
                    jnp.sum(
                        site_log_prob(scan.before[name], from_layout(given[name], self.sites[name]), self.sites[name])
                    )
                    for name in given
                ),
                start=jnp.zeros(()),
            )
            leaves = jax.tree.leaves(scan.first)
            return log_prior, self._state_of([leaves[i] for i in self.space.hidden])

        if values:
            log_prior, state = jax.vmap(begin)(jax.tree.map(jnp.asarray, values))
        else:
            log_prior, state = (leaf[None] for leaf in begin({}))
        one_hot = jax.nn.one_hot(state, self.space.size, dtype=jnp.float64)
        merged = self.space.initial if merge else ()
        kept = [name for name in self.statics if name not in merged]
        group = np.zeros(count, dtype=int)
        for name in kept:
            group = group * (int(index[name].max()) + 1) + index[name]
        _, representative, group = np.unique(group, return_index=True, return_inverse=True)
        member = jnp.where(group == np.arange(len(representative))[:, None], log_prior, -jnp.inf)  # [group, h]
        total = logsumexp(member, axis=1)
        shares = jnp.exp(member - jnp.where(jnp.isneginf(total), 0.0, total)[:, None])
        chosen = {name: jnp.asarray(value[representative]) for name, value in values.items()}
        return total, (chosen, shares @ one_hot)

    def _own(self, values: dict) -> dict:
        return {name: from_layout(value, self.sites[name]) for name, value in values.items()}

    def _state_of(self, hidden: list[jax.Array]) -> jax.Array:
        """Index of a hidden carry among the states."""
        same = jnp.ones(self.space.size, dtype=bool)
        for leaf, states in zip(hidden, self.space.states, strict=True):
            same &= (jnp.asarray(states) == leaf).reshape(self.space.size, -1).all(axis=1)
        return jnp.argmax(same)

    def _filter(self, context, static, first, observed, visible, site):
        """One episode under one hypothesis.

        Returns:
            Without a site: log evidence of each prefix, `[step + 1]`. With one: log of its unnormalised law at each step,
            `[step, symbol]`, and the log evidence before each step, `[step]`.
        """
        scan = take_out_scan(self.program, {**context, **self._own(static)})
        steps = self.tunnel.length

        def matrices(carry, given, stream):
            return self._matrices(scan, carry, given, stream, site)

        if self.labelled:
            leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(scan.first)]
            inputs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], scan.inputs) if steps else None
            table = jax.vmap(lambda stream: matrices(leaves, inputs, stream)[:-1])(
                jax.tree.map(jnp.asarray, self.label_values)
            )
            labels = sum(self._label_part(name, observed[name]) for name in self.streams)

        else:
            table, labels = None, jnp.zeros(steps, dtype=int)

        def at(carry, given, stream, label):
            if table is None:
                return matrices(carry, given, stream)
            return (*jax.tree.map(lambda leaf: leaf[label], table), carry)

        def run(shown):
            def advance(state, step):
                belief, carry, log_evidence = state
                given, stream, label, is_shown = step
                seen, unseen, law, scale, following = at(carry, given, stream, label)
                row = belief @ law
                after = belief @ jnp.where(is_shown, seen, unseen)
                total = after.sum()
                dead = total <= 0
                belief = jnp.where(dead, 0.0, after / jnp.where(dead, 1.0, total))
                # scale is what was taken out of the densities to keep them in range.
                gain = jnp.where(dead, -jnp.inf, jnp.log(jnp.where(dead, 1.0, total)) + jnp.where(is_shown, scale, 0.0))
                return (belief, following, log_evidence + gain), (jnp.log(row) + scale, log_evidence)

            leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(scan.first)]
            steps_given = (scan.inputs, observed, labels, shown)
            start = (first, leaves, jnp.zeros(()))
            (_, _, last), (rows, before) = jax.lax.scan(advance, start, steps_given, length=steps)
            return rows, before, last

        if visible is None:
            rows, before, last = run(jnp.ones(steps, dtype=bool))
        elif site is None:
            return self._masked_prefixes(run, visible, steps)
        else:
            all_rows, all_before, _ = jax.vmap(run)(visible)
            diagonal = jnp.arange(steps)
            return all_rows[diagonal, diagonal], all_before[diagonal, diagonal]
        return jnp.append(before, last) if site is None else (rows, before)

    def _masked_prefixes(self, run, visible, steps):
        """Log evidence after each prefix: its own last step, and the earlier ones that are visible there."""
        own = visible | jnp.eye(steps, dtype=bool)
        _, before, last = jax.vmap(run)(own)
        through = jnp.concatenate([before, last[:, None]], axis=1)
        return jnp.append(jnp.zeros(1), through[jnp.arange(steps), jnp.arange(steps) + 1])

    def _label_part(self, name: str, values: jax.Array) -> jax.Array:
        """A stream site's share of the label of each step, `[step]`."""
        site = self.sites[name]
        support = jnp.asarray(site.support)
        draws = math.prod(step_batch(site))
        flat = values.reshape(values.shape[0], draws, 1, -1)
        digits = jnp.argmax((flat == support.reshape(1, 1, len(support), -1)).all(axis=-1), axis=-1)
        later = math.prod(
            len(self.sites[other].support) ** math.prod(step_batch(self.sites[other]))
            for other in self.streams[self.streams.index(name) + 1 :]
        )
        powers = len(site.support) ** np.arange(draws)[::-1]
        return (digits @ powers) * later

    def _matrices(self, scan, carry, given, stream, site):
        """What one step does to a belief: `(seen [i, j], unseen [i, j], law [i, symbol], scale, next observed carry)`.

        `law[i]` holds, for a stream site, the joint of its own step's earlier sites and each of its values; for a latent, the
        joint of all of the step's stream and each of its values. Densities are divided by exp(scale).
        """
        structure = jax.tree.structure(scan.first)
        latents = self.space.draws
        per_step_streams = self.streams

        def one(state, latent):
            leaves = list(carry)
            for leaf, states in zip(self.space.hidden, self.space.states, strict=True):
                leaves[leaf] = jnp.asarray(states)[state]
            values = {**latent, **stream}
            following, laws = scan.step(jax.tree.unflatten(structure, leaves), given, values)
            log_prob = {name: jnp.sum(exact_log_prob(laws[name], values[name])) for name in values}
            prior = sum((log_prob[name] for name in latent), start=jnp.zeros(()))
            likelihood = sum((log_prob[name] for name in per_step_streams), start=jnp.zeros(()))
            after = [jnp.asarray(leaf) for leaf in jax.tree.leaves(following)]
            symbols = jnp.zeros(0)
            if site in per_step_streams:
                target = self.sites[site]
                earlier = sum(
                    (log_prob[name] for name in self.streams[: self.streams.index(site)]), start=jnp.zeros(())
                )
                batch = step_batch(target)

                def at(value):
                    return jnp.sum(exact_log_prob(laws[site], jnp.broadcast_to(value, (*batch, *target.event_shape))))

                symbols = prior + earlier + jax.vmap(at)(jnp.asarray(target.support))
            return prior, likelihood, symbols, self._state_of([after[i] for i in self.space.hidden]), after

        states = jnp.arange(self.space.size)
        over = (
            jax.vmap(one, in_axes=(None, 0))
            if latents
            else lambda state, latent: jax.tree.map(lambda x: x[None], one(state, latent))
        )
        prior, likelihood, symbols, following, after = jax.vmap(over, in_axes=(0, None))(
            states, jax.tree.map(jnp.asarray, latents)
        )
        finite = jnp.isfinite(prior + likelihood)
        scale = jnp.max(jnp.where(finite, likelihood, -jnp.inf))
        scale = jnp.where(jnp.isfinite(scale), scale, 0.0)
        weight = jnp.exp(prior)
        moves = jax.nn.one_hot(following, self.space.size, dtype=jnp.float64)  # [i, z, j]
        seen = jnp.einsum("iz,izj->ij", weight * jnp.exp(likelihood - scale), moves)
        unseen = jnp.einsum("iz,izj->ij", weight, moves)
        if site in per_step_streams:
            law = jnp.exp(symbols - scale).sum(axis=1)
        elif site is not None:
            own = self.space.draw_index[site]
            member = jnp.asarray(own[:, None] == np.arange(own.max() + 1), dtype=jnp.float64)
            law = jnp.einsum("iz,zv->iv", weight * jnp.exp(likelihood - scale), member)
        else:
            law = jnp.zeros((self.space.size, 0))
        observed = [leaf[0, 0] for leaf in after]
        return seen, unseen, law, scale, observed
