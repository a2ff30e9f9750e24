"""The coin on a grid: exchangeable, end points kept, Laplace's rule in the limit."""

import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.oracles.bruteforce import brute_force_predictive


@pytest.fixture(scope="module")
def coin():
    return load_tunnel("coin")


def test_paper_scale(coin):
    """Would catch a default configuration that drifts."""
    assert (coin.length, coin.configuration["points"], coin.primitives) == (20, 101, {"accumulation"})
    assert coin.oracle().engine == "enumeration"


def test_every_grid_point_is_used_end_points_included(coin):
    """Would catch rounding at the end points (1 - 100 x .01 is not 0), where evidence must rule out for good."""
    flips = np.zeros((3, 20), int)
    flips[1] = 1
    flips[2, 10] = 1
    episodes = coin.episodes(stream={"flip": flips})
    posterior = coin.oracle().posterior(episodes, "bias").to_numpy()
    assert (posterior[:, 0] == posterior[0, 0, 0]).all() and posterior.shape == (3, 21, 101)
    assert posterior[0, -1, 0] > 0 and posterior[0, -1, 100] == 0
    assert posterior[1, -1, 100] > 0 and posterior[1, -1, 0] == 0
    assert posterior[2, -1, 0] == posterior[2, -1, 100] == 0
    grid = np.arange(101) / 100
    expected = grid * (1 - grid) ** 19
    np.testing.assert_allclose(posterior[2, -1], expected / expected.sum(), rtol=0, atol=1e-14)


def test_close_to_laplaces_rule(coin):
    """Would catch heads and tails exchanged. The trapezoid sum over 101 points errs by less than .001."""
    heads = np.array([[1] * 15 + [0] * 5, [0] * 20])
    law = coin.oracle().predictive(coin.episodes(stream={"flip": heads})).to_numpy()
    before = np.arange(20)
    so_far = np.minimum(before, 15)
    np.testing.assert_allclose(law[0, :, 1], (so_far + 1) / (before + 2), atol=0.01)
    np.testing.assert_allclose(law[1, :, 1], 1 / (before + 2), atol=0.01)


def test_the_order_of_flips_does_not_matter(coin):
    """Would catch a step whose evidence counts more than another's."""
    flips = np.random.default_rng(0).random((2, 20)) < 0.4
    again = flips.copy()
    again[:, :19] = again[:, 18::-1]
    law, other = (coin.oracle().predictive(coin.episodes(stream={"flip": x})).to_numpy() for x in (flips, again))
    np.testing.assert_allclose(law[:, -1], other[:, -1], rtol=0, atol=1e-13)


def test_small_coin_by_brute_force():
    """Would catch an error that the formulas above share with the engine."""
    small = load_tunnel("coin").configure(length=4, points=3)
    episodes = small.episodes(stream={"flip": np.array(list(np.ndindex(2, 2, 2, 2)))})
    law = small.oracle().predictive(episodes).to_numpy()
    np.testing.assert_allclose(law, brute_force_predictive(small, episodes), rtol=0, atol=1e-14)
