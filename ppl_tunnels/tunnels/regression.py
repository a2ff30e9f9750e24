r"""Linear regression with unknown weights: points are revealed one by one, and each y is predicted from its x.

    w ~ N(0, s² I_d),    x_t ~ N(0, I_d),    y_t = w·x_t + e_t,    e_t ~ N(0, s² q²),    t = 1 … T.

With `known_noise`, s = 1 and q is the noise's standard deviation: the predictive law is normal, and its entropy depends on the
x's alone. Otherwise s² ~ InverseGamma(shape, scale) is unknown as well (q then is the noise in units of s): the predictive law
is Student's t, and its entropy depends on the y's, too, so an agent has to learn how noisy this episode is.

The model sees x_1 y_1 … x_t and predicts y_t; `predicting("weights")` asks for the posterior of the weights instead.
Primitive: **accumulation** of the moments Σ x x' and Σ x y.

Source: Gelman et al., Bayesian Data Analysis (2013), sections 14.2 and 14.8; as a task in context, Garg et al. (2022).
"The Bayesian Geometry of Transformer Attention" (arXiv 2512.22471) says "a Gaussian prior over linear weights" and nothing
else, so sizes and noise are ours.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ppl_tunnels.tunnel import wind_tunnel


@wind_tunnel(
    stream=("x", "y"),
    primitives={"accumulation"},
    small=({"dimensions": 1, "length": 3}, {"dimensions": 1, "length": 3, "known_noise": False}),
    presets={"paper": {"dimensions": 4, "length": 20}, "small": {"dimensions": 2, "length": 12}},
)
def regression(dimensions=2, length=12, noise=0.5, known_noise=True, shape=3.0, scale=2.0):
    """`length` points in `dimensions` dimensions; predicts each y from its x and the points before it."""
    if dimensions < 1 or not noise > 0:
        raise ValueError(f"dimensions={dimensions} and noise={noise} were given; expected at least 1, and above 0")
    if not known_noise and not (shape > 0 and scale > 0):
        raise ValueError(f"shape={shape} and scale={scale} of the inverse gamma prior were given; expected above 0")
    variance = 1.0 if known_noise else numpyro.sample("variance", dist.InverseGamma(shape, scale))
    unit = jnp.sqrt(variance)
    weights = numpyro.sample("weights", dist.Normal(0.0, unit).expand([dimensions]).to_event(1))
    with numpyro.plate("points", length):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dimensions]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ weights, noise * unit))
