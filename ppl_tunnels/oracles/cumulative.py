"""Cumulative distribution functions where NumPyro's own are inaccurate or missing."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.incomplete import incomplete_beta, incomplete_gamma
from ppl_tunnels.oracles.laws import Finite


def exact_cdf(law: dist.Distribution, value) -> jax.Array:
    """P(X ≤ value), broadcast over the batch shapes of law and value; by counting for a finite law of numbers.

    Raises:
        NotImplementedError: the law has none.

    Example:
        >>> import jax.numpy as jnp
        >>> print(exact_cdf(dist.Poisson(2.0), jnp.array([-1, 0, 1])).round(6))  # exp(-2), 3 exp(-2)
        [0.       0.135335 0.406006]
    """
    value = jnp.asarray(value)
    if isinstance(law, ExactLaw):
        return law.cdf(value)
    if isinstance(law, Finite):
        if law.event_shape:
            raise NotImplementedError(f"values of shape {law.event_shape} have no cumulative distribution function")
        return jnp.sum(jnp.where(law.values <= value[..., None], law.probs, 0.0), axis=-1)
    if isinstance(law, dist.Poisson):
        count = jnp.floor(jnp.maximum(value, 0.0))
        return jnp.where(value < 0, 0.0, 1 - incomplete_gamma(count + 1, law.rate))
    if isinstance(law, dist.Gamma):
        return incomplete_gamma(law.concentration, law.rate * jnp.maximum(value, 0.0))
    if isinstance(law, dist.Beta):
        return incomplete_beta(law.concentration1, law.concentration0, jnp.clip(value, 0.0, 1.0))
    return jnp.asarray(law.cdf(value))
