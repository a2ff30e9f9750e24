"""Log-probabilities where NumPyro's own are not exact: hard zeros stay -inf, and no epsilon is added anywhere.

NumPyro clamps Bernoulli, binomial and geometric probabilities away from 0 and 1 (`Bernoulli(0).log_prob(1)` is finite),
gathers outside a Categorical's range clamp silently, and no law's `log_prob` looks whether the value is in the support
(`Uniform(0, 1).log_prob(2)` is 0). An oracle must say -inf in all these cases. At the edge of their supports the densities of
Dirichlet and gamma laws are NaN where they should be limits, and `betaln` errs by 3e-7 in double precision once an argument
reaches 8: both are written out here.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlog1py, xlogy
from numpyro.distributions import constraints

# Laws with a density at zero, which NumPyro's description of their support leaves out.
_CLOSED_AT_ZERO = (dist.Gamma, dist.Exponential, dist.HalfNormal, dist.HalfCauchy)


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
    if fn.support is None or constraints.is_dependent(fn.support):
        return log_prob
    inside = value >= 0 if isinstance(fn, _CLOSED_AT_ZERO) else fn.support(value)
    return jnp.where(inside, log_prob, -jnp.inf)


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
        probs = _in_unit_interval(fn.probs)
        return _log_choices(n, value) + xlogy(value, probs) + xlog1py(n - value, -probs)
    if isinstance(fn, dist.BinomialLogits):
        n, logits = jnp.asarray(fn.total_count), jnp.asarray(fn.logits)
        return (
            _log_choices(n, value)
            + _times(value, jax.nn.log_sigmoid(logits))
            + _times(n - value, jax.nn.log_sigmoid(-logits))
        )
    if isinstance(fn, dist.BetaBinomial):
        n, heads, tails = map(jnp.asarray, (fn.total_count, fn.concentration1, fn.concentration0))
        return _log_choices(n, value) + _log_beta(heads + value, tails + n - value) - _log_beta(heads, tails)
    if isinstance(fn, dist.GeometricProbs):
        probs = _in_unit_interval(fn.probs)
        return xlog1py(value, -probs) + jnp.log(probs)
    if isinstance(fn, dist.GammaPoisson):  # the negative binomials, too
        shape, rate = jnp.asarray(fn.concentration), jnp.asarray(fn.rate)
        choices = -_log_beta(shape, value + 1.0) - jnp.log(shape + value)
        return choices - shape * jnp.log1p(1 / rate) - value * jnp.log1p(rate)
    if isinstance(fn, dist.Beta):
        heads, tails = jnp.asarray(fn.concentration1), jnp.asarray(fn.concentration0)
        return xlogy(heads - 1, value) + xlog1py(tails - 1, -value) - _log_beta(heads, tails)
    if isinstance(fn, dist.Dirichlet):
        weights = jnp.asarray(fn.concentration)
        normaliser = gammaln(jnp.sum(weights, axis=-1)) - jnp.sum(gammaln(weights), axis=-1)
        return jnp.sum(xlogy(weights - 1, value), axis=-1) + normaliser
    if isinstance(fn, dist.Gamma):
        shape, rate = jnp.asarray(fn.concentration), jnp.asarray(fn.rate)
        return shape * jnp.log(rate) + xlogy(shape - 1, value) - rate * value - gammaln(shape)
    return jnp.asarray(fn.log_prob(value))


def _times(count: jax.Array, log_prob: jax.Array) -> jax.Array:
    """0 x -inf is 0: what never happened cannot have been impossible."""
    return jnp.where(count == 0, 0.0, count * jnp.where(count == 0, 0.0, log_prob))


def _log_choices(n: jax.Array, k: jax.Array) -> jax.Array:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def _log_beta(a: jax.Array, b: jax.Array) -> jax.Array:
    return gammaln(a) + gammaln(b) - gammaln(a + b)
