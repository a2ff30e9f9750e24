"""Where the mass of a one-dimensional law lies: a few quantiles of it, as edges for integration.

They need not be exact: an edge that is a little off costs a few more evaluations, nothing else.
"""

import jax
import numpy as np
import numpyro.distributions as dist
import scipy.special

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.oracles.mixtures import Mixture

# Lower tail probabilities; the upper ones are their mirror image.
LEVELS = (1e-12, 1e-6, 1e-3, 0.03, 0.2)
# The same for a mixture of many components, each of which adds its own.
_FEWER_LEVELS = (1e-6, 0.03)
_MANY_COMPONENTS = 6
# Components of smaller weight are not looked for.
_SMALLEST_WEIGHT = 1e-25


def places(law: dist.Distribution) -> np.ndarray:
    """Quantiles of a law with batch shape `[row]`, those of one component in ascending order: `[row, component, level]`.

    A component of weight zero has NaN throughout.

    Raises:
        TunnelError: nothing is known about the quantiles of such a law.

    Example:
        >>> places(exact.Normal(np.array([0.0]), 1.0)).round(1).tolist()
        [[[-7.0, -4.8, -3.1, -1.9, -0.8, 0.0, 0.8, 1.9, 3.1, 4.8, 7.0]]]
    """
    if not isinstance(law, Mixture):
        return _quantiles(law, LEVELS)[..., None, :]
    weights = np.asarray(law.weights)
    levels = _FEWER_LEVELS if weights.shape[-1] > _MANY_COMPONENTS else LEVELS
    if isinstance(law.components, Mixture):
        inner = places(law.components)
        inner = np.where((weights > _SMALLEST_WEIGHT)[..., None, None], inner, np.nan)
        return inner.reshape(*weights.shape[:-1], -1, inner.shape[-1])
    of_components = _quantiles(law.components, levels)
    return np.where((weights > _SMALLEST_WEIGHT)[..., None], of_components, np.nan)


def _quantiles(law: dist.Distribution, levels: tuple[float, ...]) -> np.ndarray:
    """`[*batch, level]`, ascending."""
    if isinstance(law, exact.Transformed):
        values = _quantiles(law.base_dist, levels)
        with jax.enable_x64(True):
            for transform in law.transforms:
                # Parameters of the transforms have the batch axes, and here there is one more.
                transform = jax.tree.map(lambda leaf: np.asarray(leaf)[..., None], transform)
                values = np.asarray(transform(values))
        return np.sort(values, axis=-1)
    lower = [_quantile(law, level, upper=False) for level in (*levels, 0.5)]
    upper = [_quantile(law, level, upper=True) for level in reversed(levels)]
    return np.stack(np.broadcast_arrays(*lower, *upper), axis=-1)


def _quantile(law: dist.Distribution, level: float, *, upper: bool) -> np.ndarray:
    """Where that much probability lies below (or above)."""
    sign = -1.0 if upper else 1.0
    if isinstance(law, exact.Normal):
        return np.asarray(law.loc) + sign * np.asarray(law.scale) * scipy.special.ndtri(level)
    if isinstance(law, exact.StudentT):
        z = scipy.special.stdtrit(np.asarray(law.df), level)
        return np.asarray(law.loc) + sign * np.asarray(law.scale) * np.maximum(z, -1e150)
    if isinstance(law, exact.Gamma):
        inverse = scipy.special.gammainccinv if upper else scipy.special.gammaincinv
        return inverse(np.asarray(law.concentration), level) / np.asarray(law.rate)
    if isinstance(law, exact.Beta):
        return _beta_quantile(np.asarray(law.concentration1), np.asarray(law.concentration0), level, upper)[0]
    if isinstance(law, exact.CompoundGamma):
        x, rest = _beta_quantile(np.asarray(law.shape_), np.asarray(law.concentration), level, upper)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(law.rate) * np.minimum(x / rest, 1e150)
    try:
        with jax.enable_x64(True):
            return np.asarray(law.icdf(1 - level if upper else level), np.float64)
    except (NotImplementedError, AttributeError) as error:
        raise TunnelError(
            f"nothing is known about the quantiles of {type(law).__name__}, so its mass cannot be found; give one of "
            "ppl_tunnels.oracles.parametric, a Mixture of them, or a NumPyro law that has icdf"
        ) from error


def _beta_quantile(heads, tails, level: float, upper: bool) -> tuple[np.ndarray, np.ndarray]:
    """x and 1 - x, the smaller of which is accurate."""
    if upper:
        rest = scipy.special.betaincinv(tails, heads, level)
        return 1 - rest, rest
    x = scipy.special.betaincinv(heads, tails, level)
    return x, 1 - x
