"""Priors put on a grid: what the grid is, and that a program which uses one is derived."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

from ppl_tunnels import discretise, wind_tunnel
from ppl_tunnels.errors import NoEngineError, TunnelError
from ppl_tunnels.oracles.derive import derive


@pytest.mark.parametrize(
    ("law", "right"),
    [
        (dist.Beta(2.0, 3.0), scipy.stats.beta(2, 3)),
        (dist.Gamma(2.0, 4.0), scipy.stats.gamma(2, scale=1 / 4)),
        (dist.Normal(1.0, 2.0), scipy.stats.norm(1, 2)),
        (dist.StudentT(3.0, 1.0, 2.0), scipy.stats.t(3, 1, 2)),
    ],
)
def test_points_are_the_middles_of_slices_of_equal_probability(law, right) -> None:
    """Would catch an even grid with even probabilities, which is another prior."""
    grid = discretise(law, 9)
    np.testing.assert_allclose(grid.values, right.ppf((np.arange(9) + 0.5) / 9), rtol=1e-6)
    np.testing.assert_allclose(grid.to_numpy(), np.full(9, 1 / 9), rtol=1e-14)


def test_values_given_weigh_as_their_densities() -> None:
    """Would catch weights that are not normalised, and values outside the support given weight."""
    grid = discretise(dist.Gamma(2.0, 1.0), np.array([-1.0, 1.0, 2.0]))
    weights = np.array([0.0, 1.0 * np.exp(-1), 2.0 * np.exp(-2)])
    np.testing.assert_allclose(grid.to_numpy(), weights / weights.sum(), rtol=1e-14)


def test_a_grid_makes_any_likelihood_tractable() -> None:
    """Would catch values that a compiled program does not recognise as those of the support."""

    @wind_tunnel(stream="heads")
    def squared(points=201, length=3, grid=True):
        prior = dist.Beta(1.0, 1.0)
        bias = numpyro.sample("bias", discretise(prior, points) if grid else prior)
        with numpyro.plate("flips", length):
            numpyro.sample("heads", dist.Bernoulli(bias**2))

    with pytest.raises(NoEngineError, match="discretise"):
        derive(squared.configure(grid=False))
    law = derive(squared).predictive(squared.episodes(stream={"heads": [[1, 1, 1]]})).to_numpy()[0, :, 1]
    # Ratios of the moments 1/3, 1/5, 1/7 of the uniform law; midpoints are within the square of the spacing of them.
    np.testing.assert_allclose(law, [1 / 3, 3 / 5, 5 / 7], rtol=1e-4)
    assert np.isfinite(jax.jit(lambda key: squared.sample(key, 3).latent["bias"])(jax.random.key(0))).all()


def test_what_cannot_be_discretised_says_so() -> None:
    """Would catch several numbers put on one grid, and a grid at values that nobody chose."""
    with pytest.raises(TunnelError, match=r"batch shape \(2,\)"):
        discretise(dist.Normal(np.zeros(2), 1.0), 5)
    with pytest.raises(TunnelError, match="give the values themselves"):
        discretise(dist.Poisson(1.0), 5)
    with pytest.raises(TunnelError, match="points=0"):
        discretise(dist.Normal(0.0, 1.0), 0)
