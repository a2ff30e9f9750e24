"""Regression, state space and unknown scales against plain NumPy, one layout against the other, and what is not linear."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import NoEngineError
from ppl_tunnels.oracles.derive import derive

EXACT = {"rtol": 1e-11, "atol": 1e-12}


@functools.cache
def oracle_of(tunnel, engine=None):
    return derive(tunnel, engine)


def random_mask(length, seed=0):
    return np.tril(np.random.default_rng(seed).random((length, length)) < 0.5, -1)


def dense(latent_mean, latent_cov, rows, offsets, noise, values, visible):
    """Mean and variance of every value given the visible earlier ones, by conditioning one joint normal law at a time."""
    steps = len(values)
    mean, cov = rows @ latent_mean + offsets, rows @ latent_cov @ rows.T + np.diag(noise)
    out = []
    for step in range(steps):
        seen = np.flatnonzero(visible[step])
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, step]) if len(seen) else np.zeros(0)
        out.append((mean[step] + gain @ (values - mean)[seen], cov[step, step] - gain @ cov[seen, step]))
    return np.array(out).T


@wind_tunnel(stream="y", context="x")
def regression(length=5):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([length, 2]).to_event(2))
    w = numpyro.sample("w", dist.MultivariateNormal(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.3], [0.3, 2.0]])))
    with numpyro.plate("points", length):
        numpyro.sample("y", dist.Normal(x @ w + 0.25, 0.3))


def test_regression_with_known_noise() -> None:
    """Would catch a design row of another step, evidence counted twice, and a mask that hides the inputs too."""
    few = jax.tree.map(np.asarray, regression.probe[:4])
    mean, cov = np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 2.0]])
    for visible in (np.tril(np.ones((5, 5), bool), -1), random_mask(5)):
        law = oracle_of(regression).predictive(few, visible=visible)
        assert isinstance(law, dist.Normal)
        for episode in range(4):
            x, y = few.context["x"][episode], few.stream["y"][episode]
            right = dense(mean, cov, x, np.full(5, 0.25), np.full(5, 0.09), y, visible)
            np.testing.assert_allclose(law.loc[episode], right[0], **EXACT)
            np.testing.assert_allclose(law.scale[episode] ** 2, right[1], **EXACT)
    posterior = oracle_of(regression).posterior(few, "w")
    x, y = few.context["x"][0], few.stream["y"][0]
    precision = np.linalg.inv(cov) + x.T @ x / 0.09
    right = np.linalg.solve(precision, np.linalg.solve(cov, mean) + x.T @ (y - 0.25) / 0.09)
    np.testing.assert_allclose(posterior.loc[0, -1], right, **EXACT)
    np.testing.assert_allclose(posterior.covariance_matrix[0, -1], np.linalg.inv(precision), **EXACT)


@wind_tunnel(stream=("x", "y"), predict="y")
def unknown_noise(length=4):
    """Normal-inverse-gamma regression whose inputs are revealed with the data, and a finite latent over all of it."""
    steep = numpyro.sample("steep", dist.Bernoulli(0.3))
    variance = numpyro.sample("variance", dist.InverseGamma(2.0, 1.5))
    w = numpyro.sample("w", dist.Normal(0.0, (1 + steep) * jnp.sqrt(variance)).expand([2]).to_event(1))
    with numpyro.plate("points", length):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w[0] + w[1] * x, 0.5 * jnp.sqrt(variance)))


@pytest.mark.slow
def test_regression_with_unknown_noise_under_two_hypotheses() -> None:
    """Would catch half the degrees of freedom, a scale taken for a variance, and weights that ignore the unknown noise."""
    few = jax.tree.map(np.asarray, unknown_noise.probe[:5])
    oracle = oracle_of(unknown_noise)
    log_joint = np.zeros((2, 5))
    for steep in (0, 1):
        for episode in range(5):
            design = np.stack([np.ones(4), few.stream["x"][episode]], axis=1)
            shape = 1.5 / 2.0 * (0.25 * np.eye(4) + (1 + steep) ** 2 * design @ design.T)
            log_joint[steep, episode] = np.log([0.7, 0.3][steep]) + scipy.stats.multivariate_t.logpdf(
                few.stream["y"][episode], np.zeros(4), shape, df=4.0
            )
    evidence = np.logaddexp(*log_joint) + scipy.stats.norm.logpdf(few.stream["x"]).sum(axis=1)
    np.testing.assert_allclose(oracle.log_evidence(few), evidence, rtol=1e-11)
    posterior = oracle.posterior(few, "steep").to_numpy()[:, -1, 1]
    np.testing.assert_allclose(posterior, np.exp(log_joint[1] - np.logaddexp(*log_joint)), rtol=1e-11)
    chained = sum(np.asarray(oracle.predictive(few, site).log_prob(few.stream[site])) for site in ("x", "y"))
    np.testing.assert_allclose(chained.sum(axis=1), evidence, rtol=1e-11)


@wind_tunnel(stream="y", predict="level")
def local_level(length=4):
    """A trend drawn once, a level carried by the scan, the last observation fed back."""
    trend = numpyro.sample("trend", dist.Normal(0.0, 0.5))

    def step(carry, shift):
        level, last = carry
        level = numpyro.sample("level", dist.Normal(0.9 * level + trend, 0.6))
        y = numpyro.sample("y", dist.Normal(level + 0.2 * last + shift, 0.7))
        return (level, y), None

    first = numpyro.sample("first", dist.Normal(1.0, 1.5))
    scan(step, (first, 0.0), jnp.linspace(0.0, 1.0, length), length=length)


def unrolled(length):
    """The latents (trend, first, level_1 …) of `local_level`: mean, covariance, and the level's rows."""
    size = 2 + length
    slopes, noise, offset = np.zeros((size, size)), np.array([0.25, 2.25] + [0.36] * length), np.zeros(size)
    offset[1] = 1.0
    for step in range(length):
        slopes[2 + step, [1 + step, 0]] = 0.9, 1.0
    inverse = np.linalg.inv(np.eye(size) - slopes)
    return inverse @ offset, inverse @ np.diag(noise) @ inverse.T, np.eye(size)[2:]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["Kalman", "joint Gaussian"])
def test_state_space(engine) -> None:
    """Would catch a move before the first observation left out, values fed back that are marginalised, and a lost trend."""
    mean, cov, rows = unrolled(4)
    few = jax.tree.map(np.asarray, local_level.probe[:3])
    oracle = oracle_of(local_level, engine)
    assert oracle.engine == engine
    for visible in (None, random_mask(4)):
        shown = np.tril(np.ones((4, 4), bool), -1) if visible is None else visible
        law, posterior = oracle.predictive(few, "y", visible), oracle.posterior(few, "level", visible)
        for episode in range(3):
            y = few.stream["y"][episode]
            offsets = 0.2 * np.concatenate([[0.0], y[:-1]]) + np.linspace(0, 1, 4)
            right = dense(mean, cov, rows, offsets, np.full(4, 0.49), y, shown)
            np.testing.assert_allclose(law.loc[episode], right[0], **EXACT)
            np.testing.assert_allclose(law.scale[episode] ** 2, right[1], **EXACT)
            for step in range(4):
                seen = np.flatnonzero(shown[step] | (np.arange(4) == step))
                gain = np.linalg.solve(
                    (rows @ cov @ rows.T + 0.49 * np.eye(4))[np.ix_(seen, seen)], (rows @ cov)[seen]
                ).T
                at = (mean + gain @ (y - offsets - rows @ mean)[seen])[2 + step]
                assert float(posterior.loc[episode, step]) == pytest.approx(at, rel=1e-11)
    assert oracle.posterior(few, "trend").batch_shape == (3, 5)


@wind_tunnel(stream="y", predict="y")
def accelerating(length=4):
    """Two numbers in nested carries, an unknown scale common to everything, vectors seen at every step."""
    precision = numpyro.sample("precision", dist.Gamma(3.0, 2.0))

    def step(carry, _):
        (speed, place), count = carry
        push = numpyro.sample("push", dist.Normal(0.0, 0.5 / jnp.sqrt(precision)))
        speed, place = 0.8 * speed + push, place + speed
        noise = jnp.array([[1.0, 0.4], [0.4, 0.5]]) / precision
        numpyro.sample("y", dist.MultivariateNormal(jnp.stack([place, speed - place]), noise))
        return ((speed, place), count + 1), None

    scan(step, ((1.0, 0.0), 0), None, length=length)


@pytest.mark.slow
def test_layouts_agree_on_vectors_and_a_common_scale() -> None:
    """Would catch an unknown scale that reaches only some of the noise, and vectors taken number by number."""
    few = accelerating.probe[:4]
    kalman, joint = oracle_of(accelerating, "Kalman"), oracle_of(accelerating, "joint Gaussian")
    mask = random_mask(4)
    for ask in (
        lambda oracle: oracle.predictive(few, "y", mask),
        lambda oracle: oracle.posterior(few, "push", mask),
        lambda oracle: oracle.posterior(few, "precision"),
    ):
        for a, b in zip(jax.tree.leaves(ask(kalman)), jax.tree.leaves(ask(joint)), strict=True):
            np.testing.assert_allclose(a, b, **EXACT)
    law = kalman.predictive(few, "y")
    np.testing.assert_allclose(law.log_prob(few.stream["y"]).sum(axis=1), kalman.log_evidence(few), rtol=1e-11)


def test_a_sum_over_a_plate_is_no_state_but_a_joint_law() -> None:
    """Would catch latents of a plate taken for latents of their own step."""

    @wind_tunnel(stream="y", predict="y")
    def walk(length=4):
        with numpyro.plate("steps", length):
            move = numpyro.sample("move", dist.Normal(0.1, 0.5))
            numpyro.sample("y", dist.Normal(jnp.cumsum(move), 0.7))

    few = jax.tree.map(np.asarray, walk.probe[:3])
    law = oracle_of(walk).predictive(few)
    assert oracle_of(walk).engine == "joint Gaussian"
    rows, past = np.tril(np.ones((4, 4))), np.tril(np.ones((4, 4), bool), -1)
    for episode in range(3):
        y = few.stream["y"][episode]
        right = dense(np.full(4, 0.1), 0.25 * np.eye(4), rows, np.zeros(4), np.full(4, 0.49), y, past)
        np.testing.assert_allclose(law.loc[episode], right[0], **EXACT)
        np.testing.assert_allclose(law.scale[episode] ** 2, right[1], **EXACT)


def not_linear(body):
    def program(length=3):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        v = numpyro.sample("v", dist.Normal(0.0, 1.0))
        with numpyro.plate("points", length):
            body(w, v)

    return wind_tunnel(stream="y", name="not_linear")(program)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda w, v: numpyro.sample("y", dist.Normal(w * v, 1.0)), "not a linear function"),
        (lambda w, v: numpyro.sample("y", dist.Normal(jnp.abs(w) + v, 1.0)), "not a linear function"),
        (lambda w, v: numpyro.sample("y", dist.Normal(jnp.where(w > 5, 2 * w, w) + v, 1.0)), "not a linear function"),
        (lambda w, v: numpyro.sample("y", dist.Normal(w, jnp.exp(v))), "some covariance depends"),
        (lambda w, v: numpyro.sample("y", dist.StudentT(4.0, w + v, 1.0)), "'y' is a StudentT"),
        (lambda w, v: numpyro.sample("y", dist.Poisson(jnp.exp(w + v))), "'y' is a Poisson"),
    ],
)
def test_what_is_not_jointly_gaussian_is_refused(body, words) -> None:
    """Would catch linearity tested on one side of a kink, near zero, or for the mean alone."""
    with pytest.raises(NoEngineError) as refusal:
        derive(not_linear(body), "joint Gaussian")
    assert words in str(refusal.value)


def test_an_unknown_scale_of_some_of_the_noise_is_refused() -> None:
    """Would catch Normal-inverse-gamma formulas applied where the prior of the weights does not scale."""

    @wind_tunnel(stream="y")
    def partly(length=3):
        precision = numpyro.sample("precision", dist.Gamma(2.0, 1.0))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("points", length):
            numpyro.sample("y", dist.Normal(w, 1 / jnp.sqrt(precision)))

    with pytest.raises(NoEngineError, match=r"proportional to a power of 'precision'"):
        derive(partly)


@pytest.mark.slow
def test_ten_thousand_steps() -> None:
    """Would catch drift of the covariance: the filter of a stationary process settles, and the chain rule holds."""
    long = local_level.configure(length=10_000)
    few = long.probe[:2]
    law = oracle_of(long).predictive(few, "y")
    assert np.ptp(np.asarray(law.scale)[:, 5_000:]) < 1e-6
    total = np.asarray(law.log_prob(few.stream["y"])).sum(axis=1)
    np.testing.assert_allclose(total, oracle_of(long).log_evidence(few), rtol=1e-12)
