"""Mixtures of laws: sums over components, components of weight zero, moments, draws, axes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.stats
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.parametric import (
    CompoundGamma,
    Gamma,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    StudentT,
)

INF = float("inf")
WEIGHTS = np.array([0.2, 0.5, 0.3])
NORMALS = ((-6.0, 1.0), (0.5, 0.1), (4.0, 2.0))


def normals(log_weights=None):
    loc, scale = np.array(NORMALS).T
    return Mixture(np.log(WEIGHTS) if log_weights is None else log_weights, Normal(loc, scale))


def density(x):
    return sum(w * scipy.stats.norm(m, s).pdf(x) for w, (m, s) in zip(WEIGHTS, NORMALS, strict=True))


def integral(function):
    marks = [m + s * z for m, s in NORMALS for z in (-12, -3, 0, 3, 12)]
    edges = np.unique(np.clip(marks, -30, 30))
    parts = (scipy.integrate.quad(function, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in itertools.pairwise(edges))
    return sum(parts)


def check_against_integrals():
    """Density, mass below a point, mean and variance."""
    law, values = normals(), np.array([-7.0, 0.0, 0.55, 3.0])
    np.testing.assert_allclose(np.exp(law.log_prob(values)), density(values), rtol=1e-13)
    below = [sum(w * scipy.stats.norm(m, s).cdf(x) for w, (m, s) in zip(WEIGHTS, NORMALS, strict=True)) for x in values]
    np.testing.assert_allclose(law.cdf(values), below, rtol=1e-13)
    mean = integral(lambda x: x * density(x))
    assert float(law.mean) == pytest.approx(mean, rel=1e-12)
    assert float(law.variance) == pytest.approx(integral(lambda x: (x - mean) ** 2 * density(x)), rel=1e-12)


def test_sums_over_components():
    """Would catch the logarithm of the average left out, and weights that are not normalised on their way."""
    check_against_integrals()


@pytest.mark.parametrize(
    ("attribute", "wrong"),
    [
        ("variance", property(lambda law: law._average(law.components.variance, 0))),
        ("mean", property(lambda law: jnp.mean(law.components.mean, axis=-1))),
        ("_mixed", lambda law, of_component: jnp.sum(law.weights * of_component, axis=-1)),
    ],
)
def test_planted_bugs_are_noticed(attribute, wrong, monkeypatch):
    """Means that do not spread, weights that are forgotten, and a geometric mean of densities."""
    monkeypatch.setattr(Mixture, attribute, wrong)
    with pytest.raises(AssertionError):
        check_against_integrals()


@pytest.mark.parametrize(
    ("components", "references"),
    [
        (lambda: StudentT([5.0, 3.0], [1.0, 0.5], 2.0), (scipy.stats.t(5, 1, 2), scipy.stats.t(3, 0.5, 2))),
        (
            lambda: NegativeBinomial([2.0, 3.0], [1.0, 0.5]),
            (scipy.stats.nbinom(2, 1 / 2), scipy.stats.nbinom(3, 1 / 3)),
        ),
        (lambda: dist.Poisson(np.array([2.0, 9.0])), (scipy.stats.poisson(2), scipy.stats.poisson(9))),
        (lambda: dist.LogNormal(np.array([0.0, 1.0]), 0.5), [scipy.stats.lognorm(0.5, 0, np.exp(m)) for m in (0, 1)]),
    ],
)
def test_components_of_any_kind(components, references):
    """Would catch a component seen through another's parameters. NumPyro's own laws are allowed."""
    law, values = Mixture(np.log([0.25, 0.75]), components()), np.array([0.0, 1.0, 2.0]) + 1.0
    pdfs = [one.pmf if isinstance(one.dist, scipy.stats.rv_discrete) else one.pdf for one in references]
    expected = 0.25 * pdfs[0](values) + 0.75 * pdfs[1](values)
    np.testing.assert_allclose(np.exp(law.log_prob(values)), expected, rtol=1e-12)
    below = 0.25 * references[0].cdf(values) + 0.75 * references[1].cdf(values)
    np.testing.assert_allclose(law.cdf(values), below, rtol=1e-11)
    means, variances = (np.array([getattr(one, name)() for one in references]) for name in ("mean", "var"))
    mean = 0.25 * means[0] + 0.75 * means[1]
    assert float(law.mean) == pytest.approx(mean, rel=1e-12)
    spread = 0.25 * (variances[0] + (means[0] - mean) ** 2) + 0.75 * (variances[1] + (means[1] - mean) ** 2)
    assert float(law.variance) == pytest.approx(spread, rel=1e-11)
    assert law.log_prob(-1.0) == -INF or isinstance(law.components, StudentT)
    assert law.is_discrete == isinstance(references[0].dist, scipy.stats.rv_discrete)


def test_components_of_weight_zero_take_no_part():
    """Would catch 0 · inf and 0 · NaN: an infinite density, a NaN parameter, an infinite mean."""
    one = Normal(1.0, 2.0)
    absent = [
        Mixture(np.array([0.0, -INF]), Normal([1.0, np.nan], 2.0)),
        Mixture(np.array([0.0, -INF]), Normal([1.0, INF], 2.0)),
    ]
    for law in absent:
        for name in ("log_prob", "cdf"):
            assert float(getattr(law, name)(0.5)) == pytest.approx(float(getattr(one, name)(0.5)), rel=1e-15)
        assert (float(law.mean), float(law.variance)) == (1.0, 4.0)
    at_zero = Mixture(np.array([-INF, 0.0]), Gamma([0.5, 1.0], 2.0))  # the first has an infinite density at 0
    assert float(at_zero.log_prob(0.0)) == pytest.approx(np.log(2.0), rel=1e-15)
    assert float(Mixture(np.log([0.5, 0.5]), Gamma([0.5, 1.0], 2.0)).log_prob(0.0)) == INF
    without_mean = Mixture(np.array([0.0, -INF]), CompoundGamma(1.0, [3.0, 0.5], 2.0))
    assert float(without_mean.mean) == pytest.approx(1.0, rel=1e-15)
    assert float(Mixture(np.log([0.5, 0.5]), CompoundGamma(1.0, [3.0, 0.5], 2.0)).mean) == INF


def test_impossible_evidence_has_no_law():
    """Would catch NaN from a row whose weights are all zero."""
    law = Mixture(np.array([np.log([0.5, 0.5]), [-INF, -INF]]), Normal([0.0, 1.0], 1.0))
    assert np.asarray(law.impossible).tolist() == [False, True]
    assert np.asarray(law.log_prob(0.5))[1] == -INF and np.isfinite(np.asarray(law.log_prob(0.5))[0])
    assert np.asarray(law.cdf(0.5))[1] == 0.0
    numbers = law.to_numpy()
    assert numbers["impossible"].tolist() == [False, True]
    np.testing.assert_allclose(numbers["weights"], [[0.5, 0.5], [0.0, 0.0]], rtol=1e-15)
    assert numbers["loc"].shape == numbers["scale"].shape == (2, 2)


def test_nothing_cancels_between_far_components():
    """Would catch a sum of densities that underflow. A weight of 1e-300 decides where the other law is no more."""
    law = Mixture(np.array([0.0, np.log(1e-300)]), Normal([0.0, 100.0], 1.0))
    assert float(law.log_prob(100.0)) == pytest.approx(np.log(1e-300) - 0.5 * np.log(2 * np.pi), rel=1e-15)
    assert float(law.log_prob(1e5)) == pytest.approx(-0.5 * (1e5 - 100) ** 2 + np.log(1e-300), rel=1e-9)
    assert float(law.log_prob(1e200)) == -INF


def test_axes_come_and_go():
    """Would catch a batch shape that is remembered, under jit, vmap, an index and a broadcast."""
    loc = np.arange(12.0).reshape(2, 2, 3)
    law = Mixture(np.log(np.broadcast_to(WEIGHTS, (2, 2, 3))), Normal(loc, 1.0))
    assert (law.batch_shape, law.event_shape, law.components.batch_shape) == ((2, 2), (), (2, 2, 3))
    value = jnp.asarray(4.5)
    log_prob = np.asarray(law.log_prob(value))
    assert log_prob.shape == (2, 2)

    @jax.jit
    def in_many_ways(law):
        return jax.vmap(lambda law: law.log_prob(value))(law), jax.tree.map(lambda leaf: leaf[1], law).log_prob(value)

    one_by_one, second = in_many_ways(law)
    np.testing.assert_allclose(one_by_one, log_prob, rtol=1e-14)
    np.testing.assert_allclose(second, log_prob[1], rtol=1e-14)
    np.testing.assert_allclose(law.broadcast_to((3, 2, 2)).log_prob(value)[2], log_prob, rtol=1e-14)
    np.testing.assert_allclose(law.log_prob(np.array([4.5, 0.0])[:, None, None])[0], log_prob, rtol=1e-14)
    made = jax.vmap(lambda weights: Mixture(weights, Normal(jnp.zeros(3), 1.0)))(jnp.log(jnp.full((4, 3), 1 / 3)))
    assert made.batch_shape == (4,) and made.log_prob(0.0).shape == (4,)
    with pytest.raises(TunnelError, match=r"shape \(2, 3\) and Normal.*broadcast"):
        Mixture(np.zeros((2, 3)), Normal(np.zeros(4), 1.0))
    with pytest.raises(TunnelError, match="one log-weight without an axis"):
        Mixture(0.0, Normal(0.0, 1.0))


def test_vectors_and_mixtures_of_mixtures():
    """Would catch axes of one value taken for components."""
    loc = np.array([[0.0, 1.0], [2.0, -1.0]])
    law, point = Mixture(np.log([0.25, 0.75]), MultivariateNormal(loc, np.eye(2))), np.array([1.0, 0.0])
    parts = [scipy.stats.multivariate_normal(m, np.eye(2)).pdf(point) for m in loc]
    assert float(jnp.exp(law.log_prob(point))) == pytest.approx(0.25 * parts[0] + 0.75 * parts[1], rel=1e-13)
    assert (law.event_shape, law.batch_shape) == ((2,), ())
    np.testing.assert_allclose(law.mean, [1.5, -0.5], rtol=1e-15)
    np.testing.assert_allclose(law.variance, [1 + 0.75, 1 + 0.75], rtol=1e-15)
    inner = Mixture(np.log([[0.5, 0.5], [0.1, 0.9]]), Normal([[0.0, 1.0], [2.0, 3.0]], 1.0))
    outer = Mixture(np.log([0.4, 0.6]), inner)
    flat = Mixture(np.log([0.2, 0.2, 0.06, 0.54]), Normal([0.0, 1.0, 2.0, 3.0], 1.0))
    for name in ("log_prob", "cdf"):
        assert float(getattr(outer, name)(0.7)) == pytest.approx(float(getattr(flat, name)(0.7)), rel=1e-13)
    assert float(outer.variance) == pytest.approx(float(flat.variance), rel=1e-13)


def test_supports():
    """Would catch a mixture of uniform laws that claims the first one's support."""
    assert Mixture(np.log([0.5, 0.5]), Gamma([1.0, 2.0], 1.0)).support is constraints.positive
    uniform = Mixture(np.log([0.5, 0.5]), dist.Uniform(np.array([0.0, 1.0]), np.array([2.0, 3.0])))
    assert constraints.is_dependent(uniform.support)
    np.testing.assert_allclose(
        np.exp(uniform.log_prob(np.array([0.5, 1.5, 2.5, 3.5]))), [0.25, 0.5, 0.25, 0.0], rtol=1e-15
    )
    np.testing.assert_allclose(uniform.cdf(np.array([0.5, 1.5])), [0.125, 0.5], rtol=1e-15)


def test_nothing_is_truncated_for_a_caller_in_single_precision():
    """Would catch float64 weights that become float32 where the caller has not switched x64 on."""
    expected = [
        np.asarray(each) for each in (normals().log_prob(0.3), normals().mean, normals().variance, normals().cdf(0.3))
    ]
    with jax.enable_x64(False):
        law = normals()
        for found, right in zip((law.log_prob(0.3), law.mean, law.variance, law.cdf(0.3)), expected, strict=True):
            assert found.dtype == np.float64 and float(found) == float(right)


# False alarms: 1e-6 each, by the Kolmogorov-Smirnov tests.
def test_draws_are_uniform_under_the_distribution_function():
    """Would catch components chosen with equal weights, or one choice for all draws."""
    law = Mixture(np.log([WEIGHTS, WEIGHTS[::-1]]), Normal(np.array(NORMALS)[:, 0], np.array(NORMALS)[:, 1]))
    draws = law.sample(jax.random.key(5), (4_000,))
    assert draws.shape == (4_000, 2)
    for level in np.asarray(law.cdf(draws)).T:
        assert scipy.stats.kstest(level, "uniform").pvalue > 1e-6


def test_an_entropy_has_to_be_measured():
    with pytest.raises(NotImplementedError, match="entropy_bits"):
        normals().entropy()
