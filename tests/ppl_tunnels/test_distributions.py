"""Laws of our own: the uniform permutation, and the uniform law over a mask."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.distributions import RandomPermutation, UniformOver


def test_the_support_is_every_permutation_once():
    """Would catch a missing or repeated order, after which the prior is not uniform."""
    listed = np.asarray(RandomPermutation(4).enumerate_support())
    assert listed.tolist() == [list(order) for order in itertools.permutations(range(4))]
    assert RandomPermutation(4).support_size == len(listed) == math.factorial(4)


def test_probabilities_sum_to_one_and_nothing_else_has_any():
    """Would catch a wrong normaliser, and mass on vectors that repeat an item."""
    law = RandomPermutation(3)
    every = jnp.array(list(itertools.product(range(3), repeat=3)))
    log_probs = np.asarray(law.log_prob(every))
    assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-15)
    assert np.isneginf(log_probs).sum() == 27 - 6
    assert np.isneginf(float(law.log_prob(jnp.array([0, 1, 3]))))


def test_draws_are_uniform_over_the_orders(seed):
    """Would catch a biased shuffle. False alarms: 1e-6 per run, by the chi-square test of 24 cells."""
    n = 24_000
    draws = np.asarray(RandomPermutation(4).sample(jax.random.key(seed), (n,)))
    _, counts = np.unique(draws, axis=0, return_counts=True)
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-6


def test_batches_of_draws_have_the_shape_asked_for():
    """Would catch one permutation repeated along the sample axes."""
    draws = np.asarray(RandomPermutation(20).sample(jax.random.key(0), (3, 2)))
    assert draws.shape == (3, 2, 20)
    assert len(np.unique(draws.reshape(6, 20), axis=0)) == 6


def test_the_size_must_be_positive():
    """Would catch an empty permutation, whose episodes have no steps to predict."""
    with pytest.raises(ValueError, match="size 0; expected at least 1"):
        RandomPermutation(0)


def test_uniform_over_what_is_allowed():
    """Would catch an index off by one at either end, and a probability for what is not allowed."""
    allowed = jnp.array([[False, True, False, True, True], [False, False, True, False, False], [False] * 5])
    law = UniformOver(allowed)
    drawn = np.asarray(law.sample(jax.random.key(0), (9_000,)))
    counts = np.stack([np.bincount(column, minlength=5) for column in drawn.T])
    # Counts of each of three: five standard deviations of a binomial (6e-7).
    assert (np.abs(counts[0][[1, 3, 4]] - 3_000) < 5 * np.sqrt(9_000 * 2 / 9)).all() and counts[0][[0, 2]].sum() == 0
    assert counts[1].tolist() == [0, 0, 9_000, 0, 0]
    inside = np.asarray(law.log_prob(jnp.arange(5)[:, None])).T
    np.testing.assert_allclose(np.exp(inside), [[0, 1 / 3, 0, 1 / 3, 1 / 3], [0, 0, 1, 0, 0], [0] * 5], rtol=1e-12)
    np.testing.assert_allclose(law.probs, np.exp(inside), rtol=1e-12)
    assert np.isneginf(law.log_prob(jnp.array([-1, 5, 0]))).all() and not np.isnan(inside).any()
    np.testing.assert_allclose(law.entropy(), [np.log(3), 0, 0], rtol=1e-12)
    assert law.enumerate_support().shape == (5, 3) and law.enumerate_support(expand=False).shape == (5, 1)


def test_uniform_over_in_a_scan_with_an_observed_memory():
    """Would catch engines that list a support once for all: draws without replacement, the law of what is left."""

    @wind_tunnel(stream="card")
    def deck(cards=4, length=3):
        def draw(left, _):
            card = numpyro.sample("card", UniformOver(left))
            return left.at[card].set(False), None

        scan(draw, jnp.ones(cards, bool), None, length=length)

    episodes = deck.episodes(stream={"card": [[2, 0, 3]]})
    law = deck.oracle().predictive(episodes).to_numpy()[0]
    np.testing.assert_allclose(law, [[1 / 4] * 4, [1 / 3, 1 / 3, 0, 1 / 3], [0, 1 / 2, 0, 1 / 2]], rtol=1e-12)
    assert (
        np.sort(np.asarray(deck.probe.stream["card"]), axis=1)[:, 1:]
        > np.sort(deck.probe.stream["card"], axis=1)[:, :-1]
    ).all()


@pytest.mark.parametrize("given", [[1.0, 0.0], True, [[]]])
def test_uniform_over_refuses_what_is_no_mask(given):
    """Would catch probabilities taken for a mask."""
    with pytest.raises(ValueError, match="expected booleans"):
        UniformOver(jnp.array(given))
