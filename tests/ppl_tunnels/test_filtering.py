"""Filtering against enumeration of the same programs, and what has no finite state space."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import ImpossibleEvidenceWarning, TunnelError
from ppl_tunnels.oracles import filtering as module
from ppl_tunnels.oracles.beliefs import Memory
from ppl_tunnels.oracles.bruteforce import brute_force_predictive
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.filtering import FilteringEngine
from ppl_tunnels.oracles.state_space import find_state_space

# How many values each carry takes where it depends on latents.
STATES = {
    "second_order": 4,
    "phase": 9,
    "moved_by_its_symbols": 3,
    "remembers": 2,
    "revealed": 2,
    "told": 2,
    "runs_out": 9,
    "pairs": 4,
    "measured": 3,
    "certain": 2,
}
CHAINS = {name: load_tunnel(f"{Path(__file__).with_name('chains.py')}:{name}") for name in STATES}


def band(steps: int, width: int) -> np.ndarray:
    age = np.arange(steps)[:, None] - np.arange(steps)
    return (age >= 1) & (age <= width)


def any_mask(steps: int, seed: int = 0) -> np.ndarray:
    return np.tril(np.random.default_rng(seed).random((steps, steps)) < 0.5, -1)


def numbers(law, values) -> np.ndarray:
    """Probabilities of a finite law; of another, log-densities at some values."""
    return law.to_numpy() if hasattr(law, "values") else np.asarray(law.log_prob(values))


# The others are run by hand; programs like them are among the random ones.
QUICK = {"pairs", "told"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CHAINS]
)
def test_equals_enumeration(name) -> None:
    """Would catch a transition off by one, evidence of the wrong step, and a carry split wrongly."""
    tunnel = CHAINS[name]
    oracle, referee = derive(tunnel, "filtering"), derive(tunnel, "enumeration")
    assert oracle.derived.space.size == STATES[name]
    episodes = tunnel.sample(jax.random.key(1), 5)
    # Hiding what rules a state out leaves belief in states that state no law.
    hidden = None if name == "runs_out" else any_mask(tunnel.length)
    latents = ("state", None), ("start", hidden)
    for site, visible in ((tunnel.predict, None), (tunnel.predict, hidden), *latents):
        site = {("runs_out", "state"): "hand", ("runs_out", "start"): "pile"}.get((name, site), site)
        if site not in tunnel.reading.sites:
            continue
        ask = "posterior" if tunnel.reading.sites[site].role == "latent" else "predictive"
        said, right = (getattr(each, ask)(episodes, site, visible) for each in (oracle, referee))
        values = episodes.stream.get(site)
        np.testing.assert_allclose(numbers(said, values), numbers(right, values), rtol=1e-12, atol=0)
    np.testing.assert_allclose(oracle.log_evidence(episodes), referee.log_evidence(episodes), rtol=1e-12)


@pytest.mark.parametrize("width", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_finite_memory_has_a_path_of_its_own_and_says_the_same(width) -> None:
    """As the general path for the same mask, which a traced mask takes."""
    tunnel = CHAINS["told"].configure(length=4)
    engine, episodes = derive(tunnel, "filtering").derived, tunnel.sample(jax.random.key(2), 4)
    visible = band(tunnel.length, width)
    assert Memory.of(visible).width == width
    with jax.enable_x64(True):
        said = engine.predictive(episodes, "y", visible)
        general = jax.jit(lambda mask: engine.predictive(episodes, "y", mask).log_probs)(jnp.asarray(visible))
        np.testing.assert_allclose(said.to_numpy(), np.exp(general), rtol=1e-12)
        said, general = (
            engine.posterior(episodes, "kind", visible),
            jax.jit(lambda mask: engine.posterior(episodes, "kind", mask).log_probs)(jnp.asarray(visible)),
        )
        np.testing.assert_allclose(said.to_numpy(), np.exp(general), rtol=1e-12)


def test_bands_are_recognised() -> None:
    assert Memory.of(band(5, 2)) == Memory(width=2)
    assert Memory.of(band(5, 4)) == Memory.of(band(5, 9)) == Memory.of(None) == Memory()
    assert Memory.of(any_mask(5)).width is None
    assert Memory.of(band(5, 2) & ~band(5, 1)).width is None


def test_several_draws_a_step_have_a_joint_law() -> None:
    """The draws share a belief, so their law is no product, and not that of equal values."""
    tunnel = CHAINS["pairs"].configure(length=2)
    episodes = tunnel.sample(jax.random.key(3), 3)
    law = derive(tunnel, "filtering").predictive(episodes, "pair")
    assert law.values.shape == (9, 2)
    assert np.asarray(law.values)[:4].tolist() == [[0, 0], [1, 0], [2, 0], [0, 1]]
    right = brute_force_predictive(tunnel, episodes, "pair")
    np.testing.assert_allclose(law.to_numpy(), right, rtol=1e-12)
    np.testing.assert_allclose(derive(tunnel, "enumeration").predictive(episodes, "pair").to_numpy(), right, rtol=1e-12)


def test_a_law_that_the_program_does_not_state_is_an_error() -> None:
    episodes = CHAINS["runs_out"].sample(jax.random.key(1), 40)
    with pytest.raises(TunnelError, match="undefined"):
        derive(CHAINS["runs_out"], "filtering").predictive(episodes, "y", np.zeros((3, 3), bool))


@wind_tunnel(stream="y")
def leaves_for_good(length=40):
    """One state has odds of 1e-12 a step against it, and alone explains a symbol that may come late."""

    def step(state, _):
        numpyro.sample("y", dist.Categorical(jnp.array([[1 - 1e-12, 0.0, 1e-12], [1e-12, 1e-12, 1 - 2e-12]])[state]))
        return numpyro.sample("state", dist.Categorical(jnp.eye(2)[state])), None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.array([0.5, 0.5]))), None, length=length)


def test_what_is_nearly_impossible_stays_possible() -> None:
    """Belief in one state falls to 1e-936, then only it explains what comes: by logarithms."""
    tunnel = leaves_for_good.configure(length=80)
    stream = np.zeros((1, 80), int)
    stream[0, -2] = 1
    oracle, referee = derive(tunnel, "filtering"), derive(tunnel.configure(length=4), "enumeration")
    law = oracle.predictive(tunnel.episodes(stream={"y": stream}))
    np.testing.assert_allclose(law.log_probs[0, -2, 1], 79 * np.log(1e-12), rtol=1e-9)
    np.testing.assert_allclose(law.to_numpy()[0, -1], [1e-12, 1e-12, 1 - 2e-12], rtol=1e-12)
    short = tunnel.configure(length=4).episodes(stream={"y": stream[:, -4:]})
    np.testing.assert_allclose(
        derive(tunnel.configure(length=4), "filtering").log_evidence(short), referee.log_evidence(short), rtol=1e-12
    )


def test_impossible_evidence_is_said_to_be() -> None:
    tunnel = CHAINS["certain"]
    oracle, seen = derive(tunnel, "filtering"), tunnel.episodes(stream={"y": np.array([[0, 1, 0, 0]])})
    assert np.isneginf(oracle.log_evidence(seen)).all()
    with pytest.warns(ImpossibleEvidenceWarning, match="before prediction 3"):
        law = oracle.predictive(seen)
    np.testing.assert_allclose(law.to_numpy()[0], [[1, 0], [0.7, 0.3], [0, 1], [0, 0]], rtol=1e-15)


@wind_tunnel(stream="y")
def degenerate(states=1, symbols=1, length=1):
    def step(state, _):
        numpyro.sample("y", dist.Categorical(jnp.ones((states, symbols))[state] / symbols))
        return numpyro.sample("state", dist.Categorical(jnp.ones((states, states))[state] / states)), None

    scan(step, 0, None, length=length)


@pytest.mark.parametrize(("states", "symbols", "length"), [(1, 1, 1), (2, 1, 3), (1, 2, 3)])
def test_degenerate_sizes(states, symbols, length) -> None:
    """One state, one symbol, one step: all certain, or as the single row says."""
    tunnel = degenerate.configure(states=states, symbols=symbols, length=length)
    oracle, episodes = derive(tunnel, "filtering"), tunnel.sample(jax.random.key(0), 2)
    np.testing.assert_allclose(oracle.predictive(episodes).to_numpy(), np.full((2, length, symbols), 1 / symbols))
    np.testing.assert_allclose(oracle.log_evidence(episodes), -length * np.log(symbols), atol=1e-15)


def test_many_steps_neither_underflow_nor_drift() -> None:
    """Ten thousand steps: rows sum to one, and the chain rule holds to rounding."""
    long = CHAINS["moved_by_its_symbols"].configure(length=10_000)
    episodes, oracle = long.sample(jax.random.key(0), 2), derive(long, "filtering")
    log_probs = np.asarray(oracle.predictive(episodes).log_probs)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, rtol=1e-14)
    said = np.take_along_axis(log_probs, np.asarray(episodes.stream["y"])[..., None], axis=-1)
    np.testing.assert_allclose(said.sum(axis=(1, 2)), oracle.log_evidence(episodes), rtol=1e-12)


def test_batches_of_episodes_say_the_same(monkeypatch) -> None:
    """Few episodes at a time, the last batch filled up, or all at once."""
    episodes = CHAINS["told"].sample(jax.random.key(4), 7)
    whole = derive(CHAINS["told"], "filtering").predictive(episodes).to_numpy()
    engine = derive(CHAINS["told"], "filtering").derived
    held = engine.knowledge.hypotheses * (engine.knowledge.numbers + engine.recursion.moves.numbers)
    monkeypatch.setattr(module, "_BATCH_NUMBERS", 3 * held)
    with jax.enable_x64(True):
        np.testing.assert_allclose(engine.predictive(episodes, "y", None).to_numpy(), whole, rtol=1e-14)


def test_one_compile_for_each_shape() -> None:
    engine = derive(CHAINS["certain"], "filtering").derived
    with jax.enable_x64(True):
        for seed in range(3):
            for visible in (None, band(4, 1)):
                engine.predictive(CHAINS["certain"].sample(jax.random.key(seed), 3), "y", visible)
        assert engine._law._cache_size() == 2
        engine.predictive(CHAINS["certain"].sample(jax.random.key(0), 4), "y", None)
        assert engine._law._cache_size() == 3


def test_what_has_no_finite_state_space_is_refused_with_the_reason() -> None:
    @wind_tunnel(stream="y", context="shift")
    def mixes(length=3):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))

        def step(carry, _):
            state = numpyro.sample("state", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Bernoulli(0.25 + 0.5 * state))
            return carry * shift + state, None

        scan(step, jnp.asarray(0.0), None, length=length)

    @wind_tunnel(stream="y")
    def never_closes(length=30):
        def step(total, _):
            total = 2.0 * total + numpyro.sample("state", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Bernoulli(1 / (1 + total)))
            return total, None

        scan(step, jnp.asarray(0.0), None, length=length)

    @wind_tunnel(stream="y")
    def continuous(length=3):
        def step(state, _):
            state = numpyro.sample("state", dist.Normal(state, 1.0))
            numpyro.sample("y", dist.Bernoulli(0.5))
            return state, None

        scan(step, jnp.asarray(0.0), None, length=length)

    @wind_tunnel(stream="y", context="clue")
    def gives_away(length=3):
        def step(state, _):
            state = numpyro.sample("state", dist.Bernoulli(jnp.array([0.2, 0.7])[state]))
            numpyro.sample("clue", dist.Bernoulli(jnp.array([0.2, 0.7])[state]))
            numpyro.sample("y", dist.Bernoulli(jnp.array([0.3, 0.9])[state]))
            return state, None

        scan(step, 0, None, length=length)

    @wind_tunnel(stream="y")
    def forgets(length=3):
        def step(last, _):
            numpyro.sample("noise", dist.Bernoulli(0.5))
            return numpyro.sample("y", dist.Bernoulli(0.25 + 0.5 * last)), None

        scan(step, 0, None, length=length)

    for tunnel, words in (
        (mixes, "context site 'shift'"),
        (never_closes, "closes, if ever"),
        (continuous, "latent site 'state'"),
        (gives_away, "context site 'clue'"),
        (forgets, "no latent drawn in the scan is carried"),
    ):
        with jax.enable_x64(True):
            answer = FilteringEngine.from_tunnel(tunnel)
        assert isinstance(answer, str) and words in answer, answer


def test_states_are_never_left_out_for_being_improbable() -> None:
    @wind_tunnel(stream="y")
    def rare(length=3):
        def step(state, _):
            numpyro.sample("y", dist.Bernoulli(jnp.array([0.1, 0.9])[state]))
            return numpyro.sample("state", dist.Categorical(jnp.array([[1 - 1e-30, 1e-30], [0.5, 0.5]])[state])), None

        scan(step, 0, None, length=length)

    assert find_state_space(rare).size == 2
