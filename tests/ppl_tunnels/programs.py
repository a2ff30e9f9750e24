"""Small programs of many shapes, loaded by the tests as "programs.py:name"; each docstring says what is special."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel


@wind_tunnel(stream="face", primitives={"transport"})
def casino(length=4):
    """Emit, then move: a static start and a latent of every step, which is the state of the next one."""
    transition = jnp.array([[0.95, 0.05], [0.10, 0.90]])
    faces = jnp.array([[1 / 6] * 6, [0.1] * 5 + [0.5]])

    def roll(state, _):
        face = numpyro.sample("face", dist.Categorical(faces[state]))
        return numpyro.sample("state", dist.Categorical(transition[state])), face

    start = numpyro.sample("start", dist.Categorical(jnp.array([0.5, 0.5])))
    scan(roll, start, None, length=length)


@wind_tunnel(stream="umbrella", predict="rain")
def umbrella(length=3):
    """Move, then emit: the predicted site is a latent of every step (Russell & Norvig)."""

    def day(rain, _):
        rain = numpyro.sample("rain", dist.Bernoulli(jnp.array([0.3, 0.7])[rain]))
        numpyro.sample("umbrella", dist.Bernoulli(jnp.array([0.2, 0.9])[rain]))
        return rain, None

    scan(day, numpyro.sample("yesterday", dist.Bernoulli(0.5)), None, length=length)


@wind_tunnel(stream=("act", "echo"), predict="echo")
def echo(length=3):
    """Autoregressive, with two stream sites a step, a third value for the first, and hard zeros."""
    habit = numpyro.sample("habit", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    acts = jnp.array([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])

    def step(last, _):
        act = numpyro.sample("act", dist.Categorical(acts[(habit + last) % 3]))
        truth = jnp.where(habit == 0, 1.0, 0.75)
        echo = numpyro.sample("echo", dist.Bernoulli(jnp.where(act + last > 1, truth, 1 - truth)))
        return echo, None

    scan(step, jnp.array(0), None, length=length)


@wind_tunnel(stream=("pixels", "label"), context="hint", step="time")
def panel(length=2):
    """Nested plates: static latents in a plate, a context that tells on them, two pixels at every step."""
    with numpyro.plate("row", 2, dim=-1):
        kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.7, 0.3])))
    numpyro.sample("hint", dist.Categorical(jnp.array([[0.5, 0.5, 0.0], [0.1, 0.4, 0.5]])[kind[0]]))
    with numpyro.plate("time", length, dim=-1):
        mood = numpyro.sample("mood", dist.Bernoulli(0.4))
        with numpyro.plate("row", 2, dim=-2):
            lit = jnp.array([[0.2, 0.9], [0.6, 0.5]])[kind[:, None], mood[None, :]]
            numpyro.sample("pixels", dist.Bernoulli(lit))
        numpyro.sample("label", dist.Categorical(jnp.array([[0.8, 0.2], [0.3, 0.7]])[mood ^ kind[0]]))


@wind_tunnel(stream="answers")
def survey(length=2):
    """Vectors of independent elements, expanded laws and counts, as latents and as the predicted site."""
    traits = numpyro.sample("traits", dist.Bernoulli(0.3).expand([2]).to_event(1))
    count = numpyro.sample("count", dist.Binomial(2, jnp.array(0.6)))
    yes = (0.2 + 0.5 * traits) * (0.5 + 0.25 * count)
    with numpyro.plate("person", length):
        numpyro.sample("answers", dist.Bernoulli(yes).to_event(1))


@wind_tunnel(stream="symbol", context="cue")
def driven(length=3):
    """A context revealed at every step, and a latent that the stream feeds into."""

    def step(last, _):
        cue = numpyro.sample("cue", dist.Bernoulli(0.5))
        gear = numpyro.sample("gear", dist.Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8]])[last]))
        symbol = numpyro.sample("symbol", dist.Categorical(jnp.array([[0.7, 0.3], [0.4, 0.6]])[gear ^ cue ^ bias]))
        return symbol, None

    bias = numpyro.sample("bias", dist.Bernoulli(0.25))
    scan(step, jnp.array(0), None, length=length)


@wind_tunnel(stream="black")
def urn(balls=3, length=3):
    """Draws without replacement: a hypothesis that is ruled out has minus one balls, and states no law."""
    blacks = numpyro.sample("blacks", dist.Categorical(jnp.ones(balls + 1) / (balls + 1)))

    def draw(left, _):
        white, black = left
        drawn = numpyro.sample("black", dist.Categorical(jnp.stack([white, black]) / (white + black)))
        return (white - (1 - drawn), black - drawn), None

    scan(draw, (balls - blacks * 1.0, blacks * 1.0), None, length=length)


@wind_tunnel(stream="y", context="x", predict="slope")
def line(length=3):
    """A continuous stream, regressors as context of every step, and a latent on a grid."""
    slope = numpyro.sample("slope", dist.Categorical(jnp.array([0.2, 0.3, 0.5]))) - 1.0
    with numpyro.plate("point", length):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * x, 0.5))


@wind_tunnel(stream=("rain", "wet"), predict="sprinkler")
def sprinkler():
    """No step axis: one step, and a stream site upstream of a latent's other child (Pearl)."""
    cloudy = numpyro.sample("cloudy", dist.Bernoulli(0.5))
    on = numpyro.sample("sprinkler", dist.Bernoulli(jnp.array([0.5, 0.1])[cloudy]))
    rain = numpyro.sample("rain", dist.Bernoulli(jnp.array([0.2, 0.8])[cloudy]))
    numpyro.sample("wet", dist.Bernoulli(jnp.array([[0.0, 0.9], [0.9, 0.99]])[on, rain]))


@wind_tunnel(stream="letter")
def chain(length=3):
    """No latent at all: a Markov chain with a forbidden transition."""

    def step(last, _):
        return numpyro.sample(
            "letter", dist.Categorical(jnp.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]])[last])
        ), None

    scan(step, jnp.array(0), None, length=length)
