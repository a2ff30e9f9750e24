"""Laws of our own: the uniform permutation."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ppl_tunnels.distributions import RandomPermutation


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
