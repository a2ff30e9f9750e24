"""Log-probabilities where NumPyro's own are not exact: hard zeros stay -inf, and no epsilon is added anywhere.

NumPyro clamps Bernoulli, binomial and geometric probabilities away from 0 and 1 (`Bernoulli(0).log_prob(1)` is finite),
gathers outside a Categorical's range clamp silently, and no law's `log_prob` looks whether the value is in the support
(`Uniform(0, 1).log_prob(2)` is 0). An oracle must say -inf in all these cases. At the edge of their supports the densities of
Dirichlet and gamma laws are NaN where they should be limits, `betaln` errs by 3e-7 in double precision once an argument
reaches 8, and differences of log-gammas lose seven digits at parameters of 1e6: `continuous_densities` and
`count_densities` have the formulas that are used instead.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import xlog1py
from numpyro.distributions import constraints

from ppl_tunnels.oracles import continuous_densities as continuous
from ppl_tunnels.oracles import count_densities as counts
from ppl_tunnels.oracles.change_of_variables import transformed_log_prob
from ppl_tunnels.oracles.exact_law import ExactLaw

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
    if isinstance(fn, ExactLaw):
        return fn.log_prob(value)
    if type(fn).log_prob is dist.TransformedDistribution.log_prob:
        return transformed_log_prob(fn, value, exact_log_prob)
    log_prob = unchecked_log_prob(fn, value)
    if fn.support is None or constraints.is_dependent(fn.support):
        return log_prob
    return jnp.where(_inside(fn, value), log_prob, -jnp.inf)


def _inside(fn: Any, value: jax.Array) -> jax.Array:
    if isinstance(fn, _CLOSED_AT_ZERO):
        return value >= 0
    inside = fn.support(value)
    if isinstance(fn, dist.MultinomialProbs | dist.MultinomialLogits | dist.DirichletMultinomial):
        inside = inside & jnp.all(value == jnp.round(value), axis=-1)
    return inside


def unchecked_log_prob(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    """The formula for values of the support, without a look whether the value is one: counts may be real numbers.

    Example:
        >>> print(unchecked_log_prob(dist.Poisson(2.0), jnp.array(0.5)).round(6))
        -1.532644
    """
    if isinstance(fn, ExactLaw):
        return fn.unchecked_log_prob(value)
    for base in type(fn).__mro__:
        if base in _FORMULAS:
            return _FORMULAS[base](fn, value)
    return jnp.asarray(fn.log_prob(value))


# Rounding can leave a probability this far outside [0, 1]: XLA turns i / 100 into i * .01, and 1 - 100 * .01 is -2e-16.
_ROUNDING = 1e-12


def _in_unit_interval(probs: jax.Array) -> jax.Array:
    """Probabilities that left [0, 1] by rounding are brought back; any other is no probability and becomes NaN."""
    probs = jnp.asarray(probs)
    lawful = (probs >= -_ROUNDING) & (probs <= 1 + _ROUNDING)
    return jnp.where(lawful, jnp.clip(probs, 0.0, 1.0), jnp.nan)


def _bernoulli(fn, value):
    probs = _in_unit_interval(fn.probs)
    return jnp.where(value == 1, jnp.log(probs), jnp.log1p(-probs))


def _bernoulli_logits(fn, value):
    return jax.nn.log_sigmoid(jnp.where(value == 1, fn.logits, -jnp.asarray(fn.logits)))


def categorical_probabilities(fn: dist.CategoricalProbs) -> jax.Array:
    """The probability of every value, `[*batch, value]`, whose logarithm `exact_log_prob` is.

    Example:
        >>> import jax.numpy as jnp, numpyro.distributions as dist
        >>> print(categorical_probabilities(dist.Categorical(jnp.array([0.25, 0.75]))))
        [0.25 0.75]
    """
    probs = jnp.asarray(fn.probs)
    return _in_unit_interval(probs / jnp.sum(probs, axis=-1, keepdims=True))


def _categorical(fn, value):
    probs = jnp.asarray(fn.probs)
    batch = jnp.broadcast_shapes(value.shape, probs.shape[:-1])
    index = jnp.clip(jnp.broadcast_to(value, batch), 0, probs.shape[-1] - 1)[..., None]
    chosen = jnp.take_along_axis(jnp.broadcast_to(probs, (*batch, probs.shape[-1])), index, axis=-1)[..., 0]
    return jnp.log(_in_unit_interval(chosen / jnp.sum(probs, axis=-1)))


def _binomial(fn, value):
    probs = _in_unit_interval(fn.probs)
    return counts.binomial(value, jnp.asarray(fn.total_count), probs, 1 - probs)


def _binomial_logits(fn, value):
    logits = jnp.asarray(fn.logits)
    return counts.binomial(value, jnp.asarray(fn.total_count), jax.nn.sigmoid(logits), jax.nn.sigmoid(-logits))


def _multinomial(fn, value):
    return counts.multinomial(value, jnp.asarray(fn.total_count), _in_unit_interval(fn.probs))


def _geometric(fn, value):
    probs = _in_unit_interval(fn.probs)
    return xlog1py(value, -probs) + jnp.log(probs)


def _half_normal(fn, value):
    return continuous.normal(value, 0.0, jnp.asarray(fn.scale)) + jnp.log(2.0)


def _exponential(fn, value):
    return jnp.log(jnp.asarray(fn.rate)) - fn.rate * value


def _uniform(fn, value):
    return -jnp.log(jnp.asarray(fn.high) - fn.low) + jnp.zeros_like(value)


def _of(formula: Callable[..., jax.Array], *names: str) -> Callable[[Any, jax.Array], jax.Array]:
    return lambda fn, value: formula(value, *(jnp.asarray(getattr(fn, name)) for name in names))


_FORMULAS: dict[type, Callable[[Any, jax.Array], jax.Array]] = {
    dist.BernoulliProbs: _bernoulli,
    dist.BernoulliLogits: _bernoulli_logits,
    dist.CategoricalProbs: _categorical,
    dist.BinomialProbs: _binomial,
    dist.BinomialLogits: _binomial_logits,
    dist.MultinomialProbs: _multinomial,
    dist.MultinomialLogits: _multinomial,
    dist.GeometricProbs: _geometric,
    dist.Poisson: _of(counts.poisson, "rate"),
    dist.GammaPoisson: _of(counts.gamma_poisson, "concentration", "rate"),  # the negative binomials, too
    dist.BetaBinomial: _of(counts.beta_binomial, "concentration1", "concentration0", "total_count"),
    dist.DirichletMultinomial: _of(counts.dirichlet_multinomial, "concentration", "total_count"),
    dist.Normal: _of(continuous.normal, "loc", "scale"),
    dist.StudentT: _of(continuous.student_t, "df", "loc", "scale"),
    dist.MultivariateNormal: _of(continuous.multivariate_normal, "loc", "scale_tril"),
    dist.MultivariateStudentT: _of(continuous.multivariate_student_t, "df", "loc", "scale_tril"),
    dist.Beta: _of(continuous.beta, "concentration1", "concentration0"),
    dist.Dirichlet: _of(continuous.dirichlet, "concentration"),
    dist.Gamma: _of(continuous.gamma, "concentration", "rate"),
    dist.Exponential: _exponential,
    dist.HalfNormal: _half_normal,
    dist.Uniform: _uniform,
}
