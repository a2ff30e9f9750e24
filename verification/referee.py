"""The definition of conditional probability, evaluated: what an oracle's answers are compared with on small configurations.

Programs of finite latents are refereed by brute force, others by quadrature or, where latents are Gaussian, by one dense
covariance. None of these shares code with the engines.
"""

from typing import Any

import numpy as np
from numpyro.distributions import constraints

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.bruteforce import brute_force_log_evidence, brute_force_predictive
from ppl_tunnels.oracles.gaussian_referee import GaussianReferee
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.oracle import Law, Oracle
from ppl_tunnels.oracles.quadrature import Estimate, Quadrature
from ppl_tunnels.tunnel import WindTunnel

# A referee that is this uncertain itself (in probability, density or nats) settles nothing.
MOST_UNCERTAIN = 1e-6


class Referee:
    """Of one tunnel and some of its episodes.

    Args:
        tunnel: a small configuration.
        episodes: what happened.
    """

    def __init__(self, tunnel: WindTunnel, episodes: Episodes):
        self.tunnel, self.episodes = tunnel, episodes
        self.by_grid = None if _finite(tunnel) else _grid(tunnel, episodes)

    def predictive(self, visible: np.ndarray | None = None) -> Estimate:
        """The law of the predicted site at every step, in numbers as `numbers_of` gives them."""
        site = self.tunnel.predict
        if self.by_grid is None:
            return _exact(brute_force_predictive(self.tunnel, self.episodes, visible=visible))
        target = self.tunnel.reading.sites[site]
        if target.role == "stream":
            return self.by_grid.predictive(site, visible)
        rows = self.by_grid.moments(site, visible) if target.support is None else self.by_grid.posterior(site, visible)
        rows = rows if target.per_step else Estimate(rows.value[:, 1:], rows.error[:, 1:])
        return Estimate(*(part.reshape(*part.shape[:2], -1) for part in rows))

    def log_evidence(self) -> Estimate:
        """Nats, `[episode]`."""
        if self.by_grid is None:
            return _exact(brute_force_log_evidence(self.tunnel, self.episodes))
        return self.by_grid.log_evidence()


def numbers_of(tunnel: WindTunnel, oracle: Oracle, episodes: Episodes, visible: np.ndarray | None = None) -> np.ndarray:
    """An oracle's law of the predicted site in numbers, `[episode, step, number]`.

    Probabilities of a finite site; of another stream site the density at what came; of a continuous latent the mean and the mean
    square of every element.
    """
    law = oracle.predictive(episodes, visible=visible)
    if isinstance(law, Finite):
        return law.to_numpy()
    if tunnel.reading.sites[tunnel.predict].role == "stream":
        return np.exp(np.asarray(law.log_prob(np.asarray(episodes.stream[tunnel.predict]))))[:, :, None]
    mean, square = np.asarray(law.mean), np.asarray(law.variance) + np.asarray(law.mean) ** 2
    return np.stack([mean, square], axis=2).reshape(*mean.shape[:2], -1)


def parameters_of(law: Law) -> np.ndarray:
    """All numbers that a law is made of, `[episode, step, number]`: probabilities, or the parameters."""
    if isinstance(law, Finite):
        return law.to_numpy()

    def flat(value):
        if isinstance(value, dict):
            return [part for inner in value.values() for part in flat(inner)]
        return [np.asarray(value, float).reshape(*law.batch_shape, -1)]

    return np.concatenate(flat(law.to_numpy()), axis=-1)


def can_referee(tunnel: WindTunnel) -> bool:
    """Whether a configuration with continuous latents is within the grid's reach, and the grid fine enough to settle anything."""
    try:
        evidence = _grid(tunnel, tunnel.probe[:1]).log_evidence()
    except TunnelError:
        return False
    return bool(np.all(evidence.error <= MOST_UNCERTAIN * (1 + np.abs(evidence.value))))


def _finite(tunnel: WindTunnel) -> bool:
    sites = tunnel.reading.sites
    asked = (*tunnel.reading.named("latent"), tunnel.predict)
    return all(sites[name].support is not None for name in asked)


def _grid(tunnel: WindTunnel, episodes: Episodes) -> Quadrature:
    sites = tunnel.reading.sites
    real = tuple(name for name in tunnel.reading.named("latent") if _is_real(sites[name].constraint))
    if real:
        try:
            return GaussianReferee(tunnel, episodes.to_numpy(), gaussian=real)
        except TunnelError:
            pass  # not Gaussian, so on the grid with everything else
    return Quadrature(tunnel, episodes.to_numpy())


def _is_real(constraint: Any) -> bool:
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return isinstance(constraint, type(constraints.real) | type(constraints.real_vector))


def _exact(value: np.ndarray) -> Estimate:
    return Estimate(value, np.zeros_like(value))
