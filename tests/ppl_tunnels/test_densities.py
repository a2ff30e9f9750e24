"""Log-probabilities where NumPyro's own are clamped, NaN, inaccurate or silent about the support."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from ppl_tunnels.oracles.densities import exact_log_prob

INF = float("inf")


def log_prob(law, value):
    """As the engines call it: NumPyro's validation is off, since traced values have none."""
    with dist.distribution.validation_enabled(False):
        return np.asarray(exact_log_prob(law(), jnp.asarray(value)))


@pytest.mark.parametrize(
    ("law", "value", "expected"),
    [
        (lambda: dist.Bernoulli(0.0), 1, -INF),
        (lambda: dist.Bernoulli(1.0), 1, 0.0),
        (lambda: dist.Bernoulli(1.0), 0, -INF),
        (lambda: dist.Bernoulli(logits=jnp.inf), 0, -INF),
        (lambda: dist.Bernoulli(logits=-jnp.inf), 0, 0.0),
        (lambda: dist.Bernoulli(0.3), 2, -INF),
        (lambda: dist.Categorical(jnp.array([0.25, 0.0, 0.75])), 1, -INF),
        (lambda: dist.Categorical(jnp.array([0.25, 0.0, 0.75])), 3, -INF),
        (lambda: dist.Categorical(jnp.array([0.25, 0.0, 0.75])), -1, -INF),
        (lambda: dist.Categorical(jnp.array([2.0, 6.0])), 1, np.log(0.75)),
        (lambda: dist.Categorical(logits=jnp.array([-jnp.inf, 0.0])), 1, 0.0),
        (lambda: dist.Categorical(logits=jnp.array([-jnp.inf, 0.0])), 0, -INF),
        (lambda: dist.Binomial(5, 1.0), 4, -INF),
        (lambda: dist.Binomial(5, 1.0), 5, 0.0),
        (lambda: dist.Binomial(5, 0.0), 0, 0.0),
        (lambda: dist.Binomial(5, 0.5), 6, -INF),
        (lambda: dist.Binomial(3, logits=jnp.inf), 3, 0.0),
        (lambda: dist.Binomial(3, logits=jnp.inf), 2, -INF),
        (lambda: dist.Geometric(1.0), 0, 0.0),
        (lambda: dist.Geometric(0.0), 3, -INF),
        (lambda: dist.Poisson(0.0), 0, 0.0),
        (lambda: dist.DiscreteUniform(1, 6), 7, -INF),
        (lambda: dist.Uniform(0.0, 2.0), 1.0, -np.log(2)),
        (lambda: dist.Uniform(0.0, 2.0), 2.5, -INF),
        (lambda: dist.TruncatedNormal(0.0, 1.0, low=0.0, high=1.0), 2.0, -INF),
        (lambda: dist.HalfNormal(1.0), -0.5, -INF),
        (lambda: dist.Exponential(3.0), 0.0, np.log(3)),
        (lambda: dist.Dirichlet(jnp.ones(2)), [1.0, 0.0], 0.0),
        (lambda: dist.Dirichlet(jnp.array([1.0, 2.0])), [1.0, 0.0], -INF),
        (lambda: dist.Beta(1.0, 1.0), 0.0, 0.0),
        (lambda: dist.Gamma(1.0, 2.0), 0.0, np.log(2)),
        (lambda: dist.Gamma(1.0, 2.0), -1.0, -INF),
    ],
)
def test_edges_and_outside_of_the_support(law, value, expected):
    """Would catch clamped zeros (-87 for -inf), NaN at an edge, and gathers or densities that ignore the support."""
    assert log_prob(law, value) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (lambda: dist.Bernoulli(0.3), scipy.stats.bernoulli(0.3)),
        (lambda: dist.Bernoulli(logits=jnp.log(0.3 / 0.7)), scipy.stats.bernoulli(0.3)),
        (lambda: dist.Binomial(12, 0.3), scipy.stats.binom(12, 0.3)),
        (lambda: dist.Binomial(12, logits=jnp.log(0.3 / 0.7)), scipy.stats.binom(12, 0.3)),
        (lambda: dist.Geometric(0.3), scipy.stats.geom(0.3, loc=-1)),
        (lambda: dist.BetaBinomial(9.0, 8.0, 12), scipy.stats.betabinom(12, 9, 8)),
        (lambda: dist.NegativeBinomialProbs(9.0, 0.3), scipy.stats.nbinom(9, 0.7)),
        (lambda: dist.Poisson(4.0), scipy.stats.poisson(4)),
    ],
)
def test_counts_agree_with_scipy(law, reference):
    """Would catch a swapped success and failure, a missing binomial coefficient, and `betaln`'s error of 3e-7."""
    counts = np.arange(12)
    np.testing.assert_allclose(log_prob(law, counts), reference.logpmf(counts), rtol=0, atol=2e-13)


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (lambda: dist.Beta(9.0, 2.0), scipy.stats.beta(9, 2)),
        (lambda: dist.Gamma(9.0, 2.0), scipy.stats.gamma(9, scale=0.5)),
        (lambda: dist.Uniform(0.0, 2.0), scipy.stats.uniform(0, 2)),
        (lambda: dist.Normal(0.5, 2.0), scipy.stats.norm(0.5, 2)),
    ],
)
def test_densities_agree_with_scipy(law, reference):
    """Would catch rate and scale, or shape parameters, exchanged."""
    values = np.array([0.1, 0.35, 0.8])
    np.testing.assert_allclose(log_prob(law, values), reference.logpdf(values), rtol=0, atol=1e-13)
    weights = np.array([2.0, 3.0, 9.0])
    point = np.array([0.2, 0.3, 0.5])
    expected = scipy.stats.dirichlet(weights).logpdf(point)
    assert log_prob(lambda: dist.Dirichlet(jnp.asarray(weights)), point) == pytest.approx(expected, abs=1e-13)


def test_wrappers_are_looked_through():
    """Would catch an `Independent` or expanded law that falls back on NumPyro's clamped density."""
    vector = log_prob(lambda: dist.Bernoulli(jnp.array([0.0, 0.5])).to_event(1), [[1, 0], [0, 0]])
    assert vector.tolist() == [-INF, np.log(0.5)]
    expanded = log_prob(lambda: dist.Bernoulli(0.0).expand([2]), [1, 0])
    assert expanded.tolist() == [-INF, 0.0]
    broadcast = log_prob(lambda: dist.Bernoulli(0.0).expand([2]), 0)
    assert broadcast.shape == (2,)


def test_rounding_beyond_the_unit_interval_is_forgiven_and_nothing_more():
    """Would catch `1 - 100 * 0.01` turning into NaN, and a probability of 1.5 passed off as 1."""
    assert log_prob(lambda: dist.Bernoulli(1 + 2e-16), 0) == -INF
    assert log_prob(lambda: dist.Categorical(jnp.array([-2e-16, 1.0])), 0) == -INF
    assert np.isnan(log_prob(lambda: dist.Bernoulli(1.5), 1))
    assert np.isnan(log_prob(lambda: dist.Categorical(jnp.array([-1.0, 2.0])), 1))


def test_probs_and_logits_are_one_law():
    """Would catch a parametrisation that is treated apart."""
    logits = jnp.array([0.3, -1.2, 2.0])
    by_logits = log_prob(lambda: dist.Categorical(logits=logits), [0, 1, 2])
    by_probs = log_prob(lambda: dist.Categorical(jax.nn.softmax(logits)), [0, 1, 2])
    np.testing.assert_allclose(by_logits, by_probs, rtol=0, atol=1e-15)
