"""Laws of any make brought into one form: those of the oracles, with a row for every prediction.

A NumPyro law that has an exact counterpart becomes it; expanded laws are broadcast; finitely many values are listed.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import transforms

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.oracles.batches import aligned, declared
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.oracles.support import listed_support

# Laws with more values than this are not listed.
_MOST_LISTED = 100_000


def exact_form(law: Any) -> dist.Distribution:
    """The law as one of the oracles' own if it has such a form, and otherwise as it is.

    Example:
        >>> type(exact_form(dist.Exponential(2.0))).__name__
        'Gamma'
    """
    if isinstance(law, dist.ExpandedDistribution):
        return exact_form(aligned(law.base_dist, law.batch_shape))
    if isinstance(law, exact.BetaBinomial):
        return _one_count(law) or law
    if isinstance(law, Mixture):
        return _mixture(law.log_weights, exact_form(law.components))
    if isinstance(law, ExactLaw | Finite):
        return law
    for kind, converted in _COUNTERPARTS.items():
        if isinstance(law, kind):
            return converted(law)
    if isinstance(law, dist.MixtureSameFamily):
        weights = _log_weights(law.mixing_distribution)
        return _mixture(weights, exact_form(aligned(law.component_distribution, weights.shape)))
    if isinstance(law, dist.Independent):
        return dist.Independent(exact_form(law.base_dist), law.reinterpreted_batch_ndims)
    if isinstance(law, dist.TransformedDistribution) and type(law).log_prob is dist.TransformedDistribution.log_prob:
        base = exact_form(law.base_dist)
        if isinstance(base, ExactLaw) and base.event_shape == law.event_shape:
            return exact.Transformed(base, law.transforms)
    if law.has_enumerate_support:
        values, size = listed_support(law)
        if values is not None and size is not None and size <= _MOST_LISTED:
            return _listed(law, values)
    return law


def _mixture(log_weights: jax.Array, components: dist.Distribution) -> dist.Distribution:
    if not isinstance(components, Finite):
        return Mixture(log_weights, components)
    log_weights = log_weights[..., None]
    joint = jnp.where(jnp.isneginf(log_weights), -jnp.inf, log_weights + components.log_probs)
    return Finite(jax.scipy.special.logsumexp(joint, axis=-2), components.values)


def _one_count(law: exact.BetaBinomial) -> Finite | None:
    most = np.asarray(law.total_count).max(initial=0)
    return None if most > _MOST_LISTED else _listed(law, np.arange(int(most) + 1))


def _listed(law: dist.Distribution, values: np.ndarray) -> Finite:
    shape = (values.shape[0], *(1,) * len(law.batch_shape), *values.shape[1:])
    log_probs = exact_log_prob(law, jnp.asarray(values).reshape(shape))
    log_probs = jnp.broadcast_to(log_probs, (values.shape[0], *law.batch_shape))
    return Finite(jnp.moveaxis(log_probs, 0, -1), values)


def _log_weights(law: Any) -> jax.Array:
    return jnp.log(law.probs / jnp.sum(law.probs, axis=-1, keepdims=True))


_COUNTERPARTS: dict[type, Any] = {
    dist.Normal: lambda law: exact.Normal(law.loc, law.scale),
    dist.MultivariateNormal: lambda law: exact.MultivariateNormal(law.loc, law.covariance_matrix),
    dist.Cauchy: lambda law: exact.StudentT(1.0, law.loc, law.scale),
    dist.StudentT: lambda law: exact.StudentT(law.df, law.loc, law.scale),
    dist.MultivariateStudentT: lambda law: exact.MultivariateStudentT(law.df, law.loc, law.scale_tril),
    dist.Beta: lambda law: exact.Beta(law.concentration1, law.concentration0),
    dist.Dirichlet: lambda law: exact.Dirichlet(law.concentration),
    dist.Gamma: lambda law: exact.Gamma(law.concentration, law.rate),
    dist.Exponential: lambda law: exact.Gamma(1.0, law.rate),
    dist.GammaPoisson: lambda law: exact.NegativeBinomial(law.concentration, law.rate),
    dist.BetaBinomial: lambda law: exact_form(
        exact.BetaBinomial(law.concentration1, law.concentration0, law.total_count)
    ),
    dist.DirichletMultinomial: lambda law: exact.DirichletMultinomial(law.concentration, law.total_count),
    dist.LogNormal: lambda law: exact.Transformed(exact.Normal(law.loc, law.scale), transforms.ExpTransform()),
    dist.InverseGamma: lambda law: exact.Transformed(
        exact.Gamma(law.concentration, law.rate), transforms.PowerTransform(-1.0)
    ),
}


def impossible_rows(law: dist.Distribution) -> np.ndarray:
    """Where the law is none, bool, `[*batch]`."""
    if isinstance(law, dist.Independent):
        mask = impossible_rows(law.base_dist)
        mask = mask.any(axis=tuple(range(len(law.batch_shape), mask.ndim)))
    else:
        mask = getattr(law, "impossible", False)
    return np.broadcast_to(np.asarray(mask), law.batch_shape)


def as_rows(law: dist.Distribution, batch: tuple[int, ...]) -> dist.Distribution:
    """The same law broadcast to a batch shape and with one batch axis, `[row]`, in row-major order."""
    rows = math.prod(batch)
    if isinstance(law, Finite):
        log_probs = jnp.broadcast_to(law.log_probs, (*batch, law.log_probs.shape[-1]))
        return Finite(log_probs.reshape(rows, -1), law.values)
    law = aligned(law, batch)
    return declared(jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[len(batch) :]), law), (rows,))


def on_common_values(p: Finite, q: Finite) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of two finite laws over the values of both, `[*batch, symbol]` each."""
    first, second = np.asarray(p.values), np.asarray(q.values)
    if first.shape == second.shape and np.array_equal(first, second):
        return p.to_numpy(), q.to_numpy()
    values = np.unique(np.concatenate([first, second]), axis=0)
    return _probs_at(p, values), _probs_at(q, values)


def _probs_at(law: Finite, values: np.ndarray) -> np.ndarray:
    log_probs = law.log_prob(values.reshape(-1, *(1,) * len(law.batch_shape), *values.shape[1:]))
    return np.exp(np.moveaxis(np.asarray(log_probs), 0, -1))


def same_transforms(p: exact.Transformed, q: exact.Transformed) -> bool:
    """Whether both are functions of their base laws, and of the same kind with the same parameters throughout."""
    if len(p.transforms) != len(q.transforms):
        return False
    for first, second in zip(p.transforms, q.transforms, strict=True):
        if type(first) is not type(second):
            return False
        leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
        if not all(_equal(np.asarray(one), np.asarray(other)) for one, other in leaves):
            return False
    return True


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        return bool(np.all(one == other))
    except ValueError:
        return False


def refuse_impossible(law: dist.Distribution, name: str) -> None:
    """An error that names the first row of impossible evidence, if there is one.

    Raises:
        TunnelError: there is one.
    """
    mask = impossible_rows(law)
    if mask.any():
        index = tuple(int(i) for i in np.argwhere(mask)[0])
        where = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise TunnelError(
            f"{where} conditions on impossible evidence, so there is no law there to be compared; leave such rows out "
            "(they are marked in the law's .impossible)"
        )
