"""The closed-form hook: the tunnel supplies the law of a stream site as a function, used at any size.

It is checked, not trusted: `verification.properties` compares it with an engine on the tunnel's `small` configurations.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import NoEngineError, TunnelError
from ppl_tunnels.oracles.enumeration import EnumerationEngine
from ppl_tunnels.oracles.laws import Finite

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


class ClosedFormEngine:
    """See the module; made by `from_tunnel`."""

    name = "closed form"

    def __init__(self, tunnel: "WindTunnel"):
        self.tunnel = tunnel
        given = tunnel.closed_form
        self.forms: Mapping[str, Callable] = given if isinstance(given, Mapping) else {tunnel.predict: given}
        streams = tunnel.reading.named("stream")
        for name in self.forms:
            if name not in streams:
                raise TunnelError(
                    f"closed_form has a function for {name!r}, which is not a stream site ({', '.join(streams)})"
                )
            if tunnel.reading.sites[name].support is None:
                raise TunnelError(
                    f"closed_form gives log-probabilities of {name!r}, which does not have a finite support"
                )

    @classmethod
    def from_tunnel(cls, tunnel: "WindTunnel") -> "ClosedFormEngine | str":
        """The engine, or which condition the tunnel fails."""
        if tunnel.closed_form is None:
            return "the tunnel supplies none (wind_tunnel(closed_form=…))"
        if isinstance(tunnel.closed_form, Mapping) or tunnel.predict in tunnel.reading.named("stream"):
            engine = cls(tunnel)
            if tunnel.predict in engine.forms:
                return engine
            return f"it covers {', '.join(map(repr, engine.forms))}, not the predicted site {tunnel.predict!r}"
        return f"the predicted site {tunnel.predict!r} is latent; a closed form gives the law of a stream site"

    def explain(self) -> str:
        """What the closed form covers."""
        return (
            f"Closed form: the tunnel's own function gives the law of {', '.join(map(repr, self.forms))}; 'check' compares it with "
            f"{'an engine on the configurations given as small=' if self.tunnel.small else 'nothing, since the tunnel names no small= configurations'}."
            " A mask hides steps as the function says; the same comparison covers masks."
        )

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a stream site, batch shape `[episode, step]`."""
        if site not in self.forms:
            raise NoEngineError(
                f"the closed form covers {', '.join(map(repr, self.forms))}, not {site!r}. {self._remedy()}"
            )
        return Finite(self._evaluate(episodes, visible, site=site), self.tunnel.reading.sites[site].support)

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Finite:
        """Law of a latent site, by enumeration where that is possible."""
        if isinstance(self._enumeration, str):
            raise NoEngineError(f"the closed form gives no posterior of {site!r}. {self._remedy()}")
        return self._enumeration.posterior(episodes, site, visible)

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Nats, `[episode]`: the chain rule over all stream sites."""
        streams = self.tunnel.reading.named("stream")
        if all(name in self.forms for name in streams):
            laws = {name: self.predictive(episodes, name, None) for name in streams}
            return sum(
                (jnp.sum(law.log_prob(episodes.stream[name]), axis=1) for name, law in laws.items()),
                start=jnp.zeros(()),
            )
        if isinstance(self._enumeration, str):
            missing = next(name for name in streams if name not in self.forms)
            raise NoEngineError(
                f"the closed form does not cover {missing!r}, so the evidence is unknown. {self._remedy()}"
            )
        return self._enumeration.log_evidence(episodes)

    @functools.cached_property
    def _evaluate(self) -> Callable[..., jax.Array]:
        def log_probs(episodes, visible, *, site):
            out = jnp.asarray(self.forms[site](episodes, visible, **self.tunnel.configuration))
            expected = (len(episodes), self.tunnel.length, self.tunnel.reading.sites[site].support_size)
            if out.shape != expected or out.dtype != jnp.float64:
                raise TunnelError(
                    f"closed_form for {site!r} returned {out.dtype} of shape {out.shape}; expected float64 log-probabilities of "
                    f"shape {expected}, [episode, step, symbol]"
                )
            return out

        return jax.jit(log_probs, static_argnames="site")

    @functools.cached_property
    def _enumeration(self) -> "EnumerationEngine | str":
        return EnumerationEngine.from_tunnel(self.tunnel)

    def _remedy(self) -> str:
        return (
            f"Enumeration does not cover it either: {self._enumeration}"
            if isinstance(self._enumeration, str)
            else ("Ask derive(tunnel, engine='enumeration') for it.")
        )
