"""Latents of one step, summed within it: in plates and scans, under hypotheses, and what is not local."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.oracles.bruteforce import brute_force_log_evidence, brute_force_posterior, brute_force_predictive
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.enumeration import EnumerationEngine
from ppl_tunnels.oracles.local import LocalLatents, why_not_local


@wind_tunnel(stream=("hint", "label"), predict="label")
def noisy_labels(length=3):
    """A kind and two copies of it a step; which table they follow is a hypothesis, and the last hint feeds back."""
    table = numpyro.sample("table", dist.Categorical(jnp.array([0.3, 0.7])))
    kinds = jnp.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])

    def step(last, _):
        kind = numpyro.sample("kind", dist.Categorical(kinds[table]))
        hint = numpyro.sample("hint", dist.Bernoulli(jnp.array([0.2, 0.5, 0.9])[kind]))
        odd = numpyro.sample("odd", dist.Bernoulli(0.25 + 0.5 * hint))
        numpyro.sample("label", dist.Categorical(jnp.array([[0.8, 0.2, 0.0], [0.3, 0.3, 0.4]])[(odd + last) % 2]))
        return hint, None

    scan(step, 0, None, length=length)


@wind_tunnel(stream="label")
def plated(length=3):
    table = numpyro.sample("table", dist.Categorical(jnp.array([0.3, 0.7])))
    with numpyro.plate("steps", length):
        kind = numpyro.sample("kind", dist.Bernoulli(0.4))
        with numpyro.plate("copies", 2):
            copy = numpyro.sample("copy", dist.Bernoulli(0.1 + 0.8 * kind))
        numpyro.sample(
            "label", dist.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])[(copy.sum(0) + table) % 2])
        )


@pytest.mark.parametrize("tunnel", [noisy_labels, pytest.param(plated, marks=pytest.mark.slow)])
def test_summing_within_the_step_equals_brute_force(tunnel) -> None:
    """Would catch a latent drawn after the predicted site that reweighs it, and hypotheses weighted before the sum."""
    oracle = derive(tunnel, "enumeration")
    assert oracle.derived.support.size == 2
    episodes = tunnel.probe[:2]
    mask = np.tril(np.random.default_rng(1).random((3, 3)) < 0.5, -1)
    for site, visible in ((tunnel.predict, None), *((site, mask) for site in tunnel.stream)):
        right = brute_force_predictive(tunnel, episodes, site, visible)
        np.testing.assert_allclose(oracle.predictive(episodes, site, visible).to_numpy(), right, atol=1e-13)
    for site, visible in (("kind", None), ("table", mask)):
        right = brute_force_posterior(tunnel, episodes, site, visible)
        np.testing.assert_allclose(oracle.posterior(episodes, site, visible).to_numpy(), right, atol=1e-13)
    np.testing.assert_allclose(oracle.log_evidence(episodes), brute_force_log_evidence(tunnel, episodes), atol=1e-13)


def test_length_does_not_matter() -> None:
    """Would catch the joint values of all steps being listed: 2^600 of them."""
    long = plated.configure(length=200)
    law = derive(long).predictive(long.probe[:2]).to_numpy()
    np.testing.assert_allclose(law.sum(axis=-1), 1.0, rtol=1e-12)


def not_local(kind):
    def program(length=3):
        with numpyro.plate("steps", length):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            if kind == "shifted":
                p = 0.2 + 0.6 * jnp.roll(z, 1)
            elif kind == "summed":
                p = 0.2 + 0.1 * jnp.cumsum(z)
            else:  # only the rarest joint value of two steps matters
                p = jnp.where((z == 1) & (jnp.roll(z, 1) == 1) & (jnp.roll(z, 2) == 1), 0.9, 0.2)
            numpyro.sample("y", dist.Bernoulli(p))

    return wind_tunnel(stream="y", name=kind)(program)


@pytest.mark.parametrize("kind", ["shifted", "summed", "all three"])
def test_what_reaches_another_step_is_not_local(kind) -> None:
    """Would catch latents of a plate taken for local because they are drawn in it: the joint is enumerated instead."""
    tunnel = not_local(kind)
    assert "'y' depends on a latent of another step" in why_not_local(tunnel)
    engine = EnumerationEngine.from_tunnel(tunnel)
    assert isinstance(engine, EnumerationEngine) and not engine.local.names
    episodes = tunnel.probe[:2]
    right = brute_force_predictive(tunnel, episodes)
    np.testing.assert_allclose(derive(tunnel).predictive(episodes).to_numpy(), right, atol=1e-13)


def test_no_latent_of_a_step_means_one_empty_value() -> None:
    """Would catch a program without such latents being run zero times."""

    @wind_tunnel(stream="y")
    def plain(length=2):
        bias = numpyro.sample("bias", dist.Bernoulli(0.5))
        with numpyro.plate("steps", length):
            numpyro.sample("y", dist.Bernoulli(0.2 + 0.5 * bias))

    assert LocalLatents(plain).count == 1 and LocalLatents(plain).names == ()


@pytest.mark.slow
def test_a_stream_that_is_not_finite_gets_a_mixture() -> None:
    """Would catch mixing by prior weights, and the components' axes in the wrong order."""

    @wind_tunnel(stream=("count", "reading"), predict="reading")
    def sensors(length=3):
        place = numpyro.sample("place", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        with numpyro.plate("steps", length):
            loud = numpyro.sample("loud", dist.Bernoulli(0.3))
            numpyro.sample("count", dist.Poisson(jnp.array([1.0, 2.0, 5.0])[place] + loud))
            numpyro.sample("reading", dist.Normal(place - 2.0 * loud, 0.5 + loud))

    few = sensors.probe[:4]
    oracle = derive(sensors)
    law, counts = oracle.predictive(few), oracle.predictive(few, "count")
    assert law.batch_shape == (4, 3) and law.log_weights.shape == (4, 3, 6)
    total = np.asarray(law.log_prob(few.stream["reading"]) + counts.log_prob(few.stream["count"])).sum(axis=1)
    np.testing.assert_allclose(total, brute_force_log_evidence(sensors, few), rtol=1e-12)
