"""The referee on a grid: textbook posteriors, errors that are what they are stated to be, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.gaussian_referee import GaussianReferee
from ppl_tunnels.oracles.quadrature import Quadrature


@wind_tunnel(stream="flip", predict="flip")
def coin(length=4):
    bias = numpyro.sample("bias", dist.Beta(2.0, 3.0))
    with numpyro.plate("flips", length):
        numpyro.sample("flip", dist.Bernoulli(bias))


@wind_tunnel(stream="y", predict="y")
def scattered(length=2, concentration=3.0):
    variance = numpyro.sample("variance", dist.InverseGamma(concentration, 1.0))
    with numpyro.plate("readings", length):
        numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(variance)))


@wind_tunnel(stream="y", predict="y")
def line(length=3):
    slope = numpyro.sample("slope", dist.Normal(0.5, 2.0))
    level = numpyro.sample("level", dist.Normal(-1.0, 0.5))
    with numpyro.plate("points", length):
        numpyro.sample("y", dist.Normal(level + slope * jnp.arange(length), 0.7))


def test_the_rule_of_succession_and_the_evidence() -> None:
    """Beta(2, 3): after heads, heads, tails the next is heads with probability 4/8."""
    referee = Quadrature(coin, coin.episodes(stream={"flip": np.array([[1, 1, 0, 1]])}))
    law, evidence, moments = referee.predictive("flip"), referee.log_evidence(), referee.moments("bias")
    np.testing.assert_allclose(law.value[0, :, 1], [2 / 5, 3 / 6, 4 / 7, 4 / 8], rtol=1e-12)
    assert (abs(law.value[0, :, 1] - [2 / 5, 3 / 6, 4 / 7, 4 / 8]) <= law.error[0, :, 1]).all()
    assert evidence.value[0] == pytest.approx(np.log(2 / 5 * 3 / 6 * 3 / 7 * 4 / 8), rel=1e-12)
    np.testing.assert_allclose(moments.value[0, :, 0, 0], [2 / 5, 3 / 6, 4 / 7, 4 / 8, 5 / 9], rtol=1e-12)
    assert law.error.max() < 1e-11


def test_a_mask_hides_evidence() -> None:
    """Only the step before is remembered."""
    referee = Quadrature(coin, coin.episodes(stream={"flip": np.array([[1, 1, 0, 1]])}))
    last = np.eye(4, k=-1, dtype=bool)
    np.testing.assert_allclose(
        referee.predictive("flip", last).value[0, :, 1], [2 / 5, 3 / 6, 3 / 6, 2 / 6], rtol=1e-12
    )


@pytest.mark.parametrize("concentration", [1.13, 1.3, 2.0, 5.0])
def test_what_decays_slowly_beyond_the_grid_is_counted(concentration) -> None:
    """Means that barely exist: off by no more than is stated, where the last points of the grid are not all that is missing."""
    tunnel = scattered.configure(length=1, concentration=concentration)
    referee = Quadrature(tunnel, tunnel.episodes(stream={"y": np.array([[0.3]])}), points=6_000)
    mean = referee.moments("variance")
    prior, after = 1 / (concentration - 1), (1 + 0.3**2 / 2) / (concentration - 0.5)
    assert abs(mean.value[0, 0, 0, 0] - prior) <= mean.error[0, 0, 0, 0]
    assert abs(mean.value[0, 1, 0, 0] - after) <= mean.error[0, 1, 0, 0]


def test_too_coarse_a_grid_says_so() -> None:
    """With a handful of points the stated error grows with the true one."""
    seen = scattered.episodes(stream={"y": np.array([[0.3, -1.0]])})
    right = [
        scipy.stats.t.pdf(0.3, 6, scale=np.sqrt(1 / 3)),
        scipy.stats.t.pdf(-1.0, 7, scale=np.sqrt((1 + 0.045) / 3.5)),
    ]
    for points in (9, 33, 129, 1025):
        law = Quadrature(scattered, seen, points=points).predictive("y")
        assert (abs(law.value[0, :, 0] - right) <= law.error[0, :, 0]).all(), points
    np.testing.assert_allclose(law.value[0, :, 0], right, rtol=1e-11)


def test_linear_algebra_and_the_grid_agree() -> None:
    """Two referees that share the program's runs and nothing of the integration."""
    seen = line.episodes(stream={"y": np.array([[0.2, 1.0, 0.4], [-3.0, 0.0, 2.0]])})
    dense, grid = GaussianReferee(line, seen, gaussian=("slope", "level")), Quadrature(line, seen, points=40_000)
    for ask in (lambda r: r.predictive("y"), lambda r: r.moments("slope"), lambda r: r.log_evidence()):
        said, right = ask(dense), ask(grid)
        assert (np.abs(said.value - right.value) <= said.error + right.error).all()
        np.testing.assert_allclose(said.value, right.value, rtol=1e-8)


def test_what_is_not_gaussian_is_refused() -> None:
    @wind_tunnel(stream="y", predict="y")
    def heavy(length=2):
        centre = numpyro.sample("centre", dist.Cauchy(0.0, 1.0))
        with numpyro.plate("points", length):
            numpyro.sample("y", dist.Normal(centre, 1.0))

    with pytest.raises(TunnelError, match="'centre'"):
        GaussianReferee(heavy, heavy.episodes(stream={"y": np.zeros((1, 2))}), gaussian=("centre",))
