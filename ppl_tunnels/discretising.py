"""A continuous or infinite prior as a finite one, so that the oracle of a program that uses it can be enumerated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.laws import Finite

# Bisections of a cumulative distribution function: an interval of one is then below rounding.
_BISECTIONS = 64
# Relative; a quantile computed in another compiled program may differ in its last bits.
_SAME = 1e-9


class OnGrid(constraints.Constraint):
    """The listed numbers, `[value]`, up to rounding."""

    is_discrete = True
    event_dim = 0

    def __init__(self, values):
        self.values = values

    def __call__(self, value):
        return _nearest(value, self.values)[1]

    def tree_flatten(self):
        return (self.values,), (("values",), {})


class Grid(Finite):
    """A finite law over real numbers, each recognised up to rounding."""

    @property
    def support(self) -> constraints.Constraint:
        return OnGrid(self.values)

    def index_of(self, value) -> tuple[jax.Array, jax.Array]:
        """The nearest value, and whether it is that value up to rounding."""
        return _nearest(value, self.values)


def _nearest(value, values) -> tuple[jax.Array, jax.Array]:
    value = jnp.asarray(value)
    index = jnp.argmin(jnp.abs(value[..., None] - values), axis=-1)
    nearest = jnp.asarray(values)[index]
    return index, jnp.abs(value - nearest) <= _SAME * (1 + jnp.abs(nearest))


def discretise(distribution: dist.Distribution, points: Any) -> Grid:
    """A law over finitely many values in place of another: the program that uses it has an exact oracle by enumeration.

    The oracle is exact for the program with the grid. How far that is from the program with the original prior is for you to
    see: double the points.

    Args:
        distribution: a law of one number, batch shape `()`.
        points: how many values, each of the same probability, at the middles of as many slices of equal probability; or the
            values themselves, `[value]`, with probabilities in proportion to their densities.

    Returns:
        The law over the values.

    Raises:
        TunnelError: several numbers at once, or a number of points for a law that has no cumulative distribution function.

    Example:
        >>> import numpyro.distributions as dist
        >>> discretise(dist.Uniform(0, 1), 4).values.tolist()
        [0.125, 0.375, 0.625, 0.875]
        >>> discretise(dist.Poisson(1.0), [0, 1, 2]).to_numpy().round(3).tolist()
        [0.4, 0.4, 0.2]
    """
    name = type(distribution).__name__
    if distribution.batch_shape or distribution.event_shape:
        raise TunnelError(
            f"discretise was given a {name} of batch shape {distribution.batch_shape} and event shape {distribution.event_shape}; give "
            "it the law of one number, and draw several from the result in a plate or with .expand"
        )
    if isinstance(points, int | np.integer):
        if points < 1:
            raise TunnelError(f"discretise was given points={points}; expected at least one value")
        middles = (np.arange(points) + 0.5) / points
        return Grid(jnp.full(points, -np.log(points)), _quantiles(distribution, middles))
    values = jnp.asarray(points)
    if values.ndim != 1 or not len(values):
        raise TunnelError(
            f"discretise was given values of shape {values.shape}; expected a number of points, or a list of values"
        )
    log_probs = exact_log_prob(distribution, values)
    return Grid(log_probs - jax.nn.logsumexp(log_probs), values)


def _quantiles(distribution: dist.Distribution, at: np.ndarray) -> jax.Array:
    try:
        if not distribution.is_discrete:
            return jnp.asarray(distribution.icdf(jnp.asarray(at)))
    except (NotImplementedError, ImportError):
        pass
    try:
        return _bisected(distribution, jnp.asarray(at))
    except NotImplementedError:
        pass
    raise TunnelError(
        f"{type(distribution).__name__} has no quantiles here, so a number of points does not say which; give the values themselves: "
        "discretise(distribution, values)"
    )


def _bisected(distribution: dist.Distribution, at: jax.Array) -> jax.Array:
    """Quantiles by halving an interval of a coordinate that runs from 0 to 1 over the support."""
    support = distribution.support
    if isinstance(support, type(constraints.unit_interval)) or support is constraints.unit_interval:
        value = lambda u: u  # noqa: E731
    elif isinstance(support, type(constraints.positive) | type(constraints.nonnegative)):
        value = lambda u: u / (1 - u)  # noqa: E731
    elif isinstance(support, type(constraints.real)):
        value = lambda u: jnp.log(u) - jnp.log1p(-u)  # noqa: E731
    else:
        raise NotImplementedError

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        below = distribution.cdf(value(middle)) < at
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(at), jnp.ones_like(at)))
    return value((low + high) / 2)
