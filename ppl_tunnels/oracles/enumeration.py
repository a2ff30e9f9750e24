"""Exact inference by summing over every joint value of the latent sites.

With hypothesis h ranging over the joint support, prior p(h) and stream x,

    p(x_t = v | x_<t) = sum_h p(h) prod_{s<t} p(x_s | h, x_<s) p(x_t = v | h, x_<t) / sum_h p(h) prod_{s<t} p(x_s | h, x_<s).

Any program will do, autoregressive ones and latents drawn at every step included, as long as the joint support is small
enough. The program is traced once, vmapped over hypotheses in chunks and over episodes; sums are in log space, so that a
symbol possible only under a hypothesis of weight e^-800 is still possible.

The factors of latents that a scan draws after the step in question sum to one; they are left out, so that later data cannot
touch an earlier row even in its last bit. Once a factor is zero the program need not state any law (an urn with minus one
black balls): where it is NaN from there on, evidence counts as impossible and a latent as uniform.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.joint_values import listed_joint_values
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.local import MOST_LOCAL_VALUES, LocalLatents, local_count, why_not_local
from ppl_tunnels.oracles.masks import evidence_before
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.program_laws import broadcast_law, components_last
from ppl_tunnels.oracles.support import JointSupport
from ppl_tunnels.program import Site, from_layout, laws_given, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Beyond this many hypotheses another engine is the answer, not patience.
MOST_HYPOTHESES = 4_000_000
# Numbers held at once by one chunk (32 MiB in float64): bounds memory whatever the number of hypotheses or episodes.
_CHUNK_NUMBERS = 1 << 22
# Laws mixed into one where the predicted site is not finite.
MOST_COMPONENTS = 4_096


class EnumerationEngine:
    """See the module; made by `from_tunnel`."""

    name = "enumeration"

    def __init__(self, tunnel: "WindTunnel", local: LocalLatents):
        self.tunnel, self.local = tunnel, local
        self.program = tunnel.configured_program
        self.sites = tunnel.reading.sites
        self.streams = tunnel.reading.named("stream")
        enumerated = [name for name in tunnel.reading.named("latent") if name not in local.names]
        self.support = JointSupport({name: self.sites[name] for name in enumerated})

    @classmethod
    def from_tunnel(cls, tunnel: "WindTunnel") -> "EnumerationEngine | str":
        """The engine, or which condition the program fails."""
        for name in tunnel.reading.named("latent"):
            site = tunnel.reading.sites[name]
            if site.support is None and site.support_size is not None:
                return (
                    f"latent site {name!r} has {_size_in_words(site.support_size)} values, too many to enumerate; use a smaller "
                    "configuration, or supply closed_form="
                )
            if site.support is None:
                return (
                    f"latent site {name!r} does not have a fixed finite support ({site.constraint}); discretise its prior "
                    "(ppl_tunnels.discretise), or supply closed_form="
                )
        reason = why_not_local(tunnel)
        if reason is None and local_count(tunnel) > MOST_LOCAL_VALUES:
            reason = (
                f"the latents of one step have {local_count(tunnel):.3g} joint values (at most {MOST_LOCAL_VALUES:,})"
            )
        engine = cls(tunnel, LocalLatents(tunnel, summed=reason is None))
        if engine.support.size > MOST_HYPOTHESES:
            return (
                f"the latents {', '.join(map(repr, engine.support.sites))} have {_size_in_words(engine.support.size)} joint values "
                f"(at most {MOST_HYPOTHESES:,} are enumerated{f'; {reason}' if reason else ''}); use a smaller configuration, or supply "
                "closed_form="
            )
        return engine

    def explain(self) -> str:
        """Why this engine, and what a mask means."""
        if self.support.sites:
            latents = ", ".join(map(repr, self.support.sites))
            what = f"{latents} with {self.support.size:,} joint values, each one run through the program and weighted by its likelihood"
        else:
            what = "nothing hidden is carried from step to step, so every law is the program's own"
        if self.local.names:
            what += f"; {', '.join(map(repr, self.local.names))} matters within its own step only and is summed there"
        return f"Enumeration: {what}. Here {meaning_of_a_mask(self.tunnel)}."

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite | Mixture:
        """Law of a stream site, batch shape `[episode, step]`: a mixture of the program's own where it is not finite."""
        target = self.sites[site]
        if target.support is not None:
            return Finite(self._predictive(episodes, visible, site=site), listed_joint_values(target))
        components = self.support.size * self.local.count
        if components > MOST_COMPONENTS:
            raise TunnelError(
                f"the law of {site!r} is a mixture of {components:,} laws, one for each joint value of the latents (at most "
                f"{MOST_COMPONENTS:,}); use a smaller configuration (posteriors and log_evidence are available)"
            )
        if target.batch_shape[1:]:
            raise TunnelError(
                f"stream site {site!r} has several values at each step; predictives are of sites with one"
            )
        weights, laws = self._mixture(episodes, visible, site=site)
        return Mixture(weights, components_last(laws, axes=2))

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        return Finite(self._posterior(episodes, visible, site=site), listed_joint_values(self.sites[site]))

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._log_evidence(episodes)

    @functools.cached_property
    def _predictive(self) -> Callable[..., jax.Array]:
        def log_probs(episodes, visible, *, site):
            target = self.sites[site]
            values = listed_joint_values(target)

            def terms(hypothesis, observed):
                laws, log_probs = self._weigh(hypothesis, observed)
                before = self._evidence(log_probs, visible, until=site)  # [local, step]

                def at(value):
                    everywhere = jnp.broadcast_to(value, target.layout)
                    # A hypothesis already ruled out may state no law (NaN).
                    own = jax.vmap(lambda law: site_log_prob(law, from_layout(everywhere, target), target))(laws[site])
                    return logsumexp(jnp.where(jnp.isneginf(before), -jnp.inf, before + own), axis=0)

                return jax.vmap(at, out_axes=1)(values)

            numbers = self.tunnel.length * len(values) * self.local.count
            joint = self._sum(terms, lambda t: logsumexp(t, axis=0), episodes, numbers=numbers)
            return normalised(joint)

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _mixture(self) -> Callable[..., Any]:
        """Log-weights `[episode, step, component]` and the program's own laws, a component a joint value of the latents."""

        def mixture(episodes, visible, *, site):
            def one(observed):
                def of(hypothesis):
                    laws, log_probs = self._weigh(hypothesis, observed)
                    law = jax.vmap(lambda each: broadcast_law(each, self.sites[site]))(laws[site])
                    return self._evidence(log_probs, visible, until=site), law

                weights, laws = jax.vmap(of)(jnp.arange(self.support.size))  # [hypothesis, local, step]
                return normalised(weights.reshape(-1, weights.shape[-1]).T), laws

            return jax.vmap(one)({**episodes.context, **episodes.stream})

        return jax.jit(mixture, static_argnames="site")

    @functools.cached_property
    def _posterior(self) -> Callable[..., jax.Array]:
        def log_probs(episodes, visible, *, site):
            target = self.sites[site]
            local = site in self.local.names
            count = len(target.support) ** self._draws_at_once(target)

            def terms(hypothesis, observed):
                _, log_probs = self._weigh(hypothesis, observed)
                weights = self._evidence(log_probs, visible, until=None)  # [local, step]
                if local:
                    return jax.vmap(functools.partial(_grouped_logsumexp, groups=count), in_axes=(1, None))(
                        weights, jnp.asarray(self.local.index[site])
                    )
                weights = logsumexp(weights, axis=0)
                digits = self.support.digits(hypothesis)[site]
                if target.per_step:
                    return weights, self._joint_digit(digits.reshape(digits.shape[0], -1), site)
                index = self._joint_digit(digits.reshape(1, -1), site)
                weights = jnp.concatenate([self._always(log_probs)[None], weights])
                return weights, jnp.broadcast_to(index, weights.shape)

            def grouped(weights_and_index):
                return jax.vmap(functools.partial(_grouped_logsumexp, groups=count), in_axes=1)(*weights_and_index)

            reduce = (lambda t: logsumexp(t, axis=0)) if local else grouped
            joint = self._sum(terms, reduce, episodes, numbers=(self.tunnel.length + 1) * self.local.count)
            return normalised(joint)

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _log_evidence(self) -> Callable[[Episodes], jax.Array]:
        def log_evidence(episodes):
            def terms(hypothesis, observed):
                _, log_probs = self._weigh(hypothesis, observed)
                steps = self._step_by_step(log_probs)
                # Latents of a plate whose steps are not apart count once, with the hypothesis.
                latent = [n for n in self.support.sites if self.sites[n].per_step and n not in self._latents_at_once]
                context = self._always(log_probs) + sum((jnp.sum(log_probs[n][0]) for n in latent), start=jnp.zeros(()))
                return jnp.stack([self._always(log_probs) + jnp.sum(steps), context])

            joint = self._sum(
                terms, lambda t: logsumexp(t, axis=0), episodes, numbers=self.tunnel.length * self.local.count
            )
            impossible_context = jnp.isneginf(joint[:, 1])
            return jnp.where(
                impossible_context, -jnp.inf, joint[:, 0] - jnp.where(impossible_context, 0.0, joint[:, 1])
            )

        return jax.jit(log_evidence)

    def _weigh(self, hypothesis: jax.Array, observed: dict[str, jax.Array]):
        """(laws of all sites, their log-probabilities), a leading axis over the joint values of local latents.

        Log-probabilities are `[local, step]` of sites drawn at every step, `[local]` of others.
        """
        digits = self.support.digits(hypothesis)
        given = {**observed, **self.support.values(digits)}

        def run(local):
            values = {**given, **self.local.everywhere(local)}
            laws = laws_given(self.program, self.sites, values)
            log_probs = {
                name: site_log_prob(laws[name], from_layout(values[name], site), site)
                for name, site in self.sites.items()
            }
            return laws, log_probs

        if self.local.names:
            laws, log_probs = jax.vmap(run)(jax.tree.map(jnp.asarray, self.local.values))
        else:
            laws, log_probs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], run({}))
        zero = {name: jnp.isneginf(log_prob) for name, log_prob in log_probs.items()}
        none = jnp.zeros((self.local.count,), bool)
        once = sum((zero[name] for name, site in self.sites.items() if not site.per_step), start=none)[:, None]
        so_far = jnp.cumsum(sum(zero[name] for name, site in self.sites.items() if site.per_step), axis=1) > 0
        for name, site in self.sites.items():
            lawless = jnp.isnan(log_probs[name]) & ((once | so_far) if site.per_step else once[:, 0])
            uniform = -self._draws_at_once(site) * math.log(site.support_size) if site.role == "latent" else -jnp.inf
            log_probs[name] = jnp.where(lawless, uniform, log_probs[name])
        return laws, log_probs

    def _always(self, log_probs: dict[str, jax.Array]) -> jax.Array:
        """Log-probability of context and latents that counts at every step, a scalar."""
        counted = [name for name in self.sites if self.sites[name].role == "context" or name in self._latents_at_once]
        return sum((jnp.sum(log_probs[name][0]) for name in counted), start=jnp.zeros(()))

    def _step_by_step(self, log_probs: dict[str, jax.Array], until: str | None = None) -> jax.Array:
        """Log-probability of what a step draws before a site (all of it by default), summed over local latents: `[step]`."""
        return logsumexp(self._drawn(log_probs, until), axis=0)

    def _drawn(self, log_probs: dict[str, jax.Array], until: str | None = None) -> jax.Array:
        """The same for each joint value of the local latents, `[local, step]`."""
        order = list(self.sites)
        counted = [
            name
            for name, site in self.sites.items()
            if site.role != "context" and name not in self._latents_at_once and site.per_step
            # Local latents drawn after the site sum to one.
            if name in self.local.names or until is None or order.index(name) < order.index(until)
        ]
        return sum((log_probs[name] for name in counted), start=jnp.zeros((self.local.count, self.tunnel.length)))

    def _evidence(self, log_probs: dict[str, jax.Array], visible: jax.Array | None, until: str | None) -> jax.Array:
        """Log joint of what is known at each step and each joint value of its local latents, `[local, step]`.

        Args:
            log_probs: of `_weigh`.
            visible: whose likelihoods count; the latents drawn so far always do.
            until: the site before which a step's own draws count; all of them by default.
        """
        chained = [name for name in self.support.sites if name not in self._latents_at_once]
        nothing = jnp.zeros(self.tunnel.length)
        drawn = evidence_before(sum((log_probs[name][0] for name in chained), start=nothing), None)
        likelihood = logsumexp(sum(log_probs[name] for name in (*self.local.names, *self.streams)), axis=0)
        past = self._always(log_probs) + drawn + evidence_before(likelihood, visible)
        return past + self._drawn(log_probs, until)

    @functools.cached_property
    def _latents_at_once(self) -> frozenset[str]:
        """Latents whose factors cannot be taken step by step: those drawn once, and those of a plate, which has no order."""
        in_scan = self.tunnel.reading.axis == "the scan"
        return frozenset(name for name in self.support.sites if not (in_scan and self.sites[name].per_step))

    def _sum(self, terms, reduce, episodes: Episodes, *, numbers: int) -> jax.Array:
        """Reduce `terms(hypothesis, observed)` over all hypotheses, chunk by chunk, for every episode."""
        size, count = self.support.size, max(len(episodes), 1)
        chunk = max(1, min(size, _CHUNK_NUMBERS // (count * max(numbers, 1))))
        chunks = -(-size // chunk)

        def one_episode(observed):
            def of_chunk(start):
                hypotheses = start + jnp.arange(chunk)
                out = jax.vmap(terms, in_axes=(0, None))(jnp.minimum(hypotheses, size - 1), observed)
                leaves, structure = jax.tree.flatten(out)
                inside = (hypotheses < size).reshape(-1, *[1] * (leaves[0].ndim - 1))
                leaves[0] = jnp.where(inside, leaves[0], -jnp.inf)
                return reduce(jax.tree.unflatten(structure, leaves))

            if chunks == 1:
                return of_chunk(0)
            first = of_chunk(0)
            rest, _ = jax.lax.scan(
                lambda total, start: (jnp.logaddexp(total, of_chunk(start)), None), first, jnp.arange(1, chunks) * chunk
            )
            return rest

        return jax.vmap(one_episode)({**episodes.context, **episodes.stream})

    def _draws_at_once(self, site: Site) -> int:
        """How many draws one law of the site spans: all of a static one, those of one step otherwise."""
        return math.prod(site.batch_shape[1:] if site.per_step else site.batch_shape)

    def _joint_digit(self, digits: jax.Array, site: str) -> jax.Array:
        """Support indices of the draws of a row -> one index, `[row]`."""
        powers = jnp.asarray(
            [len(self.sites[site].support) ** power for power in range(digits.shape[1])], dtype=jnp.int64
        )
        return digits @ powers


def _grouped_logsumexp(weights: jax.Array, index: jax.Array, *, groups: int) -> jax.Array:
    """logsumexp of the weights within each group, `[group]`; -inf for an empty one."""
    largest = jax.ops.segment_max(weights, index, groups)
    shift = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return jnp.log(jax.ops.segment_sum(jnp.exp(weights - shift[index]), index, groups)) + shift


def _size_in_words(size: int) -> str:
    return f"{size:,}" if size < 10**12 else f"about 10^{len(str(size)) - 1}"
