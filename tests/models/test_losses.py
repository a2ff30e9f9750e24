"""Losses: right on ordinary rows, and finite, gradient included, on the rows that break other people's losses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ppl_tunnels.models.losses import cross_entropy, kl_divergence, one_hot_targets

INF = float("inf")


def test_cross_entropy_is_the_mean_over_predictions():
    targets = jnp.array([[0.25, 0.75], [1.0, 0.0]])
    log_q = jnp.log(jnp.array([[0.5, 0.5], [0.125, 0.875]]))
    assert float(cross_entropy(targets, log_q)) == pytest.approx((np.log(2) + np.log(8)) / 2)


def test_impossible_symbols_cost_nothing_where_the_target_is_zero():
    logits = jnp.array([[-INF, 0.0]])
    targets = jnp.array([[0.0, 1.0]])
    value, gradient = jax.value_and_grad(lambda x: cross_entropy(targets, jax.nn.log_softmax(x)))(logits)
    assert float(value) == 0
    assert np.isfinite(gradient).all()
    # The ordinary formula, for contrast: 0 * inf.
    assert np.isnan(optax.softmax_cross_entropy(logits, targets)).all()


def test_labels_of_minus_one_do_not_count():
    log_q = jax.nn.log_softmax(jnp.array([[2.0, 1.0, 0.0], [0.0, 5.0, 1.0], [0.0, 0.0, 9.0]]))
    some = cross_entropy(one_hot_targets(jnp.array([0, -1, 3]), 3), log_q)
    assert float(some) == pytest.approx(-float(log_q[0, 0]))
    # Indexing, for contrast, silently scores the last class.
    assert float(optax.softmax_cross_entropy_with_integer_labels(log_q[1], jnp.array(-1))) == pytest.approx(
        -float(log_q[1, 2])
    )
    assert float(cross_entropy(one_hot_targets(jnp.array([-1, -1, -1]), 3), log_q)) == 0


def test_a_target_the_law_rules_out_costs_infinitely_much():
    assert float(cross_entropy(jnp.array([[1.0, 0.0]]), jnp.array([[-INF, 0.0]]))) == INF


def test_kl_divergence_of_known_laws():
    p, q = np.array([[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]]), np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    with np.errstate(divide="ignore"):
        found = kl_divergence(jnp.log(p), jnp.log(q))
    expected = (0.25 * np.log(0.5) + 0.75 * np.log(3) + np.log(4)) / 2
    assert float(found) == pytest.approx(expected, rel=1e-14)


def test_kl_divergence_is_zero_for_equal_laws_and_infinite_for_a_missing_symbol():
    log_p = jnp.array([[-INF, 0.0]])
    assert float(kl_divergence(log_p, log_p)) == 0
    assert float(kl_divergence(jnp.log(jnp.array([[0.5, 0.5]])), log_p)) == INF


def test_loss_is_irreducible_plus_kl(seed):
    logits_p, logits_q = jax.random.normal(jax.random.key(seed), (2, 7, 5))
    log_p, log_q = jax.nn.log_softmax(logits_p), jax.nn.log_softmax(logits_q)
    p = jnp.exp(log_p)
    assert float(cross_entropy(p, log_q)) == pytest.approx(float(cross_entropy(p, log_p) + kl_divergence(log_p, log_q)))
