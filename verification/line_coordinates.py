"""One coordinate z on the whole line for a pair of one-dimensional laws, in which tails and edges are exponentials.

    real line        x = a + b sinh z          from the centre outwards, power tails become exponential ones
    above a          x = a + exp z             a power of x - a at the edge becomes an exponential
    below b          x = b - exp(-z)
    between a, b     x = a + (b - a) / (1 + exp(-z))

Divergences do not depend on the coordinate; an entropy needs log dx/dz, which is given.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.oracles.continuous_densities import beta
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.verification.law_rows import LawRows

_EPSILON = np.finfo(np.float64).eps
# Logarithms of the largest and the smallest distance: squares of x must not overflow, and x itself not underflow.
FARTHEST = 345.0
NEAREST = 690.0


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """See the module.

    Attributes:
        kind: "real", "above", "below" or "between".
        a, b: centre and scale, or the edges, `[row]` (an edge that is none is not read).
    """

    kind: str
    a: np.ndarray
    b: np.ndarray

    @property
    def unit(self) -> bool:
        return self.kind == "between" and bool(np.all(self.a == 0) and np.all(self.b == 1))

    def place(self, x: np.ndarray) -> np.ndarray:
        """z of x, `[row, ...]`, within what can be evaluated."""
        shape = (-1, *(1,) * (x.ndim - 1))
        a, b = self.a.reshape(shape), self.b.reshape(shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.kind == "real":
                z = np.arcsinh((x - a) / b)
            elif self.kind == "above":
                z = np.log(x - a)
            elif self.kind == "below":
                z = -np.log(b - x)
            else:
                z = np.log(x - a) - np.log(b - x)
        return np.clip(z, *self.limits())

    def grain(self) -> np.ndarray:
        """By how much a place z is rounded, besides its own last bit, because x is rounded, `[row]`."""
        if self.kind == "real":
            return _EPSILON * np.abs(self.a) / self.b
        if self.kind == "between" and not self.unit:
            return 4 * _EPSILON * np.maximum(np.abs(self.a), np.abs(self.b)) / (self.b - self.a)
        return np.zeros(len(self.a))

    def limits(self) -> tuple[float, float]:
        """The least and largest z; beyond, integrands are extrapolated."""
        if self.kind == "between":
            return (-NEAREST, NEAREST) if self.unit else (-34.0, 34.0)  # beyond 34, b - x is rounding
        return {"real": (-FARTHEST, FARTHEST), "above": (-NEAREST, FARTHEST), "below": (-FARTHEST, NEAREST)}[self.kind]


def bounds(law: dist.Distribution) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the support in every row, `[*batch]` each, infinite where there is none.

    Raises:
        TunnelError: the support is not an interval.
    """
    if isinstance(law, Mixture):
        low, high = bounds(law.components)
        present = np.asarray(law.weights) > 0
        return np.where(present, low, np.inf).min(axis=-1), np.where(present, high, -np.inf).max(axis=-1)
    if isinstance(law, exact.Transformed):
        ends = bounds(law.base_dist)
        with jax.enable_x64(True), np.errstate(divide="ignore"):
            for transform in law.transforms:
                ends = tuple(np.asarray(transform(jnp.asarray(end))) for end in ends)
        return np.minimum(*ends), np.maximum(*ends)
    support: Any = law.support
    low, high = getattr(support, "lower_bound", -np.inf), getattr(support, "upper_bound", np.inf)
    if support is None or support.event_dim or support.is_discrete or constraints.is_dependent(support):
        raise TunnelError(f"{type(law).__name__} has no interval as its support, so no quadrature is known for it")
    return np.broadcast_to(low, law.batch_shape) + 0.0, np.broadcast_to(high, law.batch_shape) + 0.0


def common_coordinate(ends: list[tuple[np.ndarray, np.ndarray]], found: np.ndarray) -> Coordinate:
    """For laws with these supports, whose mass lies at `found`, `[row, place]`.

    Raises:
        TunnelError: the supports are bounded in some rows only.
    """
    low, high = np.minimum.reduce([low for low, _ in ends]), np.maximum.reduce([high for _, high in ends])
    lower, upper = np.isfinite(low), np.isfinite(high)
    if lower.any() != lower.all() or upper.any() != upper.all():
        raise TunnelError("the supports are bounded in some rows only; measure rows of one kind at a time")
    if lower.any() or upper.any():
        kind = "between" if lower.all() and upper.all() else "above" if lower.all() else "below"
        return Coordinate(kind, low, high)
    nowhere = np.isnan(found).all(axis=1, keepdims=True)  # laws that are none, by parameters that are NaN
    found = np.where(nowhere, 0.0, found)
    centre = np.nanmedian(found, axis=1)
    scale = np.nanmedian(np.abs(found - centre[:, None]), axis=1)
    return Coordinate("real", centre, np.where(scale > 0, scale, 1.0))


def inner_ends(ends: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Ends of one support that lie inside the union of all, `[row]` each; NaN in rows where they do not."""
    low, high = np.minimum.reduce([low for low, _ in ends]), np.maximum.reduce([high for _, high in ends])
    inner = [np.where((end > low) & (end < high), end, np.nan) for pair in ends for end in pair]
    return [end for end in inner if not np.isnan(end).all()]


def log_density(law: dist.Distribution, coordinate: Coordinate) -> LawRows:
    """log of a law's density in z, and log dx/dz, `[piece, node]` each, for rows and places z; `law` has batch shape `[row]`."""
    return LawRows(law, _DENSITIES[coordinate.kind, coordinate.unit], coordinate.a, coordinate.b)


def _log_density(law: dist.Distribution, x: jax.Array, rest: jax.Array) -> jax.Array:
    """log p(x) in the unit interval, where 1 - x is known better than by subtraction."""
    if isinstance(law, exact.Beta):
        return beta(x, law.concentration1, law.concentration0, rest)
    if isinstance(law, Mixture):
        absent = jnp.isneginf(law.log_weights)
        parts = law.log_weights + _log_density(law.components, x[..., None], rest[..., None])
        return logsumexp(jnp.where(absent, -jnp.inf, parts), axis=-1)
    return exact_log_prob(law, x)


def _evaluate(law, z, a, b, *, kind: str, unit: bool) -> tuple[jax.Array, jax.Array]:
    if kind == "real":
        x, jacobian = a + b * jnp.sinh(z), jnp.log(b) + jnp.logaddexp(z, -z) - jnp.log(2.0)
    elif kind == "above":
        x, jacobian = a + jnp.exp(z), z
    elif kind == "below":
        x, jacobian = b - jnp.exp(-z), -z
    else:
        x, rest = jax.nn.sigmoid(z), jax.nn.sigmoid(-z)
        jacobian = jnp.log(b - a) - jax.nn.softplus(z) - jax.nn.softplus(-z)
        if unit:
            return _log_density(law, x, rest) + jacobian, jacobian
        x = a + (b - a) * x
    return exact_log_prob(law, x) + jacobian, jacobian


# One function object each, so that each is compiled once for a kind of law.
_DENSITIES = {
    (kind, unit): functools.partial(_evaluate, kind=kind, unit=unit)
    for kind in ("real", "above", "below", "between")
    for unit in (False, True)
}
