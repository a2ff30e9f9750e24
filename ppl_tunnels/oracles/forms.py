"""Predictive laws of sites that are not finite, under a conjugate posterior of one latent.

What matters is how the sufficient statistics of one observation depend on its value y, not how the likelihood was spelt:

    gamma,  s(y) = (y, e),                count    negative binomial (concentration a, rate b / e)
    gamma,  s(y) = (k, m y),              positive compound gamma (shape k, concentration a, rate b / m)
    gamma,  s(y) = (1/2, m (y - mu)^2/2), real     Student-t (2 a degrees, location mu, scale sqrt(b / (a m)))
    beta,   s(y) = (1, y) or (y, 1),      count    beta-geometric
    beta,   s(y) = (y, n - y) or reversed 0 … n    beta-binomial

The form is fitted to a few values of y and checked at others; the law is checked at the values that were seen.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ppl_tunnels.oracles import parametric

# Relative; a statistic of another form is off by its own size.
_FITS = 1e-9


@dataclasses.dataclass(frozen=True)
class Form:
    """One row of the table.

    Attributes:
        probes: values of y to evaluate the statistics at.
        fit: (eta `[step, statistic]`, s `[probe, step, statistic]`) -> parameters `[step]` a name, and where they do not fit.
        law: parameters -> the law.
    """

    probes: np.ndarray
    fit: Callable[[jax.Array, jax.Array], tuple[dict[str, jax.Array], jax.Array]]
    law: Callable[..., dist.Distribution]


def _off(*pairs: tuple[Any, Any]) -> jax.Array:
    # Written so that a NaN fits nothing.
    misfit = [~(jnp.abs(said - right) <= _FITS * (1 + jnp.abs(right))) for said, right in pairs]
    return jnp.stack(jnp.broadcast_arrays(*misfit)).any(axis=0)


def _counts_of_gamma(eta, s):
    exposure = s[0, :, 1]
    off = _off(*((s[i, :, 0], y) for i, y in enumerate((0.0, 1.0, 3.0))), *((s[i, :, 1], exposure) for i in (1, 2)))
    return {"concentration": eta[:, 0], "rate": eta[:, 1] / exposure}, off | (exposure <= 0)


def _positive_of_gamma(eta, s):
    shape, multiple = s[0, :, 0], s[0, :, 1]
    off = _off(*((s[i, :, 0], shape) for i in (1, 2)), (s[1, :, 1], 2 * multiple), (s[2, :, 1], 3 * multiple))
    parameters = {"shape": shape, "concentration": eta[:, 0], "rate": eta[:, 1] / multiple}
    return parameters, off | (shape <= 0) | (multiple <= 0)


def _real_of_gamma(eta, s):
    at_zero, at_one, at_minus_one, at_two = (s[i, :, 1] for i in range(4))
    square, slope = (at_one + at_minus_one) / 2 - at_zero, (at_one - at_minus_one) / 2
    location = -slope / (2 * square)
    off = _off(
        *((s[i, :, 0], 0.5) for i in range(4)),
        (at_zero, square * location**2),
        (at_two, square * (2 - location) ** 2),
    )
    scale = jnp.sqrt(eta[:, 1] / (eta[:, 0] * 2 * square))
    return {"df": 2 * eta[:, 0], "loc": location, "scale": scale}, off | ~(square > 0)


def _counts_of_beta(eta, s):
    def off(ones, counts):
        return _off(
            *((s[i, :, ones], 1.0) for i in range(3)), *((s[i, :, counts], y) for i, y in enumerate((0.0, 1.0, 3.0)))
        )

    # Where the latent is the chance to go on, not to stop, its two parameters change places.
    stops, goes_on = off(0, 1), off(1, 0)
    one, zero = jnp.where(stops, eta[:, 1], eta[:, 0]), jnp.where(stops, eta[:, 0], eta[:, 1])
    return {"concentration1": one, "concentration0": zero}, stops & goes_on


def _successes_of_beta(eta, s):
    # At no success all trials count for failure: the latent itself, or what is left of it, is the chance of one.
    success, failure = s[0, :, 0], s[0, :, 1]
    straight, reverse = _off((success, 0.0)), _off((failure, 0.0))
    one, zero = jnp.where(straight, eta[:, 1], eta[:, 0]), jnp.where(straight, eta[:, 0], eta[:, 1])
    total = jnp.where(straight, success, failure)
    return {"concentration1": one, "concentration0": zero, "total_count": total}, straight & reverse


_COUNTS, _POSITIVE = np.array([0, 1, 3]), np.array([1.0, 2.0, 3.0])
_FORMS: dict[tuple[str, str], Form] = {
    ("Gamma", "counts"): Form(_COUNTS, _counts_of_gamma, parametric.NegativeBinomial),
    ("Gamma", "positive"): Form(_POSITIVE, _positive_of_gamma, parametric.CompoundGamma),
    ("Gamma", "real"): Form(np.array([0.0, 1.0, -1.0, 2.0]), _real_of_gamma, parametric.StudentT),
    ("Beta", "counts"): Form(_COUNTS, _counts_of_beta, parametric.BetaGeometric),
    ("Beta", "successes"): Form(np.array([0]), _successes_of_beta, parametric.BetaBinomial),
}


def _kind(fn: dist.Distribution) -> str:
    support = fn.support
    if isinstance(support, type(constraints.integer_interval(0, 1))):
        return "successes"
    if isinstance(support, type(constraints.nonnegative_integer)):
        return "counts"
    if isinstance(support, type(constraints.real)):
        return "real"
    return "positive" if isinstance(support, (type(constraints.positive), type(constraints.nonnegative))) else "other"


def form_of(family: str, fn: dist.Distribution) -> Form | None:
    """The form that a site's law can have under a posterior of this family, or None."""
    while isinstance(fn, dist.ExpandedDistribution):
        fn = fn.base_dist
    return _FORMS.get((family, _kind(fn)))
