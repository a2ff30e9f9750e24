"""What every oracle obeys, whichever engine computes it, and what it refuses."""

import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.contrib.control_flow import scan

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import ImpossibleEvidenceWarning, TunnelError

PROGRAMS = Path(__file__).with_name("programs.py")


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


def few(tunnel, n=2):
    return tunnel.probe[:n]


@pytest.mark.parametrize("name", ["casino", "echo", "panel", "driven", "urn"])
def test_rows_are_laws_and_the_chain_rule_gives_the_evidence(name):
    """Would catch a normaliser that is off, a factor used twice, and mass lost between the sites of a step."""
    tunnel = load(name)
    episodes, oracle = few(tunnel), tunnel.oracle()
    total, streams = np.zeros(2), tunnel.reading.named("stream")
    for site in streams:
        if tunnel.reading.sites[site].batch_shape[1:]:  # several values a step: their joint law has no site of its own
            continue
        law = oracle.predictive(episodes, site)
        np.testing.assert_allclose(law.to_numpy().sum(axis=-1), 1, rtol=0, atol=1e-12)
        assert not np.isnan(np.asarray(law.log_probs)).any()
        total += np.asarray(law.log_prob(episodes.stream[site])).sum(axis=1)
    if name != "panel":
        np.testing.assert_allclose(total, oracle.log_evidence(episodes), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["casino", "echo", "panel", "driven"])
@pytest.mark.parametrize("masked", [False, True])
def test_causal_bit_for_bit(name, masked):
    """Would catch the future leaking into a row, if only through the rounding of a sum that it takes part in."""
    tunnel = load(name)
    episodes, oracle, steps = few(tunnel), tunnel.oracle(), tunnel.length
    visible = np.tril(np.random.default_rng(1).random((steps, steps)) < 0.7, -1) if masked else None
    own = np.asarray(oracle.predictive(episodes, visible=visible).log_probs)
    sites, moved = tunnel.reading.sites, False
    for step in range(steps):
        stream = {site: np.array(value) for site, value in episodes.stream.items()}
        for site, value in stream.items():
            first = step + (
                tunnel.reading.named("stream").index(site) < tunnel.reading.named("stream").index(tunnel.predict)
            )
            last = len(sites[site].support) - 1
            value[:, first:] = np.where(value[:, first:] == last, 0, last)
        other = tunnel.episodes(stream=stream, context=episodes.context)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
            law = np.asarray(oracle.predictive(other, visible=visible).log_probs)
        np.testing.assert_array_equal(law[:, : step + 1], own[:, : step + 1])
        moved |= bool((law[:, step + 1 :] != own[:, step + 1 :]).any())
    assert moved, "changing the past must change something, or this test cannot fail"


def test_one_by_one_under_vmap_and_under_jit():
    """Would catch episodes that see one another, and results that depend on how they are asked for."""
    tunnel = load("casino")
    oracle, episodes = tunnel.oracle(), jax.tree.map(jnp.asarray, few(tunnel))
    together = np.asarray(oracle.predictive(episodes).log_probs)
    loop = np.concatenate([oracle.predictive(episodes[i : i + 1]).log_probs for i in range(2)])
    np.testing.assert_allclose(loop, together, rtol=0, atol=1e-15)
    vmapped = jax.vmap(lambda one: oracle.predictive(jax.tree.map(lambda leaf: leaf[None], one)).log_probs[0])(episodes)
    np.testing.assert_allclose(vmapped, together, rtol=0, atol=1e-15)
    jitted = jax.jit(lambda episodes: oracle.predictive(episodes))(episodes)
    np.testing.assert_allclose(jitted.log_probs, together, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(jitted.values, oracle.predictive(episodes).values)
    backwards = oracle.predictive(episodes[::-1])
    np.testing.assert_array_equal(np.asarray(backwards.log_probs)[::-1], together)


def test_an_oracle_in_a_single_precision_jit_is_refused():
    """Would catch an oracle silently truncated by the model's own step."""
    tunnel = load("casino")
    oracle, episodes = tunnel.oracle(), jax.tree.map(jnp.asarray, few(tunnel))
    with jax.enable_x64(False):
        for call in (
            lambda e: oracle.predictive(e).log_probs,
            lambda e: oracle.posterior(e, "start").log_probs,
            oracle.log_evidence,
        ):
            with pytest.raises(TunnelError, match=r"inside a jit that runs in single precision.*enable_x64\(True\)"):
                jax.jit(call)(episodes)


def test_equal_shapes_are_compiled_once():
    """Would catch a recompilation at every call: counted by how often Python runs the program."""
    runs = []

    @wind_tunnel(stream="x")
    def counted(length=2):
        runs.append(1)
        bias = numpyro.sample("bias", dist.Categorical(jnp.ones(3) / 3))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(bias / 2))

    oracle = counted.oracle()
    episodes = [counted.episodes(stream={"x": np.array(x)}) for x in ([[0, 1]], [[1, 1]], [[0, 0]])]
    mask = np.array([[False, False], [True, False]])

    def ask(given, visible):
        oracle.predictive(given)
        oracle.predictive(given, visible=visible)
        oracle.posterior(given, "bias")
        oracle.log_evidence(given)
        counted.sample(jax.random.key(0), 2)

    ask(episodes[0], mask)
    first = len(runs)
    for given in episodes[1:]:
        ask(given, ~mask & np.tril(np.ones((2, 2), bool), -1))
    assert len(runs) == first
    assert counted.configure(length=2).oracle() is oracle


def test_impossible_evidence_is_minus_infinity_and_says_where():
    """Would catch -87 for -inf, NaN, and a silent row of zeros (published case: Bernoulli(0) observed 1)."""

    @wind_tunnel(stream="x")
    def never(length=2):
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(0.0))

    oracle = never.oracle()
    episodes = never.episodes(stream={"x": np.array([[0, 0], [1, 0], [0, 1]])})
    with pytest.warns(ImpossibleEvidenceWarning, match="1 of 3 episodes.*'never'.*episode 1, before prediction 1"):
        law = oracle.predictive(episodes)
    assert law.to_numpy()[:, :, 0].tolist() == [[1, 1], [1, 0], [1, 1]]
    assert np.isneginf(np.asarray(law.log_probs)[1, 1]).all()
    assert oracle.log_evidence(episodes).tolist() == [0.0, -np.inf, -np.inf]


def test_forbidden_transitions_stay_forbidden():
    """Would catch a transition of probability 0 read as log-probability 0, and beliefs that are NaN beside it."""
    chain = load("chain")
    letters = chain.episodes(stream={"letter": np.array([[0, 2, 2], [0, 1, 2]])})
    assert np.isneginf(float(chain.oracle().log_evidence(letters)[0]))
    assert float(chain.oracle().log_evidence(letters)[1]) == pytest.approx(np.log(0.8 * 0.2 * 0.3), abs=1e-14)
    with pytest.warns(ImpossibleEvidenceWarning, match="1 of 2 episodes"):
        law = chain.oracle().predictive(letters)
    assert not np.isnan(np.asarray(law.log_probs)).any()


def test_an_impossible_context_has_no_evidence_rather_than_nan():
    """Would catch -inf minus -inf where the context itself has probability zero."""

    @wind_tunnel(stream="x", context="c")
    def hinted(length=1):
        numpyro.sample("c", dist.Categorical(jnp.array([1.0, 0.0])))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(0.25))

    episodes = hinted.episodes(stream={"x": np.array([[1], [1]])}, context={"c": np.array([0, 1])})
    np.testing.assert_allclose(hinted.oracle().log_evidence(episodes), [np.log(0.25), -np.inf])


def test_a_law_that_is_undefined_is_refused_with_its_place():
    """Would catch NaN rows: no test of closeness to an oracle fails on them."""

    @wind_tunnel(stream="x")
    def overflowing(length=3):
        def step(heads, _):
            return heads + numpyro.sample("x", dist.Bernoulli(1e-9 + 0.6 * heads)), None

        scan(step, 0, None, length=length)

    episodes = overflowing.episodes(stream={"x": np.array([[0, 0, 0], [1, 1, 0]])})
    with pytest.raises(TunnelError, match=r"'x' is undefined \(NaN\) in 1 of 2 episodes.*episode 1, prediction 2"):
        overflowing.oracle().predictive(episodes)


def test_an_observation_of_likelihood_one_changes_nothing():
    """Would catch evidence that is counted because it is there, not because it tells."""

    @wind_tunnel(stream=("mark", "face"))
    def marked(length=3):
        faces = jnp.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])

        def roll(state, _):
            numpyro.sample("mark", dist.Categorical(jnp.array([0.0, 1.0])))
            face = numpyro.sample("face", dist.Categorical(faces[state]))
            return state, face

        scan(roll, numpyro.sample("loaded", dist.Bernoulli(0.5)), None, length=length)

    oracle = marked.oracle()
    faces = np.array([[2, 0, 2]])
    episodes = marked.episodes(stream={"mark": np.ones((1, 3), int), "face": faces})
    law = oracle.predictive(episodes).to_numpy()[0]
    weights, table = np.array([0.5, 0.5]), np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    for step, face in enumerate(faces[0]):
        np.testing.assert_allclose(law[step], weights @ table / weights.sum(), atol=1e-15)
        weights = weights * table[:, face]
    assert oracle.predictive(episodes, "mark").to_numpy()[0].tolist() == [[0.0, 1.0]] * 3


def test_the_sampler_and_the_oracle_speak_of_one_law(seed):
    """Would catch a sampler that draws from another law than the densities say. False alarms: 1e-6 each, chi-square test."""
    urn, n = load("urn"), 4_000
    draws = np.asarray(urn.sample(jax.random.key(seed), n).stream["black"])
    outcomes = np.array(list(np.ndindex(2, 2, 2)))
    exact = np.exp(urn.oracle().log_evidence(urn.episodes(stream={"black": outcomes})))
    assert exact.sum() == pytest.approx(1, abs=1e-12)
    counts = np.bincount(draws @ [4, 2, 1], minlength=8)
    assert scipy.stats.chisquare(counts, n * exact).pvalue > 1e-6


def test_a_static_latent_is_predicted_after_each_step():
    """Would catch the prior row left in, or the last row left out, where the predicted site is a static latent."""
    tunnel = load("line")
    law = tunnel.oracle().predictive(few(tunnel))
    posterior = tunnel.oracle().posterior(few(tunnel), "slope")
    assert posterior.batch_shape == (2, 4) and law.batch_shape == (2, 3)
    np.testing.assert_array_equal(law.log_probs, posterior.log_probs[:, 1:])
    np.testing.assert_allclose(posterior.to_numpy()[:, 0], [[0.2, 0.3, 0.5]] * 2, atol=1e-15)


def test_latents_in_the_episodes_are_not_looked_at():
    """Would catch an oracle that knows the answer."""
    tunnel = load("casino")
    own = tunnel.oracle().predictive(few(tunnel)).log_probs
    np.testing.assert_array_equal(tunnel.oracle().predictive(few(tunnel).without_latents()).log_probs, own)


REFUSED = {
    "unknown site": (lambda o, e: o.predictive(e, "fcae"), ["'fcae'", "did you mean 'face'?"]),
    "posterior of the stream": (
        lambda o, e: o.posterior(e, "face"),
        ["'face' is not latent", "predictive(episodes, site='face')"],
    ),
    "mask of the wrong shape": (lambda o, e: o.predictive(e, visible=np.zeros((3, 4), bool)), ["(3, 4)", "(4, 4)"]),
    "mask of numbers": (lambda o, e: o.predictive(e, visible=np.zeros((4, 4))), ["float64", "booleans", "(4, 4)"]),
    "mask of lists": (lambda o, e: o.predictive(e, visible=[[False] * 4] * 4), ["list", "booleans"]),
    "mask of the own step": (
        lambda o, e: o.predictive(e, visible=np.eye(4, dtype=bool)),
        ["visible[0, 0]", "np.tril(visible, -1)"],
    ),
    "mask of the future": (
        lambda o, e: o.posterior(e, "state", visible=np.eye(4, k=2, dtype=bool)),
        ["visible[0, 2]", "not before step 0"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_was_expected(case):
    """Would catch a mask that shows the answer, and a question that has none answered anyway."""
    ask, words = REFUSED[case]
    tunnel = load("casino")
    with pytest.raises(TunnelError) as refusal:
        ask(tunnel.oracle(), few(tunnel))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_context_has_no_predictive():
    """Would catch a law given for what is revealed up front."""
    panel = load("panel")
    with pytest.raises(TunnelError, match="'hint' is context, revealed up front"):
        panel.oracle().predictive(few(panel), "hint")
