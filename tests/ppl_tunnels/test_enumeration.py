"""Enumeration against the referee, in every shape of program and under any mask."""

import functools
import warnings
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.distributions import RandomPermutation
from ppl_tunnels.errors import ImpossibleEvidenceWarning, NoEngineError
from ppl_tunnels.oracles import enumeration
from ppl_tunnels.oracles.bruteforce import brute_force_log_evidence, brute_force_posterior, brute_force_predictive
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.enumeration import EnumerationEngine

PROGRAMS = Path(__file__).with_name("programs.py")
# Two ways of adding the same few hundred products, each of order one.
EXACT = {"rtol": 0, "atol": 1e-12}


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


@functools.cache
def engine_of(name):
    return derive(load(name), engine="enumeration")


def quiet(call, *args, **kwargs):
    """Without the warning about impossible evidence, which random data are full of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
        return call(*args, **kwargs).to_numpy()


def random_mask(length, seed):
    return np.tril(np.random.default_rng(seed).random((length, length)) < 0.5, -1)


def random_streams(tunnel, seed, n):
    """Any values of the supports, likely or impossible, with the context of draws."""
    rng = np.random.default_rng(seed)
    sites = tunnel.reading.sites
    stream = {
        name: rng.choice(sites[name].support, (n, *sites[name].batch_shape)) for name in tunnel.reading.named("stream")
    }
    return tunnel.episodes(stream=stream, context=tunnel.probe[:n].context)


@pytest.mark.parametrize(
    ("name", "sites", "masked"),
    [
        ("casino", ["face", "state", "start"], "face"),
        ("umbrella", ["rain", "umbrella"], "rain"),
        ("echo", ["act", "echo", "habit"], "act"),
        ("panel", ["label", "kind", "mood"], "label"),
        ("survey", ["answers", "traits"], "count"),
        ("driven", ["symbol", "gear"], "symbol"),
        ("urn", ["black", "blacks"], None),
        ("line", ["slope"], "slope"),
        ("sprinkler", ["rain", "wet", "sprinkler"], None),
        ("chain", ["letter"], "letter"),
    ],
)
def test_equals_brute_force(name, sites, masked):
    """Would catch any error of the engine on that shape of program: order, axes, roles, masks, hard zeros, normaliser."""
    tunnel, oracle = load(name), engine_of(name)
    episodes = tunnel.probe[:2]
    requests = [(site, None) for site in sites] + ([(masked, random_mask(tunnel.length, 3))] if masked else [])
    for site, visible in requests:
        latent = tunnel.reading.sites[site].role == "latent"
        own, referee = (
            (oracle.posterior, brute_force_posterior) if latent else (oracle.predictive, brute_force_predictive)
        )
        law = own(episodes, site, visible)
        assert law.log_probs.dtype == jnp.float64
        np.testing.assert_allclose(law.to_numpy(), referee(tunnel, episodes, site, visible), **EXACT, err_msg=site)
    np.testing.assert_allclose(oracle.log_evidence(episodes), brute_force_log_evidence(tunnel, episodes), **EXACT)


@pytest.mark.parametrize("name", ["echo", "chain", "umbrella"])
@hypothesis.given(seed=st.integers(0, 2**32 - 1), bits=st.integers(0, 7))
@hypothesis.settings(max_examples=15)
def test_equals_brute_force_under_any_mask_and_any_evidence(name, seed, bits):
    """Would catch a mask that is right for some shapes only, and impossible evidence that turns into NaN or into a law."""
    tunnel, oracle = load(name), engine_of(name)
    visible = np.zeros((3, 3), bool)
    visible[np.tril_indices(3, -1)] = [bool(bits >> place & 1) for place in range(3)]
    episodes = random_streams(tunnel, seed, 2)
    law = quiet(oracle.predictive, episodes, None, visible)
    np.testing.assert_allclose(law, brute_force_predictive(tunnel, episodes, visible=visible), **EXACT)
    assert ((np.abs(law.sum(axis=-1) - 1) < 1e-12) | (law.sum(axis=-1) == 0)).all()


@pytest.mark.parametrize("name", ["casino", "panel", "survey"])
def test_values_are_listed_in_the_order_of_the_probabilities(name):
    """Would catch probabilities attached to other values than theirs."""
    tunnel, oracle = load(name), engine_of(name)
    for site in tunnel.reading.named("latent"):
        law = oracle.posterior(tunnel.probe[:2], site)
        entry = tunnel.reading.sites[site]
        draws = np.atleast_1d(tunnel.probe.latent[site][:2])
        if entry.per_step:
            at = np.exp(law.log_prob(draws))
            assert at.shape == (2, tunnel.length)
        else:
            at = np.exp(law.log_prob(np.repeat(draws[:, None], tunnel.length + 1, axis=1)))
            assert at.shape == (2, tunnel.length + 1)
        assert (at > 0).all(), f"{site}: the value that made the data has probability zero"
        np.testing.assert_allclose(law.to_numpy().sum(axis=-1), 1, atol=1e-12)


def test_a_joint_posterior_is_over_vectors_of_draws():
    """Would catch the rows of a plate swapped: the hint tells on the first row's kind only."""
    tunnel = load("panel")
    law = engine_of("panel").posterior(
        tunnel.episodes(stream={"pixels": [[[1, 1]] * 2], "label": [[0, 0]]}, context={"hint": [2]}), "kind"
    )
    prior = {tuple(value): prob for value, prob in zip(law.values.tolist(), law.to_numpy()[0, 0].tolist(), strict=True)}
    assert prior[0, 0] == prior[0, 1] == 0
    assert prior[1, 0] == pytest.approx(0.7, abs=1e-15) and prior[1, 1] == pytest.approx(0.3, abs=1e-15)


@pytest.mark.parametrize("numbers", [1, 7 * 2 * 3 * 2, 40])
def test_chunks_add_up(monkeypatch, numbers):
    """Would catch hypotheses dropped or counted twice at the edge of a chunk, such as the last, incomplete one."""
    tunnel, whole = load("echo"), engine_of("echo")
    episodes = tunnel.probe[:2]
    monkeypatch.setattr(enumeration, "_CHUNK_NUMBERS", numbers)
    if numbers == 40:  # hypotheses 27 = 5 x 5 + 2 for the wider program
        tunnel = load("survey")
        whole, episodes = engine_of("survey"), tunnel.probe[:2]
    chunked = EnumerationEngine.from_tunnel(tunnel)
    site = tunnel.reading.named("latent")[0]
    np.testing.assert_allclose(
        np.exp(chunked.predictive(episodes, tunnel.predict, None).log_probs),
        whole.predictive(episodes).to_numpy(),
        **EXACT,
    )
    np.testing.assert_allclose(
        np.exp(chunked.posterior(episodes, site, None).log_probs), whole.posterior(episodes, site).to_numpy(), **EXACT
    )
    np.testing.assert_allclose(chunked.log_evidence(episodes), whole.log_evidence(episodes), **EXACT)


def test_a_hundred_thousand_hypotheses(monkeypatch):
    """Would catch a support or an index that overflows, and memory that grows with the number of hypotheses."""
    points, heads = 100_000, np.array([[1, 1, 0, 1]])
    coin = load_tunnel("coin").configure(points=points, length=4)
    engine = EnumerationEngine.from_tunnel(coin)
    law = engine.predictive(coin.episodes(stream={"flip": heads}), "flip", None)
    grid = np.linspace(0, 1, points)
    weights, expected = np.ones(points), []
    for flip in heads[0]:
        expected.append((weights * grid).sum() / weights.sum())
        weights = weights * (grid if flip else 1 - grid)
    np.testing.assert_allclose(np.exp(law.log_probs[0, :, 1]), expected, rtol=0, atol=1e-12)


def test_unlikely_hypotheses_are_not_lost():
    """Would catch a sum in linear space: after 2,000 flips the likelihood underflows, and e^-800 must still count."""
    coin = load_tunnel("coin").configure(points=3, length=2_000)
    engine = EnumerationEngine.from_tunnel(coin)
    flips = np.zeros((1, 2_000), int)
    flips[0, ::2] = 1
    episodes = coin.episodes(stream={"flip": flips})
    np.testing.assert_allclose(np.exp(engine.predictive(episodes, "flip", None).log_probs[0, -1]), 0.5, atol=1e-12)
    assert float(engine.log_evidence(episodes)[0]) == pytest.approx(2_000 * np.log(0.5) - np.log(3), abs=1e-9)


def test_likelihoods_outside_a_drawn_interval_are_zero():
    """Would catch NumPyro's density of Uniform(0, h), which is the same number outside the interval as inside."""

    @wind_tunnel(stream="x")
    def tank(length=2):
        size = numpyro.sample("size", dist.Categorical(jnp.array([0.5, 0.5])))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Uniform(0.0, 1.0 + size))

    episodes = tank.episodes(stream={"x": [[0.5, 1.5]]})  # 1.5 must pass: it is possible under one hypothesis
    posterior = tank.oracle().posterior(episodes, "size").to_numpy()
    np.testing.assert_allclose(posterior[0], [[1 / 2, 1 / 2], [2 / 3, 1 / 3], [0, 1]], atol=1e-15)


@wind_tunnel(stream="x")
def continuous(length=2):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Bernoulli(logits=mean))


@wind_tunnel(stream="x")
def shuffled(length=2):
    order = numpyro.sample("order", RandomPermutation(20))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Bernoulli(order[0] / 20))


@wind_tunnel(stream="x")
def moving(length=2):
    size = numpyro.sample("size", dist.Categorical(jnp.array([0.9, 0.1])))
    count = numpyro.sample("count", dist.Binomial(1 + size, 0.5))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Bernoulli(count / 3))


@pytest.mark.parametrize(
    ("tunnel", "words"),
    [
        (continuous, ["'mean'", "discretise", "closed_form="]),
        (shuffled, ["'order'", "about 10^18", "smaller configuration", "closed_form="]),
        (moving, ["'count'", "fixed finite support", "discretise"]),
        (load("casino").configure(length=40), ["'start', 'state'", "about 10^12", "4,000,000"]),
    ],
)
def test_what_cannot_be_enumerated_is_refused_with_the_remedy(tunnel, words):
    """Would catch a sum over part of the hypotheses, or one that never ends."""
    with pytest.raises(NoEngineError) as refusal:
        derive(tunnel, engine="enumeration")
    assert all(word in str(refusal.value) for word in [*words, tunnel.name]), str(refusal.value)


def test_explain_says_what_a_mask_means():
    """Would catch hiding called marginalising where later laws use the hidden value."""
    assert "27" not in engine_of("umbrella").explain()
    assert (
        "16 joint values" in engine_of("umbrella").explain()
        and "exactly marginalising" in engine_of("umbrella").explain()
    )
    assert "not marginalising" in engine_of("echo").explain()


def test_hiding_is_marginalising_where_nothing_feeds_back_and_only_there():
    """Would catch an explanation that is the wrong way round: checked by summing over the hidden value."""
    for name, same in (("umbrella", True), ("echo", False)):
        tunnel, oracle = load(name), engine_of(name)
        visible = np.tril(np.ones((3, 3), bool), -1)
        visible[2, 1] = False
        episodes = tunnel.probe[:2]
        site = tunnel.reading.named("stream")[0]
        hidden = oracle.predictive(episodes, site, visible).to_numpy()[:, 2]
        summed = np.zeros_like(hidden)
        streams = tunnel.reading.named("stream")
        for values in np.ndindex(*[len(tunnel.reading.sites[s].support) for s in streams]):
            other = {s: np.array(v) for s, v in episodes.stream.items()}
            for s, value in zip(streams, values, strict=True):
                other[s][:, 1] = value
            branch = tunnel.episodes(stream=other)
            weight = np.ones(2)
            for s in streams:
                at = quiet(oracle.predictive, branch, s)[:, 1]
                weight = weight * np.take_along_axis(at, other[s][:, 1:2], axis=1)[:, 0]
            summed += weight[:, None] * quiet(oracle.predictive, branch, site)[:, 2]
        assert (np.abs(hidden - summed).max() < 1e-12) == same, name
    assert jax.config.jax_enable_x64
