"""Every built-in tunnel's sampler and oracle agree: simulation-based calibration, and log loss against entropy.

False alarm: 1e-6 for each p-value and, by the normal law, 6e-7 for each |z| > 5, with some dozens of each in all.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

from ppl_tunnels import load_tunnel, tunnel_names, wind_tunnel
from ppl_tunnels.errors import NoEngineError
from ppl_tunnels.oracles.parametric import MultivariateNormal
from ppl_tunnels.verification.simulation import simulate, transform

ALARM, Z = 1e-6, 5.0
SEED, EPISODES, MOST_VALUES = 20_261_201, 2_000, 1_000
BUILT_IN = sorted(name for name, source in tunnel_names().items() if source.startswith("ppl_tunnels.tunnels."))


def small(name):
    """The configuration that trains in minutes."""
    tunnel = load_tunnel(name)
    return tunnel.preset("small") if "small" in tunnel.presets else tunnel


@pytest.mark.parametrize("name", ["hmm", "recall", "recurrence", "urn"])
def test_the_predicted_site_of_some_tunnels(name):
    """Would catch an oracle of another process than the sampler's."""
    found = simulate(small(name), jax.random.key(SEED), episodes=EPISODES)
    assert found.uniformity > ALARM and abs(found.excess_z) < Z, (found.uniformity, found.excess_z)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_site_of_every_tunnel(name):
    """Would catch an oracle of another process than the sampler's: an off-by-one, a wrong prior, a noise squared."""
    tunnel = small(name)
    judged = []
    for index, (site, facts) in enumerate(tunnel.reading.sites.items()):
        # Posteriors over thousands of values for thousands of episodes take more memory than they are worth.
        if facts.role == "context" or (facts.support_size or 0) > MOST_VALUES:
            continue
        try:
            found = simulate(tunnel, jax.random.key(SEED + index), site=site, episodes=EPISODES)
        except NoEngineError:
            assert site != tunnel.predict
            continue
        judged.append(site)
        assert found.uniformity > ALARM, (name, site, found.uniformity)
        assert abs(found.excess_z) < Z, (name, site, found.excess_z)
    assert tunnel.predict in judged


class Wrong:
    """A tunnel with another tunnel's oracle."""

    def __init__(self, tunnel, other):
        self.tunnel, self.other = tunnel, other

    def __getattr__(self, name):
        return getattr(self.tunnel, name)

    def oracle(self):
        return self.other.oracle()


@wind_tunnel(stream="x")
def draws(length=8, a=2.0, noise=1.0):
    """A number around an unknown mean, in `length` noisy readings."""
    mean = numpyro.sample("mean", dist.Normal(0.0, a))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Normal(mean, noise))


@wind_tunnel(stream="x")
def flips(length=8, a=2.0, b=1.0):
    """A coin from Beta(a, b)."""
    heads = numpyro.sample("heads", dist.Beta(a, b))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Bernoulli(heads))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (draws, draws.configure(noise=1.2)),
        (draws, draws.configure(a=1.0)),
        (flips, flips.configure(b=2.0)),
        (flips, flips.configure(a=1.0)),
    ],
    ids=["noise", "prior", "tails", "heads"],
)
def test_wrong_oracles_are_found(right, wrong):
    """Would catch a test that nothing fails: four oracles whose constants are off, and the right ones pass."""
    key = jax.random.key(SEED)
    honest, mistaken = (simulate(tunnel, key, episodes=EPISODES) for tunnel in (right, Wrong(right, wrong)))
    assert honest.uniformity > ALARM and abs(honest.excess_z) < Z
    assert mistaken.uniformity < ALARM or abs(mistaken.excess_z) > Z, (mistaken.uniformity, mistaken.excess_z)


def test_ties_are_broken_at_random():
    """A Bernoulli latent's ranks with strict "<" pile up at both ends; here the transforms of two values fill the line."""
    found = simulate(flips.configure(length=1), jax.random.key(SEED), episodes=EPISODES)
    counts = np.histogram(found.transforms, bins=20, range=(0, 1))[0]
    assert counts.min() > EPISODES / 20 / 2
    assert transform(dist.Bernoulli(np.array([0.25, 0.25])), np.array([0, 1]), np.array([0.5, 0.5])).tolist() == [
        0.375,
        0.875,
    ]


def test_several_dimensions():
    """Would catch a covariance transposed or a scale for a variance."""
    law = MultivariateNormal(np.zeros((5_000, 2)), np.broadcast_to(np.array([[2.0, 0.9], [0.9, 1.0]]), (5_000, 2, 2)))
    drawn = np.asarray(law.sample(jax.random.key(SEED)))
    assert scipy.stats.kstest(transform(law, drawn, np.zeros(5_000)), "uniform").pvalue > ALARM
    assert scipy.stats.kstest(transform(law, 1.2 * drawn, np.zeros(5_000)), "uniform").pvalue < ALARM
