"""Parametric laws: known values at small and huge parameters, edges, impossible evidence, shapes, precision."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from numpyro.distributions import transforms

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import parametric
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.parametric import (
    Beta,
    BetaBinomial,
    BetaGeometric,
    CompoundGamma,
    Dirichlet,
    DirichletMultinomial,
    Gamma,
    MultivariateNormal,
    MultivariateStudentT,
    NegativeBinomial,
    Normal,
    StudentT,
    Transformed,
)

INF = float("inf")

# Computed in 60-digit arithmetic from the textbook formulas.
LOG_PROBS = [
    ("Beta", (0.3, 2.5), 0.125, 0.39153391693585334982),
    ("Beta", (10000.0, 3.0), 0.9995, 6.7356186995064714789),
    ("Beta", (1000000.0, 1000000.0), 0.5005, 6.0285378916177692094),
    ("Beta", (1.0, 1000000.0), 1e-06, 12.815511057964440816),
    ("Beta", (0.001, 0.001), 1e-300, 682.48385155330714408),
    ("Gamma", (0.3, 2.0), 0.25, -0.41744778786616852686),
    ("Gamma", (10000.0, 3.7), 2700.0, -4.2197870683776668929),
    ("Gamma", (1000000.0, 10000.0), 100.1, 0.88298005965617972856),
    ("Gamma", (0.001, 1.0), 1e-300, 683.1775734849316378),
    ("StudentT", (1.0, 0.5, 1e-12), 0.500000000001, 25.793166171239322424),
    ("StudentT", (3.0, 0.0, 1.0), 1000.0, -26.434691388206838554),
    ("StudentT", (1000000.0, 0.5, 2.0), 4.0, -3.1433351502904979685),
    ("StudentT", (0.3, 0.0, 1.0), 1e150, -451.25931558570742655),
    ("Normal", (0.0, 1e-12), 3e-12, 22.212082582723874881),
    ("Normal", (1.0, 2.0), 1000000.0, -124999750001.73708571),
    ("BetaBinomial", (2.0, 3.0, 12), 5, -2.1313133723866760322),
    ("BetaBinomial", (1000000.0, 1000000.0, 5), 2, -1.1631518098049308639),
    ("BetaBinomial", (0.3, 0.3, 1000000), 0, -4.8422172891381337046),
    ("BetaBinomial", (10000.0, 1000000.0, 1000000), 9900, -5.8582141440641272063),
    ("BetaBinomial", (0.001, 11.0, 1000000), 1000000, -143.77108566055207319),
    ("BetaGeometric", (1.0, 1.0), 1000000, -27.631024115926048211),
    ("BetaGeometric", (1000000.0, 11.0), 0, -0.000010999939500443663006),
    ("BetaGeometric", (2.5, 1000000.0), 1000000, -15.325235270550083872),
    ("BetaGeometric", (0.3, 0.3), 7, -4.5115423696518261688),
    ("NegativeBinomial", (3.0, 0.5), 4, -2.2096470973347765361),
    ("NegativeBinomial", (1000000.0, 1e-06), 1000000000000, -21.642204953484167232),
    ("NegativeBinomial", (1000000.0, 50.0), 20000, -5.8805877914214798686),
    ("NegativeBinomial", (0.001, 1.0), 1000, -706.95590061579596135),
    ("NegativeBinomial", (10000.0, 3.0), 0, -2876.8207245178092744),
    ("CompoundGamma", (1.0, 3.0, 2.0), 0.5, -0.48710909714867464109),
    ("CompoundGamma", (10000.0, 1000000.0, 2.0), 0.02, 7.5932711586265675588),
    ("CompoundGamma", (0.3, 0.001, 1.0), 1e20, -53.008428861179115995),
    ("CompoundGamma", (1000000.0, 11.0, 0.001), 90.0, -4.2279371531441953677),
]
ENTROPIES = [
    ("Normal", (0.0, 1.0), 1.4189385332046727418),
    ("Beta", (0.3, 2.5), -1.970286252125176455),
    ("Beta", (10000.0, 3.0), -7.3631618182868371457),
    ("Beta", (1000000.0, 1000000.0), -6.5285377666175072744),
    ("Beta", (0.001, 1.0), -992.09224472101784215),
    ("Gamma", (0.3, 2.0), -1.7491161412819629863),
    ("Gamma", (1000000.0, 10000.0), -0.88364689312278960892),
    ("Gamma", (0.001, 1.0), -992.66681747449461569),
    ("StudentT", (1.0, 0.0, 2.0), 3.2241714275292361024),
    ("StudentT", (4.0, 0.0, 1.0), 1.6817600168786663564),
    ("StudentT", (1000000.0, 0.0, 1e-12), -26.212081582723625487),
    ("CompoundGamma", (1.0, 3.0, 2.0), 0.92786822522516895136),
    ("CompoundGamma", (10000.0, 1000000.0, 0.5), -8.4796066864213006894),
    ("CompoundGamma", (0.3, 0.3, 1.0), 2.9705051365510817214),
    ("Dirichlet", ([2.0, 1e4, 1e6],), -20.054609856827769763),
]
COVARIANCE = np.array([[4.0, 1.0], [1.0, 0.5]])

# One law of each kind of batch shape [2], and a value.
LAWS = {
    "Normal": (lambda **k: Normal([0.0, 1.0], 2.0, **k), 0.5),
    "MultivariateNormal": (lambda **k: MultivariateNormal(np.arange(4.0).reshape(2, 2), COVARIANCE, **k), [0.5, 1.0]),
    "StudentT": (lambda **k: StudentT([1.5, 3.0], 0.0, 2.0, **k), 0.5),
    "MultivariateStudentT": (lambda **k: MultivariateStudentT([3.0, 5.0], np.zeros(2), COVARIANCE, **k), [0.5, 1.0]),
    "Beta": (lambda **k: Beta([1.5, 2.0], 3.0, **k), 0.25),
    "Dirichlet": (lambda **k: Dirichlet(np.arange(1.0, 7.0).reshape(2, 3), **k), [0.25, 0.5, 0.25]),
    "Gamma": (lambda **k: Gamma([1.5, 20.0], 3.0, **k), 0.25),
    "BetaBinomial": (lambda **k: BetaBinomial([1.5, 2.0], 3.0, 4, **k), 3),
    "NegativeBinomial": (lambda **k: NegativeBinomial([1.5, 2.0], 3.0, **k), 3),
    "BetaGeometric": (lambda **k: BetaGeometric([1.5, 2.0], 3.0, **k), 3),
    "CompoundGamma": (lambda **k: CompoundGamma(1.0, [1.5, 2.0], 3.0, **k), 0.5),
    "DirichletMultinomial": (lambda **k: DirichletMultinomial(np.arange(1.0, 7.0).reshape(2, 3), 4, **k), [1, 0, 3]),
    "Transformed": (
        lambda **k: Transformed(
            Normal([0.0, 1.0], 2.0, **k), [transforms.ExpTransform(), transforms.AffineTransform(0.0, 2.0)]
        ),
        0.5,
    ),
}
NAMES = sorted(LAWS)


def made(name, *arguments):
    return getattr(parametric, name)(*(np.asarray(each) for each in arguments))


@pytest.mark.parametrize(("name", "arguments", "value", "expected"), LOG_PROBS)
def test_log_probs_at_small_and_huge_parameters(name, arguments, value, expected):
    """Would catch differences of log-gammas (1e-9 at 1e6), `betaln`, swapped parameters, and rate taken for scale."""
    assert float(made(name, *arguments).log_prob(value)) == pytest.approx(expected, rel=1e-13, abs=1e-14)


@pytest.mark.parametrize(("name", "arguments", "expected"), ENTROPIES)
def test_entropies_at_small_and_huge_parameters(name, arguments, expected):
    """Would catch a digamma of the wrong argument, and a sum of terms of size 1e7."""
    assert float(made(name, *arguments).entropy()) == pytest.approx(expected, rel=1e-13, abs=1e-13)


def test_multivariate_log_probs_at_huge_parameters():
    """Would catch cancellation between categories, and a scale matrix taken for a covariance."""
    weights = np.array([2.0, 1e4, 1e6])
    point = np.array([2.0**-19, 2.0**-7, 1 - 2.0**-19 - 2.0**-7])
    assert float(Dirichlet(weights).log_prob(point)) == pytest.approx(-240.84419776107899731, rel=1e-13)
    counts = DirichletMultinomial(weights, 1000).log_prob(np.array([3, 10, 987]))
    assert float(counts) == pytest.approx(-21.449631984050305841, rel=1e-13)
    lower = np.array([[2.0, 0.0], [0.5, 0.5]])
    student = MultivariateStudentT(1e6, np.zeros(2), lower).log_prob(np.array([1.0, 1.0]))
    z = np.linalg.solve(lower, [1.0, 1.0])
    assert float(student) == pytest.approx(-np.log(2 * np.pi) - (5e5 + 1) * np.log1p(z @ z / 1e6), rel=1e-13)
    gaussian = MultivariateNormal(np.array([1.0, 2.0]), COVARIANCE)
    reference = scipy.stats.multivariate_normal([1.0, 2.0], COVARIANCE)
    assert float(gaussian.log_prob(np.zeros(2))) == pytest.approx(reference.logpdf(np.zeros(2)), rel=1e-13)
    assert float(gaussian.entropy()) == pytest.approx(reference.entropy(), rel=1e-13)
    tiny = MultivariateNormal(np.zeros(2), 1e-24 * COVARIANCE).log_prob(np.zeros(2))
    assert float(tiny) == pytest.approx(-np.log(2 * np.pi) + 24 * np.log(10), rel=1e-13)
    three = MultivariateStudentT(3.0, np.zeros(2), lower)
    expected = scipy.stats.multivariate_t(np.zeros(2), lower @ lower.T, df=3).entropy()
    assert float(three.entropy()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("law", "value", "expected"),
    [
        (lambda: Beta(1.0, 1.0), 0.0, 0.0),
        (lambda: Beta(1.0, 3.0), 0.0, np.log(3)),
        (lambda: Beta(1.0, 3.0), 1.0, -INF),
        (lambda: Beta(0.5, 3.0), 0.0, INF),
        (lambda: Beta(2.0, 2.0), 1.5, -INF),
        (lambda: Dirichlet([1.0, 1.0]), [1.0, 0.0], 0.0),
        (lambda: Dirichlet([0.5, 2.0, 1.0]), [0.0, 0.0, 1.0], -INF),
        (lambda: Dirichlet([20.0, 1.0]), [0.0, 1.0], -INF),
        (lambda: Dirichlet([1.0, 1.0]), [0.5, 0.6], -INF),
        (lambda: Gamma(1.0, 2.0), 0.0, np.log(2)),
        (lambda: Gamma(12.0, 2.0), 0.0, -INF),
        (lambda: Gamma(0.5, 2.0), 0.0, INF),
        (lambda: Gamma(12.0, 2.0), INF, -INF),
        (lambda: Gamma(1.0, 2.0), -1.0, -INF),
        (lambda: CompoundGamma(1.0, 3.0, 2.0), 0.0, np.log(1.5)),
        (lambda: CompoundGamma(2.0, 3.0, 2.0), 0.0, -INF),
        (lambda: CompoundGamma(1.0, 3.0, 2.0), -1.0, -INF),
        (lambda: Normal(0.0, 1.0), INF, -INF),
        (lambda: Normal(0.0, 1.0), np.nan, -INF),
        (lambda: StudentT(2.0, 0.0, 1.0), 1e200, -600 * np.log(10)),  # (2 + z²)^(-3/2)
        (lambda: BetaBinomial(2.0, 2.0, 3), 4, -INF),
        (lambda: BetaBinomial(2.0, 2.0, 3), 1.5, -INF),
        (lambda: BetaBinomial(2.0, 2.0, 0), 0, 0.0),
        (lambda: NegativeBinomial(2.0, 1.0), -1, -INF),
        (lambda: NegativeBinomial(2.0, 1.0), 0.5, -INF),
        (lambda: BetaGeometric(2.0, 1.0), -1, -INF),
        (lambda: DirichletMultinomial([1.0, 2.0], 3), [1, 1], -INF),
        (lambda: DirichletMultinomial([1.0, 2.0], 3), [4, -1], -INF),
        (lambda: DirichletMultinomial([1.0, 2.0], 3), [1.5, 1.5], -INF),
        (lambda: DirichletMultinomial([1.0, 2.0], 0), [0, 0], 0.0),
    ],
)
def test_edges_and_outside_of_the_support(law, value, expected):
    """Would catch NaN at an edge, a support that is not looked at, and counts that need not be whole."""
    log_prob = float(law().log_prob(np.asarray(value)))
    assert log_prob == pytest.approx(expected, rel=1e-14, abs=1e-14)
    assert float(exact_log_prob(law(), jnp.asarray(value))) == log_prob


def test_counts_sum_to_one():
    """Would catch a missing number of arrangements."""
    counts = np.array([c for c in itertools.product(range(6), repeat=3) if sum(c) == 5])
    law = DirichletMultinomial([0.3, 2.0, 1.0], 5)
    assert float(jnp.exp(law.log_prob(counts)).sum()) == pytest.approx(1.0, abs=1e-14)
    assert float(jnp.exp(NegativeBinomial(2.5, 0.5).log_prob(np.arange(200))).sum()) == pytest.approx(1.0, abs=1e-14)
    assert float(jnp.exp(BetaGeometric(9.0, 0.5).log_prob(np.arange(4000))).sum()) == pytest.approx(1.0, abs=1e-13)
    assert BetaBinomial(2.5, 0.5, 30).finite().to_numpy().sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_laws_are_numpyros(name):
    """Would catch a law that NumPyro's own machinery does not know for what it is."""
    law, value = LAWS[name][0](), np.asarray(LAWS[name][1])
    of = {"NegativeBinomial": dist.GammaPoisson, "Transformed": dist.TransformedDistribution}
    kind = of.get(name, getattr(dist, name, dist.Distribution))
    assert isinstance(law, kind) and isinstance(law, parametric.ExactLaw)
    assert law.batch_shape == (2,) and law.event_shape == value.shape
    assert law.support is not None and law.event_dim == value.ndim
    vector = law.expand([3, 2]).to_event(1)
    assert vector.batch_shape == (3,) and vector.shape((4,)) == (4, 3, 2, *value.shape)


@pytest.mark.parametrize("name", NAMES)
def test_impossible_rows_are_marked_and_have_no_law(name):
    """Would catch a law passed off where there is none, and NaN parameters that leak out of such rows."""
    make, value = LAWS[name]
    law = make(impossible=[False, True])
    log_prob = np.asarray(law.log_prob(np.asarray(value)))
    assert np.isfinite(log_prob[0]) and log_prob[1] == -INF
    assert np.asarray(law.impossible).tolist() == [False, True]
    assert law.to_numpy()["impossible"].tolist() == [False, True]
    assert np.asarray(make().impossible).tolist() == [False, False]
    if name not in ("NegativeBinomial", "BetaGeometric", "DirichletMultinomial"):
        assert np.asarray(law.entropy())[1] == 0.0
    if not law.event_shape:
        assert np.asarray(law.cdf(value))[1] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_laws_are_pytrees_of_their_parameters(name):
    """Would catch a batch shape that is remembered instead of read off, and a leaf without the batch axes."""
    make, value = LAWS[name]
    value, law = jnp.asarray(value), make()
    log_prob = np.asarray(law.log_prob(value))

    def second_of(law):
        return jax.tree.map(lambda leaf: leaf[1], law)

    @jax.jit
    def in_many_ways(law):
        one_by_one = jax.vmap(lambda law: law.log_prob(value))(law)
        return law, one_by_one, second_of(law).log_prob(value), law.broadcast_to((3, 2)).log_prob(value)

    through, one_by_one, second, wider = in_many_ways(law)
    np.testing.assert_array_equal(through.log_prob(value), log_prob)
    np.testing.assert_allclose(one_by_one, log_prob, rtol=1e-14)
    np.testing.assert_allclose(second, log_prob[1], rtol=1e-14)
    np.testing.assert_allclose(wider, np.broadcast_to(log_prob, (3, 2)), rtol=1e-14)
    assert second_of(law).batch_shape == () and second_of(law).event_shape == law.event_shape
    stacked = jax.vmap(lambda _: make())(jnp.arange(4))
    assert stacked.batch_shape == (4, 2) and stacked.event_shape == law.event_shape


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_truncated_for_a_caller_in_single_precision(name):
    """Would catch float64 laws that become float32 where the caller has not switched x64 on."""
    make, value = LAWS[name]
    expected = np.asarray(make().log_prob(np.asarray(value)))
    with jax.enable_x64(False):
        law = make()
        log_prob = law.log_prob(np.asarray(value))
        assert log_prob.dtype == np.float64
        np.testing.assert_array_equal(np.asarray(log_prob), expected)
        parameters = [array.dtype for key, array in law.to_numpy().items() if key != "impossible"]
        assert parameters and set(parameters) == {np.dtype(np.float64)}


# False alarms: 44 means, each beyond 5.5 standard errors with probability 4e-8 (by the central limit theorem); 2e-6 in all.
@pytest.mark.parametrize(
    "name", ["MultivariateNormal", "Beta", "BetaBinomial", "NegativeBinomial", "BetaGeometric", "DirichletMultinomial"]
)
def test_draws_have_the_mean_and_the_variance(name):
    """Would catch a sampler of another parametrisation. Beta's is that of the Dirichlet and gamma laws."""
    concentrations = {"BetaGeometric": lambda: BetaGeometric([9.0, 12.0], 3.0)}
    law = concentrations.get(name, LAWS[name][0])()
    draws = np.asarray(law.sample(jax.random.key(3), (20_000,)), float)
    assert np.isfinite(np.asarray(law.log_prob(draws[:2]))).all()
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - np.asarray(law.mean)) < 5.5 * error).all()
    spread = (draws - draws.mean(axis=0)) ** 2
    error = spread.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(spread.mean(axis=0) - np.asarray(law.variance)) < 5.5 * error).all()


def test_draws_of_heavy_tailed_laws_are_uniform_under_their_cdf():
    """Would catch a sampler of another parametrisation. False alarms: 3e-6, by three Kolmogorov–Smirnov tests."""
    laws = [
        CompoundGamma(1.5, 2.0, 3.0),
        StudentT(1.5, 1.0, 2.0),
        Transformed(Gamma(1.5, 2.0), transforms.PowerTransform(-1.0)),
    ]
    for law in laws:
        levels = np.asarray(law.cdf(law.sample(jax.random.key(4), (5_000,))))
        assert scipy.stats.kstest(levels, "uniform").pvalue > 1e-6
    assert float(CompoundGamma(1.5, 0.5, 3.0).mean) == INF and float(CompoundGamma(1.5, 1.5, 3.0).variance) == INF
    assert float(CompoundGamma(1.5, 3.0, 2.0).mean) == pytest.approx(scipy.stats.betaprime(1.5, 3, scale=2).mean())
    assert float(CompoundGamma(1.5, 3.0, 2.0).variance) == pytest.approx(scipy.stats.betaprime(1.5, 3, scale=2).var())


@pytest.mark.parametrize(
    ("law", "reference", "values"),
    [
        (lambda: Normal(1.0, 2.0), scipy.stats.norm(1, 2), [-9.0, 0.0, 3.0]),
        (lambda: StudentT(1e6, 0.0, 1.0), scipy.stats.t(1e6), [-5.0, -1e-3, 0.0, 1.0]),
        (lambda: StudentT(3.0, 1.0, 2.0), scipy.stats.t(3, 1, 2), [-50.0, 0.5, 1.0, 9.0]),
        (lambda: Beta(1e6, 1e6), scipy.stats.beta(1e6, 1e6), [0.0, 0.4995, 0.5, 1.0]),
        (lambda: Gamma(1e6, 1e4), scipy.stats.gamma(1e6, scale=1e-4), [-1.0, 0.0, 99.9, 100.0]),
        (lambda: CompoundGamma(1.5, 2.0, 3.0), scipy.stats.betaprime(1.5, 2, scale=3), [-1.0, 0.0, 0.5, 1e5]),
        (lambda: NegativeBinomial(1e4, 1e-3), scipy.stats.nbinom(1e4, 1 / 1001), [-1, 0, 10**7 - 10**5, 10**7]),
        (lambda: BetaBinomial(2.0, 3.0, 30), scipy.stats.betabinom(30, 2, 3), [-1, 0, 7, 7.5, 30, 31]),
    ],
)
def test_cumulative_distribution_functions(law, reference, values):
    """Would catch JAX's incomplete beta function (1e-6 off at 1e6), and counts that are not rounded down."""
    values = np.asarray(values, float)
    expected = reference.cdf(values)
    np.testing.assert_allclose(law().cdf(values), expected, rtol=0, atol=2e-12)
    traced = jax.jit(lambda law, values: jax.vmap(law.cdf)(values))(law(), values)
    np.testing.assert_allclose(traced, expected, rtol=0, atol=2e-12)


def test_the_distribution_function_of_failures_sums_the_probabilities():
    """Would catch a count too many or too few."""
    law, counts = BetaGeometric(1.5, 3.0), np.arange(50)
    np.testing.assert_allclose(law.cdf(counts), np.cumsum(np.exp(law.log_prob(counts))), rtol=1e-13)
    assert float(law.cdf(-1)) == 0.0 and float(law.cdf(2.7)) == float(law.cdf(2))


def test_a_beta_binomial_law_as_a_finite_one():
    """Would catch a list for the largest number of trials only, or a list that cannot know where to end."""
    law = BetaBinomial([1.0, 2.0], 1.0, 3, impossible=[True, False]).finite()
    assert isinstance(law, Finite) and law.batch_shape == (2,)
    np.testing.assert_allclose(law.to_numpy(), [[0.0] * 4, [0.1, 0.2, 0.3, 0.4]], rtol=1e-14)
    assert np.asarray(law.impossible).tolist() == [True, False]
    inside = jax.jit(lambda law: law.finite().probs)(BetaBinomial([1.0, 2.0], 1.0, 3))
    np.testing.assert_allclose(inside[1], [0.1, 0.2, 0.3, 0.4], rtol=1e-14)
    with pytest.raises(TunnelError, match="not one for all rows"):
        BetaBinomial(1.0, 1.0, [3, 4]).finite()
    with pytest.raises(TunnelError, match="outside of jit"):
        jax.jit(lambda n: BetaBinomial(1.0, 1.0, n).finite().log_probs)(3)


def test_transformed_laws():
    """Would catch a missing Jacobian, or one of the wrong sign."""
    values = np.array([1e-3, 0.5, 2.0, 40.0])
    cases = [
        (Transformed(Normal(0.5, 2.0), transforms.ExpTransform()), scipy.stats.lognorm(2, scale=np.exp(0.5))),
        (Transformed(Gamma(3.0, 2.0), transforms.PowerTransform(-1.0)), scipy.stats.invgamma(3, scale=2)),
        (Transformed(Gamma(3.0, 2.0), transforms.PowerTransform(0.5)), scipy.stats.gengamma(3, 2, scale=0.5**0.5)),
        (Transformed(Beta(3.0, 2.0), transforms.AffineTransform(1.0, 50.0)), scipy.stats.beta(3, 2, 1, 50)),
    ]
    for law, reference in cases:
        np.testing.assert_allclose(law.log_prob(values), reference.logpdf(values), rtol=1e-12)
        np.testing.assert_allclose(law.cdf(values), reference.cdf(values), rtol=1e-11)
        assert float(law.entropy()) == pytest.approx(float(reference.entropy()), rel=1e-9)
        assert law.log_prob(-1.0) == -INF and law.cdf(-1.0) == 0.0


def test_moments_of_transformed_laws():
    """Would catch a variance that is scaled but not squared, moments of exp(E x), and a rate raised with the wrong sign."""
    exp, affine, power = transforms.ExpTransform(), transforms.AffineTransform, transforms.PowerTransform
    cases = [
        (Transformed(Beta(3.0, 2.0), affine(1.0, 50.0)), scipy.stats.beta(3, 2, 1, 50)),
        (Transformed(Gamma(3.0, 2.0), affine(1.0, 4.0)), scipy.stats.gamma(3, 1, 2)),
        (Transformed(Normal(0.5, 0.7), exp), scipy.stats.lognorm(0.7, scale=np.exp(0.5))),
        (
            Transformed(Normal(0.25, 0.35), [affine(0.0, 2.0), exp, affine(1.0, 3.0)]),
            scipy.stats.lognorm(0.7, 1, 3 * np.exp(0.5)),
        ),
        (Transformed(Gamma(1.0, 1.0), [affine(0.0, 0.2), exp, affine(0.0, 3.0)]), scipy.stats.pareto(5, scale=3)),
        (Transformed(Gamma(3.5, 2.0), power(-1.0)), scipy.stats.invgamma(3.5, scale=2)),
        (Transformed(Gamma(1e6, 2.0), power(-1.0)), scipy.stats.invgamma(1e6, scale=2)),
        (Transformed(Gamma(3.0, 2.0), power(0.5)), scipy.stats.gengamma(3, 2, scale=0.5**0.5)),
        (Transformed(Gamma(1.5, 2.0), power(-1.0)), scipy.stats.invgamma(1.5, scale=2)),
        (Transformed(Gamma(0.5, 2.0), power(-1.0)), scipy.stats.invgamma(0.5, scale=2)),
        (Transformed(Gamma(1.0, 1.5), exp), scipy.stats.pareto(1.5)),
    ]
    for law, reference in cases:
        assert float(law.mean) == pytest.approx(reference.mean(), rel=1e-13)
        assert float(law.variance) == pytest.approx(reference.var(), rel=1e-12)
    # Of sqrt(x) with x ~ Gamma(1e6, 1): 1/4 - 1/(32 a) + …, where E x - (E sqrt(x))² has lost ten digits.
    assert float(Transformed(Gamma(1e6, 1.0), power(0.5)).variance) == pytest.approx(0.25 - 1 / 32e6, rel=1e-12)
    for transform in (transforms.SigmoidTransform(), power(2.0)):
        with pytest.raises(NotImplementedError, match=rf"Normal under {type(transform).__name__}.*integrate"):
            _ = Transformed(Normal(0.0, 1.0), transform).mean


def test_transforms_that_change_the_shape():
    """Would catch parameters of later transforms broadcast to the shape of the first variable."""
    loc, shift = np.arange(8.0).reshape(2, 4), np.arange(4.0).reshape(2, 2)
    changes = [transforms.ReshapeTransform((2, 2), (4,)), transforms.AffineTransform(shift, 2.0)]
    law = Transformed(MultivariateNormal(loc, np.diag([1.0, 4.0, 9.0, 16.0])), changes)
    assert (law.batch_shape, law.event_shape) == ((2,), (2, 2))
    np.testing.assert_allclose(law.mean, shift + 2 * loc.reshape(2, 2, 2), rtol=1e-15)
    np.testing.assert_allclose(law.variance[1], [[4.0, 16.0], [36.0, 64.0]], rtol=1e-15)
    expected = scipy.stats.norm(0, [2.0, 4.0, 6.0, 8.0]).logpdf(0.0).sum()
    np.testing.assert_allclose(law.log_prob(law.mean), [expected] * 2, rtol=1e-13)


@pytest.mark.parametrize(
    ("law", "value", "expected"),
    [
        (lambda: Transformed(Normal(0.0, 1.0), transforms.ExpTransform()), 0.0, -INF),
        (lambda: Transformed(Normal(0.0, 1.0), transforms.SigmoidTransform()), 1.0, -INF),
        (lambda: Transformed(Gamma(2.0, 1.0), transforms.PowerTransform(-1.0)), 0.0, -INF),
        (lambda: Transformed(Gamma(2.0, 1.0), transforms.PowerTransform(-1.0)), 1e-300, -1e300),
        (lambda: Transformed(Gamma(0.5, 1.0), transforms.PowerTransform(-1.0)), INF, -INF),
        (lambda: Transformed(Gamma(2.0, 1.0), transforms.PowerTransform(2.0)), 0.0, np.log(0.5)),
        (lambda: Transformed(Gamma(1.5, 1.0), transforms.PowerTransform(2.0)), 0.0, INF),
        (lambda: Transformed(Gamma(3.0, 1.0), transforms.PowerTransform(2.0)), 0.0, -INF),
        (lambda: Transformed(CompoundGamma(1.0, 1.0, 3.0), transforms.PowerTransform(-1.0)), 0.0, np.log(3.0)),
        (
            lambda: Transformed(
                Gamma(2.0, 1.0), [transforms.PowerTransform(2.0), transforms.AffineTransform(1.0, -3.0)]
            ),
            1.0,
            -np.log(6.0),
        ),
        (lambda: Transformed(Beta(1.0, 1.0), transforms.AffineTransform(0.0, 2.0)), 2.0, -np.log(2.0)),
        (lambda: Transformed(Beta(1.0, 1.0), transforms.AffineTransform(0.0, 2.0)), 2.5, -INF),
        (lambda: Transformed(Gamma(1.0, 2.0), transforms.AffineTransform(1.0, -1.0)), 1.0, np.log(2.0)),
        (lambda: Transformed(Gamma(1.0, 2.0), transforms.AffineTransform(1.0, -1.0)), 1.5, -INF),
    ],
)
def test_transformed_laws_at_the_edges_of_their_supports(law, value, expected):
    """Would catch NaN, and -inf or inf where the density has a finite limit."""
    assert float(law().log_prob(value)) == pytest.approx(expected, rel=1e-13, abs=1e-13)


def test_transforms_are_composed_and_batched():
    """Would catch a second transform that replaces the first, and parameters of transforms without batch axes."""
    law = Transformed(Transformed(Normal(0.0, 1.0), transforms.ExpTransform()), transforms.AffineTransform(1.0, 2.0))
    assert len(law.transforms) == 2 and isinstance(law.base_dist, Normal)
    assert float(law.log_prob(3.0)) == pytest.approx(scipy.stats.lognorm(1, 1, 2).logpdf(3.0))
    batch = Transformed(Normal(np.zeros((2, 3)), 1.0), transforms.AffineTransform(0.0, np.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(jax.tree.map(lambda leaf: leaf[1, 2], batch).log_prob(0.0), batch.log_prob(0.0)[1, 2])
    vector = Transformed(MultivariateNormal(np.zeros(2), np.eye(2)), transforms.ExpTransform())
    expected = scipy.stats.lognorm(1).logpdf([1.0, 3.0]).sum()
    assert float(vector.log_prob(np.array([1.0, 3.0]))) == pytest.approx(expected)
    assert float(vector.entropy()) == pytest.approx(2 * scipy.stats.lognorm(1).entropy())
    with pytest.raises(TunnelError, match="base of type Normal"):
        Transformed(dist.Normal(0.0, 1.0), transforms.ExpTransform())
    with pytest.raises(NotImplementedError, match="entropy_bits"):
        Transformed(Normal(0.0, 1.0), transforms.SigmoidTransform()).entropy()
