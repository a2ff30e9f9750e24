"""The law over finitely many values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.laws import Finite

PROBS = np.array([[0.25, 0.0, 0.75], [0.5, 0.5, 0.0]])


@pytest.fixture
def law():
    with np.errstate(divide="ignore"):
        return Finite(np.log(PROBS), np.array([[1, 1], [1, 2], [5, 0]]))


def test_entropy_with_a_zero_is_finite():
    """Would catch 0 x -inf = NaN (published case: Categorical(.25, 0, .75) has .811278 bits)."""
    entropy = Finite(jnp.log(jnp.array([0.25, 0.0, 0.75]))).entropy()
    assert float(entropy) / np.log(2) == pytest.approx(0.811278, abs=5e-7)


def test_log_prob_goes_by_value_not_by_index(law):
    """Would catch an index taken for a value, and mass for values outside the support."""
    values = np.array([[5, 0], [1, 1]])
    np.testing.assert_allclose(law.log_prob(values), np.log([0.75, 0.5]))
    outside = np.asarray(law.log_prob(np.array([0, 5])))
    assert outside.shape == (2,) and np.isneginf(outside).all()


def test_log_prob_broadcasts_over_samples(law):
    """Would catch a sample axis mistaken for the batch's."""
    values = np.array([[[5, 0], [1, 1]], [[1, 1], [1, 2]], [[1, 2], [5, 0]]])
    expected = np.array([[0.75, 0.5], [0.25, 0.5], [0.0, 0.0]])
    np.testing.assert_allclose(np.exp(law.log_prob(values)), expected)


def test_batch_and_event_shapes_support_and_values(law):
    """Would catch shapes that NumPyro's own machinery (Predictive, SVI, MCMC) would trip over."""
    assert law.batch_shape == (2,) and law.event_shape == (2,)
    assert law.enumerate_support().shape == (3, 2, 2)
    assert law.enumerate_support(expand=False).shape == (3, 1, 2)
    assert law.support.is_discrete and law.support.event_dim == 1
    assert np.asarray(law.support(np.array([[5, 0], [0, 5], [1, 2]]))).tolist() == [True, False, True]


def test_draws_follow_the_probabilities(law):
    """Would catch draws of indices for values. False alarms: 1e-6, by a chi-square test; zeros must never be drawn."""
    draws = np.asarray(law.sample(jax.random.key(0), (4_000,)))
    assert draws.shape == (4_000, 2, 2)
    first, counts = np.unique(draws[:, 0], axis=0, return_counts=True)
    assert first.tolist() == [[1, 1], [5, 0]]
    assert scipy.stats.chisquare(counts, 4_000 * np.array([0.25, 0.75])).pvalue > 1e-6


def test_rows_of_impossible_evidence_are_marked():
    """Would catch an impossible row passed off as a law, or a law with one zero passed off as impossible."""
    law = Finite(jnp.array([[-jnp.inf, -jnp.inf], [-jnp.inf, 0.0]]))
    assert np.asarray(law.impossible).tolist() == [True, False]
    assert law.to_numpy().tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert np.asarray(law.entropy()).tolist() == [0.0, 0.0]


def test_nothing_is_truncated_for_a_caller_in_single_precision():
    """Would catch float64 laws that silently become float32 where the caller has not switched x64 on."""
    tiny = 1e-12
    law = Finite(np.log(np.array([tiny, 1 - tiny])))
    with jax.enable_x64(False):
        again = Finite(law.log_probs, law.values)
        results = [again.log_probs, again.probs, again.entropy(), again.log_prob(1)]
        assert [str(result.dtype) for result in results] == ["float64"] * 4
        assert float(again.probs[0]) == pytest.approx(tiny, rel=1e-10)
        assert again.to_numpy().dtype == np.float64


def test_laws_pass_through_jit_and_vmap(law):
    """Would catch a field that is not part of the pytree."""
    through = jax.jit(lambda law: law)(law)
    np.testing.assert_array_equal(through.log_probs, law.log_probs)
    entropies = jax.vmap(lambda row: Finite(row, law.values).entropy())(law.log_probs)
    np.testing.assert_array_equal(entropies, law.entropy())


def test_one_log_probability_per_value():
    """Would catch symbols without a meaning."""
    with pytest.raises(TunnelError, match="3 log-probabilities for 2 values"):
        Finite(jnp.zeros(3), np.arange(2))
