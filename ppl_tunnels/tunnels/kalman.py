r"""A drifting level behind noisy readings: the local level model, whose exact posterior is the Kalman filter.

    z_1 ~ N(0, spread²),    z_t | z_{t-1} ~ N(decay · z_{t-1}, drift²),    y_t | z_t ~ N(z_t, noise²),    t = 1 … T.

The model sees the readings before y_t and predicts it; `predicting("level")` asks for the filtered level instead. Means depend
on the readings, variances on the step alone. Primitives: **transport** of a Gaussian belief and **accumulation**.

Source: Kalman (1960); Durbin and Koopman (2012), chapter 2, with decay = 1. The ratio drift / noise says how far back readings
matter; at the defaults the filter's gain tends to .39: of the level's estimate, .39 is the last reading and .63 the last two.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel


@wind_tunnel(
    stream="reading",
    primitives={"accumulation", "transport"},
    small=({"length": 3}, {"length": 3, "decay": 0.5}),
    presets={"paper": {"length": 100}, "small": {"length": 20}},
)
def kalman(length=20, decay=1.0, drift=0.5, noise=1.0, spread=2.0):
    """`length` noisy readings of a drifting level; predicts the next reading."""
    if not min(drift, noise, spread) > 0:
        raise ValueError(
            f"drift={drift}, noise={noise}, spread={spread} were given; expected standard deviations above 0"
        )

    def step(before, first):
        mean, width = jnp.where(first, 0.0, decay * before), jnp.where(first, spread, drift)
        level = numpyro.sample("level", dist.Normal(mean, width))
        numpyro.sample("reading", dist.Normal(level, noise))
        return level, None

    scan(step, jnp.array(0.0), jnp.arange(length) == 0)
