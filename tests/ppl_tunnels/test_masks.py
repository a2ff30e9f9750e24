"""Adding up evidence over visible steps."""

import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.masks import evidence_before

INF = float("inf")
TERMS = jnp.array([[-1.0, -INF, -0.25, -4.0], [-1.0, -2.0, -0.25, -4.0]])


def by_loop(visible):
    terms = np.asarray(TERMS)
    return [[sum(row[s] for s in range(4) if visible[t, s]) for t in range(4)] for row in terms]


def test_without_a_mask_it_is_everything_earlier():
    """Would catch the step's own term in its evidence, and 0 x -inf = NaN."""
    before = np.tril(np.ones((4, 4), bool), -1)
    np.testing.assert_array_equal(evidence_before(TERMS, None), by_loop(before))


def test_a_mask_drops_terms_impossible_ones_too():
    """Would catch a transposed mask, and an impossible step that still rules out after it was hidden."""
    visible = np.tril(np.random.default_rng(0).random((4, 4)) < 0.5, -1)
    visible[3] = [True, False, True, False]
    found = np.asarray(evidence_before(TERMS, jnp.asarray(visible)))
    np.testing.assert_array_equal(found, by_loop(visible))
    assert np.isfinite(found[0, 3]) and not np.isnan(found).any()
