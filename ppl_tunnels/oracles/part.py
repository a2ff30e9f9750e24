"""A part of a program: some continuous latents and the stream sites that they explain, finite latents given.

Given the context and every static finite latent, the continuous latents of a program fall into parts whose likelihoods do not
meet, and each has exact inference of its own. `mixture` puts the parts, and the finite latents, together.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.local import continuous_latents
from ppl_tunnels.oracles.perturbing import any_values
from ppl_tunnels.program import compile_time, evaluated, from_layout, trace_program

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# One episode: site name to value, step axis first; context, stream and finite static latents.
Values = dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Run:
    """What a part says of one site in one episode under one hypothesis.

    Attributes:
        log_before: log evidence of this part's sites before each row, nats, `[row]`.
        parameters: of the law at each row, a pytree of `[row, ...]`; of a finite site, log joint with its value, `[row, value]`.
    """

    log_before: jax.Array
    parameters: Any


class Part:
    """See the module. Every method but `law` is of one episode under one hypothesis, pure and traceable.

    Args:
        tunnel: whose program.
        latents: continuous latent sites.
        streams: stream sites whose laws they may enter, in program order.
        others: values of the continuous latents of other parts, `[3, ...]` a site: this part must not care which it is.
        fixed: whether this part counts the factors of context and static finite latents.
    """

    name: str

    def __init__(
        self,
        tunnel: "WindTunnel",
        latents: tuple[str, ...],
        streams: tuple[str, ...],
        others: dict[str, np.ndarray],
        *,
        fixed: bool,
    ):
        self.tunnel, self.latents, self.streams, self.others, self.fixed = tunnel, latents, streams, others, fixed
        self.sites = tunnel.reading.sites

    def explain(self) -> str:
        """What is done, in a clause."""
        raise NotImplementedError

    def prior_evidence(self, values: Values) -> jax.Array:
        """Log evidence before any step, a scalar: of the fixed factors, where this part counts them."""
        raise NotImplementedError

    def evidence(self, values: Values, visible: jax.Array | None, until: str | None) -> jax.Array:
        """Log evidence at each step, `[step]`: of its visible earlier steps, and of its own sites before a site (or all)."""
        raise NotImplementedError

    def predictive(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Of a stream site of this part at every step, or of a finite latent summed within its steps."""
        raise NotImplementedError

    def posterior(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Of a latent of this part: after each prefix where it is static, else at each step."""
        raise NotImplementedError

    def law(self, site: str, parameters: Any, impossible: jax.Array) -> dist.Distribution:
        """The law with these parameters, `[*batch, ...]`, of a site that is not finite."""
        raise NotImplementedError

    def why_no_predictive(self, site: str) -> str | None:
        """Why a stream site has a likelihood but no law here, or None where it has one."""
        return None

    def own_streams(self, until: str | None) -> tuple[str, ...]:
        """This part's stream sites that come before a site in program order; all of them by default."""
        order = list(self.sites)
        return tuple(name for name in self.streams if until is None or order.index(name) < order.index(until))


class Given:
    """The episodes at which conditions are checked once, when an oracle is derived.

    Some are drawn from the program; in others every finite site has any value of its support, likely or not, so that what
    happens rarely is seen as well.
    """

    def __init__(self, tunnel: "WindTunnel", episodes: int = 8):
        self.tunnel = tunnel
        with compile_time():
            few = tunnel.probe[:episodes]
            self.values = {
                name: np.asarray(value) for name, value in {**few.context, **few.latent, **few.stream}.items()
            }
            first = {
                name: from_layout(jax.numpy.asarray(value[0]), tunnel.reading.sites[name])
                for name, value in self.values.items()
            }
            self.trace = trace_program(tunnel.configured_program, first)
        self.anywhere = any_values(tunnel.reading.sites, self.values)

    def law(self, site: str) -> dist.Distribution:
        """The law of a site in the first of them."""
        return self.trace[site]["fn"]

    def others(self, latents: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Three draws of every continuous latent but these."""
        return {name: self.values[name][:3] for name in continuous_latents(self.tunnel) if name not in latents}

    def worst(self, function: Callable[[Values], Any]) -> Any:
        """The largest of a function's results over them, leaf by leaf.

        NaN counts as infinity in episodes of the program's own; in others a law need not be stated, and it counts for nothing.
        """

        def largest(drawn, anywhere):
            drawn = np.where(np.isnan(drawn), np.inf, drawn)
            return float(
                max(np.max(drawn, initial=0.0), np.max(np.nan_to_num(anywhere, nan=0.0, posinf=np.inf), initial=0.0))
            )

        over = jax.vmap(function)
        results = evaluated(lambda *both: tuple(map(over, both)), self.values, self.anywhere)
        return jax.tree.map(largest, *results)
