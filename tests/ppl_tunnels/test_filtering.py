"""Filtering against enumeration of the same program, and what has no finite state space."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.filtering import FilteringEngine
from ppl_tunnels.oracles.oracle import Oracle
from ppl_tunnels.oracles.state_space import find_state_space

STAY = jnp.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])


@wind_tunnel(stream="y")
def remembers_its_symbol(length=4):
    """Hidden state, previous symbol and a counter in one carry; a forbidden transition and a certain emission."""
    emit = jnp.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]], [[1.0, 0.0], [0.4, 0.6]]])

    def step(carry, _):
        state, previous, count = carry
        state = numpyro.sample("state", dist.Categorical(STAY[state]))
        symbol = numpyro.sample("y", dist.Categorical(emit[state, previous]))
        return (state, symbol, count + 1), None

    scan(step, (numpyro.sample("start", dist.Categorical(jnp.array([0.2, 0.5, 0.3]))), 0, 0), None, length=length)


@wind_tunnel(stream=("a", "y"), context="rows")
def parameters_from_the_context(length=3):
    """Transition rows revealed per episode, a static latent beside the chain, step inputs, two stream sites."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    rate = numpyro.sample("rate", dist.Categorical(jnp.array([0.3, 0.7])))

    def step(carry, number):
        state, total = carry
        a = numpyro.sample("a", dist.Bernoulli(0.3 + 0.2 * rate))
        state = numpyro.sample("state", dist.Categorical(rows[state]))
        y = numpyro.sample("y", dist.Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8]])[(state + a + number) % 2]))
        return (state, total + y), None

    start = numpyro.sample("start", dist.Categorical(jnp.array([0.2, 0.8])))
    scan(step, (start, 0), jnp.arange(length), length=length)


@wind_tunnel(stream="y")
def carries_a_value(length=4):
    """The carry holds a function of the state, not the state: the trap of reading carries by their type."""
    rates = jnp.array([0.1, 0.5, 0.9])

    def step(rate, _):
        numpyro.sample("y", dist.Bernoulli(rate))
        return rates[numpyro.sample("state", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))], None

    scan(step, jnp.asarray(0.5), None, length=length)


@wind_tunnel(stream="y", predict="state")
def umbrella(length=2):
    """The umbrella world, transition before the first observation."""

    def step(state, _):
        state = numpyro.sample("state", dist.Categorical(jnp.array([[0.7, 0.3], [0.3, 0.7]])[state]))
        numpyro.sample("y", dist.Bernoulli(jnp.array([0.9, 0.2])[state]))
        return state, None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.array([0.5, 0.5]))), None, length=length)


def filtering(tunnel) -> Oracle:
    with jax.enable_x64(True):
        engine = FilteringEngine.from_tunnel(tunnel)
    assert isinstance(engine, FilteringEngine), engine
    return Oracle(tunnel=tunnel, derived=engine)


@pytest.mark.parametrize(
    ("tunnel", "states"), [(remembers_its_symbol, 3), (parameters_from_the_context, 2), (carries_a_value, 3)]
)
def test_equals_enumeration(tunnel, states) -> None:
    """Would catch a transition off by one, evidence of the wrong step, and a carry split wrongly."""
    oracle, referee = filtering(tunnel), derive(tunnel, "enumeration")
    assert oracle.derived.space.size == states
    episodes = tunnel.sample(jax.random.key(1), 6)
    mask = np.tril(np.random.default_rng(0).random((tunnel.length,) * 2) < 0.5, -1)
    for visible in (None, mask):
        for site in (tunnel.predict, "state"):
            said, right = (each.predictive(episodes, site, visible).to_numpy() for each in (oracle, referee))
            np.testing.assert_allclose(said, right, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(oracle.log_evidence(episodes), referee.log_evidence(episodes), rtol=1e-12)


def test_umbrella_world() -> None:
    """Russell and Norvig: the filter .818182, .883357 and the evidence .3515."""
    oracle = filtering(umbrella)
    seen = umbrella.episodes(stream={"y": np.array([[1, 1]])})
    np.testing.assert_allclose(oracle.predictive(seen).to_numpy()[0, :, 0], [0.818182, 0.883357], atol=5e-7)
    np.testing.assert_allclose(np.exp(oracle.log_evidence(seen)), [0.3515], atol=1e-12)
    start = oracle.posterior(seen, "start").to_numpy()[0]
    np.testing.assert_allclose(start[0], [0.5, 0.5])
    assert start[1, 0] > 0.5


def test_many_steps_neither_underflow_nor_drift() -> None:
    long = umbrella.configure(length=2_000)
    episodes = long.sample(jax.random.key(0), 2)
    law = filtering(long).predictive(episodes).to_numpy()
    np.testing.assert_allclose(law.sum(axis=-1), 1.0, rtol=1e-12)
    assert np.isfinite(filtering(long).log_evidence(episodes)).all()


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

    for tunnel, words in (
        (mixes, "context site 'shift'"),
        (never_closes, "closes, if ever"),
        (continuous, "latent site 'state'"),
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

    with jax.enable_x64(True):
        assert find_state_space(rare).size == 2
