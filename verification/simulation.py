"""Sampler and oracle against each other: what must hold of episodes drawn from the program if the oracle is exact.

    Transform: u = F(x-) + U (F(x) - F(x-)), with U uniform, is uniform when x is drawn from the law with distribution function
    F: simulation-based calibration (Talts et al. 2018), with ties broken at random. The law's own F is exact, so no posterior
    draws are ranked and no bin is ever empty by rounding.
    Log loss: E[-log2 p(x)] = E[H(p)], episode by episode.

Both are necessary and never sufficient: a law that ignores evidence can pass both.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import scipy.stats

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.laws import Finite, rows_of
from ppl_tunnels.program import double_precision
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification import law_divergences
from ppl_tunnels.verification.law_forms import exact_form


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Episodes held against the oracle, one prediction an episode, so that everything is independent.

    Attributes:
        site: whose law.
        transforms: u of each episode, `[episode]`, uniform on (0, 1) under an exact oracle.
        excess_bits: -log2 p(x) - H(p) of each episode, `[episode]`, of mean zero; None where the entropy has no known form.
    """

    site: str
    transforms: np.ndarray
    excess_bits: np.ndarray | None

    @property
    def uniformity(self) -> float:
        """The p-value of the transforms' Kolmogorov-Smirnov distance from uniform."""
        return float(scipy.stats.kstest(self.transforms, "uniform").pvalue)

    @property
    def excess_z(self) -> float:
        """Mean excess in units of its own standard error; 0 where every prediction is certain."""
        if self.excess_bits is None or not np.ptp(self.excess_bits) > 1e-9:
            return 0.0
        return float(self.excess_bits.mean() / self.excess_bits.std(ddof=1) * math.sqrt(len(self.excess_bits)))


def simulate(tunnel: WindTunnel, key: jax.Array, *, site: str | None = None, episodes: int = 1_000) -> Simulation:
    """Draw episodes and hold each, at one scored step drawn at random, against the oracle.

    Args:
        tunnel: whose sampler and oracle.
        key: for the episodes, the steps and the ties.
        site: a stream or latent site; the predicted one by default.
        episodes: how many.

    Example:
        >>> import jax, ppl_tunnels
        >>> found = simulate(ppl_tunnels.load_tunnel("coin"), jax.random.key(0))
        >>> found.uniformity > 1e-6, abs(found.excess_z) < 5
        (True, True)

    Raises:
        TunnelError: the site's law has no distribution function.
    """
    site = tunnel.predict if site is None else site
    with double_precision():
        of_episodes, of_steps, of_ties = jax.random.split(key, 3)
        drawn = tunnel.sample(of_episodes, episodes)
        law = tunnel.oracle().predictive(drawn.without_latents(), site)
        realised = np.asarray({**drawn.stream, **drawn.latent}[site])
        per_step = tunnel.reading.sites[site].per_step
        steps = np.flatnonzero(tunnel.scored)
        at = steps[np.asarray(jax.random.randint(of_steps, (episodes,), 0, len(steps)))]
        uniforms = np.asarray(jax.random.uniform(of_ties, (episodes,)))
    own = rows_of(law, (np.arange(episodes), at))
    value = realised[np.arange(episodes), at] if per_step else realised
    extra = len(own.batch_shape) - 1  # several draws of a site: the first one is looked at
    for _ in range(extra):
        own, value = rows_of(own, (slice(None), 0)), value[:, 0]
    return Simulation(site, transform(own, value, uniforms), _excess(own, value))


def transform(law: dist.Distribution, value: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Values through their laws' distribution functions, ties broken by `uniforms`, `[row]`.

    In several dimensions it is the squared Mahalanobis distance that goes through its distribution function.

    Args:
        law: `[row]`.
        value: `[row, *event]`.
        uniforms: from (0, 1), `[row]`.

    Example:
        >>> import numpy as np
        >>> transform(dist.Normal(0.0, 1.0), np.zeros(1), np.zeros(1)).tolist()
        [0.5]
    """
    with double_precision():
        law = exact_form(law)
        if isinstance(law, Finite):
            probs = law.to_numpy()
            index = _index(np.asarray(law.values), value)
            own = np.take_along_axis(probs, index[:, None], axis=1)[:, 0]
            return np.cumsum(probs, axis=1)[np.arange(len(index)), index] - own * (1 - uniforms)
        if law.event_shape:
            return _distance(law, value)
        upto = np.asarray(law.cdf(value))
        if not law.support.is_discrete:  # type: ignore[union-attr]
            return upto
        return upto - np.exp(np.asarray(law.log_prob(value))) * (1 - uniforms)


def _distance(law: Any, value: np.ndarray) -> np.ndarray:
    if not hasattr(law, "scale_tril"):
        raise TunnelError(f"{type(law).__name__} has no distribution function in {law.event_shape} dimensions")
    whitened = np.linalg.solve(np.asarray(law.scale_tril), (value - np.asarray(law.loc))[..., None])[..., 0]
    squared, dimensions = (whitened**2).sum(axis=-1), whitened.shape[-1]
    if hasattr(law, "df"):
        return scipy.stats.f.cdf(squared / dimensions, dimensions, np.asarray(law.df))
    return scipy.stats.chi2.cdf(squared, dimensions)


def _index(values: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Where each given value stands in the support."""
    flat, given = values.reshape(len(values), -1), given.reshape(len(given), 1, -1)
    return np.argmax((flat[None] == given).all(axis=-1), axis=1)


def _excess(law: dist.Distribution, value: np.ndarray) -> np.ndarray | None:
    try:
        entropy = np.asarray(law_divergences.entropy_bits(law).value)
    except TunnelError:
        return None
    with double_precision():
        return -np.asarray(law.log_prob(value)) / math.log(2) - entropy
