"""Small programs of every kind that certification must take, or refuse in a sentence."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.tunnel import wind_tunnel


def _biased_flips(length, grid, name="flip"):
    index = numpyro.sample("bias", dist.Categorical(jnp.ones(len(grid)) / len(grid)))
    heads = jnp.array(grid)[index]
    with numpyro.plate("flips", length):
        return numpyro.sample(name, dist.Categorical(jnp.stack([1 - heads, heads])))


@wind_tunnel(stream="flip")
def dull(length=3):
    """Two coins too alike to tell apart in a few flips: nothing is demanded of a model."""
    _biased_flips(length, [0.47, 0.53])


@wind_tunnel(stream="flip")
def one_symbol(length=1):
    """One step, and what comes is certain."""
    numpyro.sample("bias", dist.Categorical(jnp.ones(2) / 2))
    with numpyro.plate("flips", length):
        numpyro.sample("flip", dist.Categorical(jnp.ones(1)))


@wind_tunnel(stream="seen", predict="weather")
def umbrella(length=4):
    """A latent of every step, predicted from what is seen up to its step."""

    def day(before, _):
        weather = numpyro.sample("weather", dist.Categorical(jnp.array([[0.95, 0.05], [0.05, 0.95]])[before]))
        numpyro.sample("seen", dist.Categorical(jnp.array([[0.7, 0.3], [0.2, 0.8]])[weather]))
        return weather, None

    scan(day, numpyro.sample("first", dist.Categorical(jnp.array([0.5, 0.5]))), None, length=length)


@wind_tunnel(stream="flip", context="kind", predict="coin")
def told(length=4):
    """The context says which of two bags the coin is from; a static latent, which of its coins, is predicted after every flip."""
    kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.3, 0.7])))
    index = numpyro.sample("coin", dist.Categorical(jnp.ones(2) / 2))
    heads = jnp.array([[0.1, 0.6], [0.4, 0.9]])[kind, index]
    with numpyro.plate("flips", length):
        numpyro.sample("flip", dist.Categorical(jnp.stack([1 - heads, heads])))


@wind_tunnel(stream="move")
def walk(length=6):
    """Moves of -1, 0 or 2: a support that is no 0 … K-1."""
    index = numpyro.sample("drift", dist.Categorical(jnp.ones(2) / 2))
    moves = jnp.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])[index]
    with numpyro.plate("moves", length):
        numpyro.sample("move", Finite(jnp.log(moves), np.array([-1, 0, 2])))


@wind_tunnel(stream="flip", scored=lambda length: np.arange(length) % 2 == 1)
def every_other(length=4):
    """Only steps 2 and 4 count."""
    _biased_flips(length, [0.0, 0.5, 1.0])


@wind_tunnel(stream="flip", predict="pair")
def two_at_once(length=2):
    """The predicted latent is two draws: refused."""
    with numpyro.plate("two", 2):
        pair = numpyro.sample("pair", dist.Bernoulli(0.5))
    with numpyro.plate("flips", length):
        numpyro.sample("flip", dist.Bernoulli(0.1 + 0.4 * pair.sum()))


@wind_tunnel(stream="height")
def heights(length=2):
    """The predicted site is continuous: refused."""
    tall = numpyro.sample("tall", dist.Bernoulli(0.5))
    with numpyro.plate("people", length):
        numpyro.sample("height", dist.Normal(1.0 * tall, 1.0))


@wind_tunnel(
    stream="flip", closed_form=lambda episodes, visible, *, length: jnp.full((len(episodes), length, 2), -jnp.log(2.0))
)
def wrongly_solved(length=3):
    """Its closed form is no posterior."""
    _biased_flips(length, [0.1, 0.9])
