r"""An urn of black and white balls in unknown proportion, drawn with or without putting them back.

    u ~ Uniform{0, …, n}  black balls among n,
    x_t | u ~ Bernoulli(u / n),                                        with replacement,
    x_t | u, x_<t ~ Bernoulli((u - Σ x_<t) / (n - t + 1)),             without,    t = 1 … T.

Primitive: **accumulation** of a count. Draws are exchangeable either way. With replacement and n = 10 it is the eleven urns of
MacKay (2003), section 2.2; without, the predictive law is Laplace's (black + 1) / (drawn + 2) whatever n (his rule of
succession in a finite population), until the urn is empty.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel


@wind_tunnel(
    stream="black",
    primitives={"accumulation"},
    small=({"balls": 3, "length": 3}, {"balls": 3, "length": 3, "replace": False}),
    presets={"paper": {"balls": 10, "length": 10}, "small": {"balls": 10, "length": 10}},
)
def urn(balls=10, length=10, replace=True):
    """`length` draws from an urn of `balls` balls; predicts whether the next one is black."""
    if length > balls and not replace:
        raise ValueError(f"length={length} draws need as many balls, but balls={balls}; use replace=True or more balls")
    content = numpyro.sample("content", dist.Categorical(jnp.ones(balls + 1) / (balls + 1)))

    def draw(taken, step):
        chance = content / balls if replace else jnp.clip((content - taken) / (balls - step), 0, 1)
        black = numpyro.sample("black", dist.Categorical(jnp.stack([1 - chance, chance])))
        return taken + black, None

    scan(draw, jnp.array(0), jnp.arange(length))
