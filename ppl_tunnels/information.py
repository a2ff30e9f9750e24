"""How much varies between episodes: the room there is for memorising."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.program import compile_time, log_probs_given

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Draws for the Monte Carlo average; where the log-probability is constant (a uniform hypothesis) it is exact.
_DRAWS = 2_048


@dataclasses.dataclass(frozen=True)
class EpisodeBits:
    """Entropy of what varies between episodes.

    Attributes:
        bits: estimate; infinite where a continuous site varies.
        standard_error: of the estimate; zero where it is exact.
        sites: what was counted.
        at_most: whether `bits` is an upper bound, because some site's probabilities are not known, only its values.
    """

    bits: float
    standard_error: float
    sites: tuple[str, ...]
    at_most: bool = False

    @property
    def meaning(self) -> str:
        """What it says about memorising, in one sentence."""
        if not self.sites:
            return "nothing but the predicted site varies between episodes, so there is no hypothesis to memorise"
        names = ", ".join(self.sites)
        if math.isinf(self.bits):
            return f"{names}: a continuum of hypotheses, so no table of them can be memorised"
        size = f"2^{self.bits:.1f}" if self.bits > 20 else f"about {2**self.bits:,.0f}"
        verdict = (
            "far more than any training run visits"
            if self.bits > 40
            else "few enough that a training run can visit them all: a certificate here speaks of the posterior, not of generalising"
            if self.bits < 20
            else "comparable with a training run"
        )
        return f"{names}: {'at most ' * self.at_most}{self.bits:.1f} bits, {size} equally likely episodes' worth, {verdict}"


def episode_bits(tunnel: "WindTunnel") -> EpisodeBits:
    """Entropy in bits of context, static latents and unpredicted stream, each given what the program drew before it."""
    sites = tunnel.reading.sites
    counted = tuple(
        name for name, site in sites.items() if name != tunnel.predict and not (site.role == "latent" and site.per_step)
    )
    if tunnel.predict in tunnel.reading.named("latent", per_step=False):
        counted = (*counted, tunnel.predict)
    if not counted:
        return EpisodeBits(0.0, 0.0, ())
    listed = {name: getattr(sites[name].constraint, "grid_size", None) for name in counted}
    if any(
        np.issubdtype(sites[name].dtype, np.floating) and sites[name].support is None and listed[name] is None
        for name in counted
    ):
        return EpisodeBits(math.inf, 0.0, counted)
    bound = sum(math.log2(size) * math.prod(sites[name].batch_shape) for name, size in listed.items() if size)
    weighed = [name for name, size in listed.items() if size is None]
    with compile_time():
        episodes = tunnel.sample(stream_key(0, Purpose.SHOW), _DRAWS)
        values = {**episodes.context, **episodes.latent, **episodes.stream}

        @jax.jit
        @jax.vmap
        def surprise(values):
            log_probs = log_probs_given(tunnel.configured_program, sites, values)
            return -sum((jnp.sum(log_probs[name]) for name in weighed), start=jnp.zeros(())) / math.log(2)

        bits = np.asarray(surprise(values))
    mean, error = float(bits.mean()), float(bits.std() / math.sqrt(_DRAWS))
    return EpisodeBits(mean + bound, error, counted, at_most=bound > 0)
