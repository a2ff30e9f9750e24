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
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.causality import meaning_of_a_mask
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.masks import evidence_before
from ppl_tunnels.oracles.normalising import normalised
from ppl_tunnels.oracles.support import MOST_LISTED_VALUES, JointSupport
from ppl_tunnels.program import Site, from_layout, laws_given, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Beyond this many hypotheses another engine is the answer, not patience.
MOST_HYPOTHESES = 4_000_000
# Numbers held at once by one chunk (32 MiB in float64): bounds memory whatever the number of hypotheses or episodes.
_CHUNK_NUMBERS = 1 << 22


class EnumerationEngine:
    """See the module; made by `from_tunnel`."""

    name = "enumeration"

    def __init__(self, tunnel: "WindTunnel"):
        self.tunnel = tunnel
        self.program = tunnel.configured_program
        self.sites = tunnel.reading.sites
        self.support = JointSupport({name: self.sites[name] for name in tunnel.reading.named("latent")})

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
                    f"latent site {name!r} does not have a fixed finite support ({site.constraint}); discretise its prior on a "
                    "grid, or supply closed_form="
                )
        engine = cls(tunnel)
        if engine.support.size > MOST_HYPOTHESES:
            return (
                f"the latents {', '.join(map(repr, engine.support.sites))} have {_size_in_words(engine.support.size)} joint values "
                f"(at most {MOST_HYPOTHESES:,} are enumerated); use a smaller configuration, or supply closed_form="
            )
        return engine

    def explain(self) -> str:
        """Why this engine, and what a mask means."""
        latents = ", ".join(map(repr, self.support.sites)) or "no latent"
        return (
            f"Enumeration: {latents} with {self.support.size:,} joint values, each one run through the program and weighted by "
            f"its likelihood. Here {meaning_of_a_mask(self.tunnel)}."
        )

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a stream site, batch shape `[episode, step]`."""
        target = self.sites[site]
        if target.support is None:
            raise TunnelError(
                f"stream site {site!r} has no finite support ({target.constraint}); enumeration gives predictives of finite "
                "sites only (its posteriors and log_evidence are available)"
            )
        return Finite(self._predictive(episodes, visible, site=site), target.support)

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        return Finite(self._posterior(episodes, visible, site=site), self._joint_values(self.sites[site]))

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`."""
        return self._log_evidence(episodes)

    @functools.cached_property
    def _predictive(self) -> Callable[..., jax.Array]:
        names = self.tunnel.reading.named("stream")

        def log_probs(episodes, visible, *, site):
            target = self.sites[site]
            support = jnp.asarray(target.support)

            def terms(hypothesis, observed):
                laws, log_probs = self._weigh(hypothesis, observed)
                evidence = self._prior(log_probs, until=site)
                evidence += evidence_before(sum(log_probs[name] for name in names), visible)
                evidence += sum(log_probs[name] for name in names[: names.index(site)])

                def at(value):
                    everywhere = jnp.broadcast_to(value, target.layout)
                    return site_log_prob(laws[site], from_layout(everywhere, target), target)

                # A hypothesis already ruled out may state no law (NaN).
                ruled_out = jnp.isneginf(evidence)[:, None]
                return jnp.where(ruled_out, -jnp.inf, evidence[:, None] + jax.vmap(at, out_axes=1)(support))

            joint = self._sum(
                terms, lambda t: logsumexp(t, axis=0), episodes, numbers=self.tunnel.length * len(support)
            )
            return normalised(joint)

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _posterior(self) -> Callable[..., jax.Array]:
        names = self.tunnel.reading.named("stream")

        def log_probs(episodes, visible, *, site):
            target = self.sites[site]
            count = self.support.radix[site] ** self._draws_at_once(target)

            def terms(hypothesis, observed):
                _, log_probs = self._weigh(hypothesis, observed)
                likelihood = sum(log_probs[name] for name in names)
                weights = self._prior(log_probs) + evidence_before(likelihood, visible) + likelihood
                digits = self.support.digits(hypothesis)[site]
                if target.per_step:
                    return weights, self._joint_digit(digits.reshape(digits.shape[0], -1), site)
                index = self._joint_digit(digits.reshape(1, -1), site)
                weights = jnp.concatenate([self._always(log_probs)[None], weights])
                return weights, jnp.broadcast_to(index, weights.shape)

            def grouped(weights_and_index):
                return jax.vmap(functools.partial(_grouped_logsumexp, groups=count), in_axes=1)(*weights_and_index)

            joint = self._sum(terms, grouped, episodes, numbers=self.tunnel.length + 1)
            return normalised(joint)

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _log_evidence(self) -> Callable[[Episodes], jax.Array]:
        def log_evidence(episodes):
            def terms(hypothesis, observed):
                _, log_probs = self._weigh(hypothesis, observed)
                latent = sum(jnp.sum(log_probs[name]) for name in self.sites if self.sites[name].role != "stream")
                return jnp.stack([sum(map(jnp.sum, log_probs.values())), latent + jnp.zeros(())])

            joint = self._sum(terms, lambda t: logsumexp(t, axis=0), episodes, numbers=self.tunnel.length)
            impossible_context = jnp.isneginf(joint[:, 1])
            return jnp.where(
                impossible_context, -jnp.inf, joint[:, 0] - jnp.where(impossible_context, 0.0, joint[:, 1])
            )

        return jax.jit(log_evidence)

    def _weigh(self, hypothesis: jax.Array, observed: dict[str, jax.Array]):
        """(laws of all sites, log-probabilities by site: `[step]`, or a scalar for a site drawn once)."""
        values = {**observed, **self.support.values(self.support.digits(hypothesis))}
        laws = laws_given(self.program, self.sites, values)
        log_probs = {
            name: site_log_prob(laws[name], from_layout(values[name], site), site) for name, site in self.sites.items()
        }
        zero = {name: jnp.isneginf(log_prob) for name, log_prob in log_probs.items()}
        once = sum((zero[name] for name, site in self.sites.items() if not site.per_step), start=jnp.zeros((), bool))
        so_far = jnp.cumsum(sum(zero[name] for name, site in self.sites.items() if site.per_step)) > 0
        for name, site in self.sites.items():
            lawless = jnp.isnan(log_probs[name]) & ((once | so_far) if site.per_step else once)
            uniform = -self._draws_at_once(site) * math.log(site.support_size) if site.role == "latent" else -jnp.inf
            log_probs[name] = jnp.where(lawless, uniform, log_probs[name])
        return laws, log_probs

    def _always(self, log_probs: dict[str, jax.Array]) -> jax.Array:
        """Log-probability of context and latents that counts at every step, a scalar."""
        counted = [name for name in self.sites if self.sites[name].role == "context" or name in self._latents_at_once]
        return sum((jnp.sum(log_probs[name]) for name in counted), start=jnp.zeros(()))

    def _prior(self, log_probs: dict[str, jax.Array], until: str | None = None) -> jax.Array:
        """Log-probability of context and latents drawn so far, `[step]`: in a step's own program order up to a site."""
        order = list(self.sites)
        step_by_step = [name for name in self.support.sites if name not in self._latents_at_once]
        drawn = [name for name in step_by_step if until is None or order.index(name) < order.index(until)]
        nothing = jnp.zeros(self.tunnel.length)
        before = evidence_before(sum((log_probs[name] for name in step_by_step), start=nothing), None)
        return self._always(log_probs) + before + sum((log_probs[name] for name in drawn), start=nothing)

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
        return self.support.draws[site.name] // (self.tunnel.length if site.per_step else 1)

    def _joint_digit(self, digits: jax.Array, site: str) -> jax.Array:
        """Support indices of the draws of a row -> one index, `[row]`."""
        powers = jnp.asarray([self.support.radix[site] ** power for power in range(digits.shape[1])], dtype=jnp.int64)
        return digits @ powers

    def _joint_values(self, site: Site) -> jax.Array:
        draws, radix = self._draws_at_once(site), self.support.radix[site.name]
        if radix**draws > MOST_LISTED_VALUES:
            raise TunnelError(f"the law of {site.name!r} has {radix**draws:,} values; use a smaller configuration")
        index = jnp.arange(radix**draws)[:, None] // jnp.asarray([radix**power for power in range(draws)]) % radix
        shape = site.layout[1:] if site.per_step else site.layout
        return jnp.asarray(site.support)[index].reshape(radix**draws, *shape)


def _grouped_logsumexp(weights: jax.Array, index: jax.Array, *, groups: int) -> jax.Array:
    """logsumexp of the weights within each group, `[group]`; -inf for an empty one."""
    largest = jax.ops.segment_max(weights, index, groups)
    shift = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return jnp.log(jax.ops.segment_sum(jnp.exp(weights - shift[index]), index, groups)) + shift


def _size_in_words(size: int) -> str:
    return f"{size:,}" if size < 10**12 else f"about 10^{len(str(size)) - 1}"
