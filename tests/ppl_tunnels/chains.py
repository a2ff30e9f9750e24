"""Hidden Markov programs of many shapes; each docstring says what is special."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel

STAY = jnp.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])


@wind_tunnel(stream="y")
def second_order(length=4):
    """The next state depends on the last two, and the symbol on both."""
    rows = jnp.array([[[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.0, 1.0]]])

    def step(carry, _):
        older, newer = carry
        numpyro.sample("y", dist.Bernoulli(jnp.array([[0.1, 0.6], [0.3, 0.9]])[older, newer]))
        return (newer, numpyro.sample("state", dist.Categorical(rows[older, newer]))), None

    scan(step, (numpyro.sample("start", dist.Bernoulli(0.3)), 0), None, length=length)


@wind_tunnel(stream="y")
def phase(length=4):
    """A phase counter in the carry switches the transition, and a state that leaves through two doors."""
    rows = jnp.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [1.0, 0.0]]])

    def step(carry, _):
        state, count = carry
        state = numpyro.sample("state", dist.Categorical(rows[count % 2, state]))
        flip = numpyro.sample("flip", dist.Bernoulli(0.2 + 0.1 * count))
        numpyro.sample("y", dist.Bernoulli(jnp.array([0.2, 0.7])[(state + flip) % 2]))
        return (jnp.where(count % 2 == 0, state, (state + flip) % 2), count + 1), None

    scan(step, (0, 0), None, length=length)


@wind_tunnel(stream="y")
def moved_by_its_symbols(length=4):
    """An edge-emitting machine: the symbol decides where the state goes."""

    def step(state, _):
        symbol = numpyro.sample("y", dist.Categorical(STAY[state]))
        noise = numpyro.sample("noise", dist.Bernoulli(jnp.array([0.1, 0.5, 0.8])[symbol]))
        return (state + symbol + noise) % 3, None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.array([0.2, 0.5, 0.3]))), None, length=length)


@wind_tunnel(stream=("key", "value"), predict="value")
def remembers(length=4):
    """An observed memory that never closes, read by the stream's keys, beside a hidden state."""

    def step(carry, _):
        memory, state = carry
        state = numpyro.sample("state", dist.Categorical(jnp.array([[0.9, 0.1], [0.3, 0.7]])[state]))
        key = numpyro.sample("key", dist.Categorical(jnp.array([0.25, 0.75])))
        stored = memory[key]
        value = numpyro.sample(
            "value", dist.Categorical(jax_one_hot(stored) * 0.6 + jnp.array([0.1, 0.1, 0.2]) * (1 + state))
        )
        return (memory.at[key].set((stored + value) % 3 + 0 * memory.sum()), state), None

    scan(step, (jnp.zeros(2, int), 0), None, length=length)


def jax_one_hot(index):
    return (jnp.arange(3) == index) * 1.0


@wind_tunnel(stream="y", context=("rows", "emit", "origin"))
def revealed(length=4):
    """Parameters and the first state from the context, different in every episode."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    emit = numpyro.sample("emit", dist.Beta(1.0, 1.0).expand([2]).to_event(1))
    origin = numpyro.sample("origin", dist.Bernoulli(0.4))

    def step(state, _):
        numpyro.sample("y", dist.Bernoulli(emit[state]))
        return numpyro.sample("state", dist.Categorical(rows[state])), None

    scan(step, origin, None, length=length)


@wind_tunnel(stream="y", context=("hint", "cue"))
def told(length=3):
    """A context that tells on a static latent, one within the scan, inputs that move the state, and a static latent beside."""
    kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    numpyro.sample("hint", dist.Categorical(STAY[kind]))
    start = numpyro.sample("start", dist.Bernoulli(jnp.array([0.2, 0.6, 0.9])[kind]))

    def step(state, turn):
        cue = numpyro.sample("cue", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Categorical(STAY[(state + kind + cue) % 3]))
        return jnp.where(turn == 1, cue, 1) * numpyro.sample(
            "state", dist.Bernoulli(jnp.array([0.3, 0.8])[state])
        ), None

    scan(step, start, jnp.arange(length) % 2, length=length)


@wind_tunnel(stream="y")
def runs_out(length=3):
    """A pile that is drawn from by a hidden hand: states that are ruled out hold less than nothing and state no law."""

    def step(left, _):
        hand = numpyro.sample("hand", dist.Bernoulli(0.5))
        y = numpyro.sample("y", dist.Categorical(jnp.stack([left, 2 - left]) / 2))
        return left - (1 - y) * hand + y * hand, None

    scan(step, numpyro.sample("pile", dist.Categorical(jnp.ones(3) / 3)) * 1.0, None, length=length)


@wind_tunnel(stream=("pair", "last"))
def pairs(length=3):
    """Two draws of a plate at every step, of latents and of the stream."""

    def step(state, _):
        with numpyro.plate("two", 2):
            state = numpyro.sample("state", dist.Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8]])[state]))
            numpyro.sample("pair", dist.Categorical(jnp.array([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])[state]))
        numpyro.sample("last", dist.Bernoulli(0.2 + 0.3 * state.sum()))
        return state, None

    scan(step, jnp.array([0, 1]), None, length=length)


@wind_tunnel(stream=("label", "y"), predict="label")
def measured(length=3):
    """A continuous stream site beside a finite one: its law is a mixture of the program's own."""
    scale = numpyro.sample("scale", dist.Categorical(jnp.array([0.3, 0.7]))) + 0.5

    def step(state, _):
        state = numpyro.sample("state", dist.Categorical(STAY[state]))
        label = numpyro.sample("label", dist.Bernoulli(jnp.array([0.1, 0.5, 0.8])[state]))
        numpyro.sample("y", dist.Normal(jnp.array([-1.0, 0.0, 2.0])[state] + label, scale))
        return state, None

    scan(step, 0, None, length=length)


@wind_tunnel(stream="y")
def certain(length=4):
    """Absorbing and deterministic: a door that shuts for good, seen through a clear window."""

    def step(state, _):
        numpyro.sample("y", dist.Categorical(jnp.array([[1.0, 0.0], [0.0, 1.0]])[state]))
        return numpyro.sample("state", dist.Categorical(jnp.array([[0.7, 0.3], [0.0, 1.0]])[state])), None

    scan(step, 0, None, length=length)
