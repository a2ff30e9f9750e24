r"""Finite static latents over parts with exact inference of their own.

With h ranging over the joint values of the static finite latents, and parts k whose likelihoods do not meet given h,

    p(x_t | x_<t) = sum_h w_t(h) p(x_t | x_<t, h),       w_t(h) proportional to p(h) prod_k p_k(x_<t | h),

every p_k an evidence of the part's own. With one hypothesis it is the part's law, with several a mixture. Parts are found by
changing one continuous latent at a time and seeing which factors move; that they do not meet is checked on every call.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.joint_values import listed_joint_values
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.part import Part, Run, Values
from ppl_tunnels.oracles.support import JointSupport

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of the static finite latents: each gets inference of its own.
MOST_HYPOTHESES = 4_096
# Episodes are taken in batches of about this many hypotheses and steps, to bound memory.
_BATCH = 1 << 17


class PartsEngine:
    """See the module; made by `parts_engine`."""

    def __init__(self, tunnel: "WindTunnel", parts: tuple[Part, ...]):
        self.tunnel, self.parts, self.sites = tunnel, parts, tunnel.reading.sites
        self.statics = tuple(
            name for name in tunnel.reading.named("latent", per_step=False) if self.sites[name].support is not None
        )
        self.support = JointSupport({name: self.sites[name] for name in self.statics})
        kinds = list(dict.fromkeys(part.name for part in parts if part.latents))
        self.name = " and ".join(kinds) if not self.statics else f"mixture of {' and '.join(kinds)}"

    def explain(self) -> str:
        """What is mixed, what each part does, and what a mask means."""
        sentence = "; ".join(part.explain() for part in self.parts if part.latents)
        if self.statics:
            sentence += (
                f"; one such inference for each of the {self.support.size:,} joint values of {', '.join(map(repr, self.statics))}, "
                "weighted by its evidence"
            )
        return f"{self.name[0].upper()}{self.name[1:]}: {sentence}. Here {meaning_of_a_mask(self.tunnel)}."

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Any:
        """Law of a stream site, batch shape `[episode, step]`."""
        part = self._owner(site)
        reason = part.why_no_predictive(site)
        if reason:
            raise TunnelError(f"{reason} (posteriors and log_evidence are available)")
        if self.sites[site].support is not None:
            return Finite(self._finite(episodes, visible, site=site), listed_joint_values(self.sites[site]))
        return self._continuous(part, site, *self._run(episodes, visible, site=site, what="predictive"))

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Any:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        target = self.sites[site]
        if target.support is None:
            return self._continuous(self._owner(site), site, *self._run(episodes, visible, site=site, what="posterior"))
        law = self._finite if target.per_step else self._static
        return Finite(law(episodes, visible, site=site), listed_joint_values(target))

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._log_evidence(episodes)

    @functools.cached_property
    def _finite(self) -> Callable[..., jax.Array]:
        """Log-probabilities of a finite site of every step."""

        def log_probs(episodes, visible, *, site):
            def one(values):
                weights, run = self._of(values, site, visible, "predictive")
                # Weights first: what is left of a difference of two large evidences is rounding.
                shares = normalised(weights.T).T
                return normalised(logsumexp(shares[..., None] + run.parameters, axis=0))

            return self._over_episodes(one, episodes)

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _run(self) -> Callable[..., Any]:
        """Log-weights `[episode, row, hypothesis]` and parameters `[episode, row, hypothesis, ...]`."""

        def run(episodes, visible, *, site, what):
            def one(values):
                weights, run = self._of(values, site, visible, what)
                parameters = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), run.parameters)
                return weights.T, parameters

            return self._over_episodes(one, episodes)

        return jax.jit(run, static_argnames=("site", "what"))

    @functools.cached_property
    def _static(self) -> Callable[..., jax.Array]:
        def law(episodes, visible, *, site):
            def one(values):
                weights = self._over_hypotheses(lambda given: self._prefixes(given, visible), values)
                digits = jax.vmap(self.support.digits)(jnp.arange(self.support.size))[site]
                digits = digits.reshape(self.support.size, -1)
                radix = len(self.sites[site].support)
                own = digits @ jnp.asarray([radix**place for place in range(digits.shape[1])])
                member = jnp.where(own[:, None] == jnp.arange(radix ** digits.shape[1]), 0.0, -jnp.inf)
                return normalised(logsumexp(weights[:, :, None] + member[:, None, :], axis=0))

            return self._over_episodes(one, episodes)

        return jax.jit(law, static_argnames="site")

    @functools.cached_property
    def _log_evidence(self) -> Callable[[Episodes], jax.Array]:
        def log_evidence(episodes):
            def one(values):
                first, last = self._over_hypotheses(lambda given: self._ends(given), values)
                first, last = logsumexp(first), logsumexp(last)
                return jnp.where(jnp.isneginf(first), -jnp.inf, last - jnp.where(jnp.isneginf(first), 0.0, first))

            return self._over_episodes(one, episodes)

        return jax.jit(log_evidence)

    def _of(self, values: Values, site: str, visible: jax.Array | None, what: str) -> tuple[jax.Array, Run]:
        """Log-weights `[hypothesis, row]` of every hypothesis, and what the part of a site says under each."""
        owner = self._owner(site)

        def of(given):
            run = getattr(owner, what)(given, site, visible)
            others = [part for part in self.parts if part is not owner]
            if what == "posterior" and not self.sites[site].per_step:
                beside = [self._prefixes_of(part, given, visible) for part in others]
            else:
                # A latent is known after its whole step, a stream site before what its step draws from there on.
                until = site if self.sites[site].role == "stream" else None
                beside = [part.evidence(given, visible, until) for part in others]
            return run.log_before + sum(beside, start=jnp.zeros(())), run

        return self._over_hypotheses(of, values)

    def _prefixes_of(self, part: Part, given: Values, visible: jax.Array | None) -> jax.Array:
        return jnp.append(part.prior_evidence(given), part.evidence(given, visible, None))

    def _prefixes(self, given: Values, visible: jax.Array | None) -> jax.Array:
        return sum((self._prefixes_of(part, given, visible) for part in self.parts), start=jnp.zeros(()))

    def _ends(self, given: Values) -> tuple[jax.Array, jax.Array]:
        first = sum((part.prior_evidence(given) for part in self.parts), start=jnp.zeros(()))
        last = sum((part.evidence(given, None, None)[-1] for part in self.parts), start=jnp.zeros(()))
        return first, last

    def _over_hypotheses(self, function: Callable[[Values], Any], values: Values) -> Any:
        def of(hypothesis):
            return function({**values, **self.support.values(self.support.digits(hypothesis))})

        return jax.vmap(of)(jnp.arange(self.support.size))

    def _over_episodes(self, function: Callable[[Values], Any], episodes: Episodes) -> Any:
        values = {**episodes.context, **episodes.stream}
        batch = max(1, _BATCH // (self.support.size * max(self.tunnel.length, 1)))
        if len(episodes) <= batch:
            return jax.vmap(function)(values)
        return jax.lax.map(function, values, batch_size=batch)

    def _continuous(self, part: Part, site: str, log_weights: jax.Array, parameters: Any) -> dist.Distribution:
        impossible = jnp.isneginf(log_weights)
        if self.support.size > 1 or not part.latents:
            return Mixture(normalised(log_weights), part.law(site, parameters, impossible & False))
        undefined = jnp.isnan(log_weights[..., 0])

        def alone(leaf):
            leaf = leaf[:, :, 0]
            return jnp.where(undefined.reshape(*undefined.shape, *[1] * (leaf.ndim - 2)), jnp.nan, leaf)

        return part.law(site, jax.tree.map(alone, parameters), impossible[..., 0])

    def _owner(self, site: str) -> Part:
        for part in self.parts:
            if site in part.latents or site in part.streams:
                return part
        return self.parts[0]  # a finite latent of a step: there is one part then
