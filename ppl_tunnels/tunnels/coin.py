r"""A coin whose bias lies on a grid.

    i ~ Uniform{0, …, n-1},    x_t | i ~ Bernoulli(i / (n - 1)),    t = 1 … T.

Primitive: **accumulation**. The flips are exchangeable, so the posterior depends on the counts alone; a model has to add up
evidence and nothing else. With eleven points it is the urn problem with replacement of MacKay (2003, section 2.2). As the
grid grows finer, the predictive tends to Laplace's (heads + 1) / (flips + 2).

The grid keeps the end points, so that evidence can rule hypotheses out altogether.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ppl_tunnels.tunnel import wind_tunnel


@wind_tunnel(
    stream="flip",
    primitives={"accumulation"},
    small=({"length": 4, "points": 3},),
    presets={"paper": {"points": 11, "length": 10}, "small": {"points": 101, "length": 20}},
)
def coin(length=20, points=101):
    """`points` equally likely biases from 0 to 1; `length` flips; predicts the next flip."""
    index = numpyro.sample("bias", dist.Categorical(jnp.ones(points) / points))
    heads = jnp.linspace(0.0, 1.0, points)[index]
    with numpyro.plate("flips", length):
        numpyro.sample("flip", dist.Categorical(jnp.stack([1 - heads, heads])))
