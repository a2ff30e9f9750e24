"""The factors of one episode, step by step, with the finite latents of a step summed within it."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from ppl_tunnels.oracles.local import LocalLatents
from ppl_tunnels.program import from_layout, laws_given, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


@dataclasses.dataclass(frozen=True)
class Terms:
    """The factors of one run of the program.

    Attributes:
        laws: of every site, a leading axis over the joint values of the local latents.
        fixed: log-probability of context and static finite latents, a scalar.
        local: log-probability of the local latents, `[local, step]`.
        streams: log-probability of every stream site, `[local, step]` each.
    """

    laws: dict[str, Any]
    fixed: jax.Array
    local: jax.Array
    streams: dict[str, jax.Array]


class TermsOf:
    """Runs of one program.

    Args:
        tunnel: whose finite latents of a step, if any, are local.
    """

    def __init__(self, tunnel: "WindTunnel"):
        self.tunnel, self.sites, self.local = tunnel, tunnel.reading.sites, LocalLatents(tunnel)
        self.order = list(self.sites)
        self.fixed = tuple(
            name
            for name, site in self.sites.items()
            if site.role == "context" or (site.role == "latent" and not site.per_step and site.support is not None)
        )

    def run(self, values: dict[str, jax.Array]) -> Terms:
        """The factors given context, stream and every latent but the local ones, step axis first."""

        def one(local):
            full = {**values, **self.local.everywhere(local)}
            laws = laws_given(self.tunnel.configured_program, self.sites, full)
            log_probs = {
                name: site_log_prob(laws[name], from_layout(full[name], self.sites[name]), self.sites[name])
                for name in (*self.fixed, *self.local.names, *self.tunnel.reading.named("stream"))
            }
            return laws, log_probs

        if self.local.names:
            laws, log_probs = jax.vmap(one)(jax.tree.map(jnp.asarray, self.local.values))
        else:
            laws, log_probs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one({}))
        nothing = jnp.zeros((self.local.count, self.tunnel.length))
        return Terms(
            laws=laws,
            fixed=sum((jnp.sum(log_probs[name][0]) for name in self.fixed), start=jnp.zeros(())),
            local=sum((log_probs[name] for name in self.local.names), start=nothing),
            streams={name: log_probs[name] + nothing for name in self.tunnel.reading.named("stream")},
        )

    def joint(self, terms: Terms, streams: tuple[str, ...]) -> jax.Array:
        """Log joint of each value of the local latents and some stream sites of its step, `[local, step]`."""
        return terms.local + sum((terms.streams[name] for name in streams), start=jnp.zeros_like(terms.local))

    def total(self, terms: Terms, streams: tuple[str, ...]) -> jax.Array:
        """Log-probability of some stream sites of each step, `[step]`."""
        return logsumexp(self.joint(terms, streams), axis=0)

    def of_values(self, terms: Terms, earlier: tuple[str, ...], site: str, values: jax.Array) -> jax.Array:
        """Log joint of a step's earlier sites and each of some values of another stream site, `[value, step]`."""
        target, before = self.sites[site], self.joint(terms, earlier)

        def at(value):
            everywhere = from_layout(jnp.broadcast_to(value, target.layout), target)
            own = jax.vmap(lambda law: site_log_prob(law, everywhere, target))(terms.laws[site])
            return logsumexp(jnp.where(jnp.isneginf(before), -jnp.inf, before + own), axis=0)

        return jax.vmap(at)(values)
