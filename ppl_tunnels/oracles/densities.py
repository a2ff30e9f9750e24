"""Log-probabilities where NumPyro's own are not exact: hard zeros stay -inf, and no epsilon is added anywhere.

NumPyro clamps Bernoulli, binomial and geometric probabilities away from 0 and 1 (`Bernoulli(0).log_prob(1)` is finite), and
gathers outside a Categorical's range clamp silently. An oracle must say -inf in both cases.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlog1py, xlogy


def exact_log_prob(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    """Log-probability in nats, -inf outside the support, broadcast over the batch shapes of law and value.

    Example:
        >>> import jax.numpy as jnp, numpyro.distributions as dist
        >>> print(exact_log_prob(dist.Bernoulli(0.0), jnp.array(1)))
        -inf
    """
    if isinstance(fn, dist.Independent):
        base = exact_log_prob(fn.base_dist, value)
        return jnp.sum(base, axis=tuple(range(-fn.reinterpreted_batch_ndims, 0))) if base.ndim else base
    if isinstance(fn, dist.ExpandedDistribution):
        base = exact_log_prob(fn.base_dist, value)
        return jnp.broadcast_to(base, jnp.broadcast_shapes(jnp.shape(base), fn.batch_shape))
    value = jnp.asarray(value)
    log_prob = _log_prob(fn, value)
    if getattr(fn.support, "is_discrete", False):
        inside = fn.support(value)
        log_prob = jnp.where(inside, log_prob, -jnp.inf)
    return log_prob


# Rounding can leave a probability this far outside [0, 1]: XLA turns i / 100 into i * .01, and 1 - 100 * .01 is -2e-16.
_ROUNDING = 1e-12


def _in_unit_interval(probs: jax.Array) -> jax.Array:
    """Probabilities that left [0, 1] by rounding are brought back; any other is no probability and becomes NaN."""
    probs = jnp.asarray(probs)
    lawful = (probs >= -_ROUNDING) & (probs <= 1 + _ROUNDING)
    return jnp.where(lawful, jnp.clip(probs, 0.0, 1.0), jnp.nan)


def _log_prob(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    if isinstance(fn, dist.BernoulliProbs):
        probs = _in_unit_interval(fn.probs)
        return jnp.where(value == 1, jnp.log(probs), jnp.log1p(-probs))
    if isinstance(fn, dist.BernoulliLogits):
        return jax.nn.log_sigmoid(jnp.where(value == 1, fn.logits, -jnp.asarray(fn.logits)))
    if isinstance(fn, dist.CategoricalProbs):
        probs = jnp.asarray(fn.probs)
        batch = jnp.broadcast_shapes(value.shape, probs.shape[:-1])
        index = jnp.clip(jnp.broadcast_to(value, batch), 0, probs.shape[-1] - 1)[..., None]
        chosen = jnp.take_along_axis(jnp.broadcast_to(probs, (*batch, probs.shape[-1])), index, axis=-1)[..., 0]
        return jnp.log(_in_unit_interval(chosen / jnp.sum(probs, axis=-1)))
    if isinstance(fn, dist.BinomialProbs):
        n = jnp.asarray(fn.total_count)
        choices = gammaln(n + 1.0) - gammaln(value + 1.0) - gammaln(n - value + 1.0)
        probs = _in_unit_interval(fn.probs)
        return choices + xlogy(value, probs) + xlog1py(n - value, -probs)
    if isinstance(fn, dist.GeometricProbs):
        probs = _in_unit_interval(fn.probs)
        return xlog1py(value, -probs) + jnp.log(probs)
    return fn.log_prob(value)
