"""The batch axes of NumPyro laws, which remember their batch shape from when they were made: vmap and indexing leave it stale."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.constraints import Constraint

from ppl_tunnels.oracles.exact_law import ExactLaw


def aligned(law: dist.Distribution, batch: tuple[int, ...]) -> dist.Distribution:
    """The same law with every parameter broadcast to this batch shape, and no `ExpandedDistribution` in it.

    Whatever vmap or an index then does to the leading axes of its leaves, `declared` puts the batch shape right.
    """
    if isinstance(law, dist.ExpandedDistribution):
        return aligned(law.base_dist, batch)
    # First: the joint law of several exact ones is NumPyro's Independent, too.
    if isinstance(law, ExactLaw):
        return law.broadcast_to(batch)
    if isinstance(law, dist.Independent):
        inner = law.event_shape[: law.reinterpreted_batch_ndims]
        return _with(law, batch, base_dist=aligned(law.base_dist, (*batch, *inner)))
    changed: dict[str, Any] = {}
    known = _constraints(type(law))
    for name in type(law).gather_pytree_data_fields():
        value = law.__dict__.get(name)
        if isinstance(value, dist.Distribution):
            changed[name] = aligned(value, batch)
        elif isinstance(value, Constraint) and value.event_dim == 0:  # a support that depends on the parameters
            changed[name] = jax.tree.map(lambda leaf: _broadcast(leaf, batch, 0), value)
        elif value is not None and name in known:
            changed[name] = _broadcast(value, batch, known[name].event_dim)
    if isinstance(law, dist.TransformedDistribution):
        changed["transforms"] = [_transform(transform, law, batch) for transform in law.transforms]
    return _with(law, batch, **changed)


def declared(law: dist.Distribution, batch: tuple[int, ...]) -> dist.Distribution:
    """An aligned law whose leaves now have this batch shape, saying so."""
    if isinstance(law, ExactLaw):
        return law
    changed: dict[str, Any] = {}
    for name, value in law.__dict__.items():
        if isinstance(value, dist.Distribution):
            inner = law.event_shape[: law.reinterpreted_batch_ndims] if isinstance(law, dist.Independent) else ()
            changed[name] = declared(value, (*batch, *inner))
    return _with(law, batch, **changed)


def parameters(law: dist.Distribution) -> dict[str, Any]:
    """The parameters that the law was made with, those of wrapped laws included."""
    own = {name: law.__dict__[name] for name in law.arg_constraints if law.__dict__.get(name) is not None}
    base = getattr(law, "base_dist", None)
    return own if own or base is None else parameters(base)


def _constraints(kind: type) -> dict[str, Any]:
    """Of the parameters, the inherited ones included: a chi-square law keeps those of the gamma law that it is."""
    known: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        known |= base.__dict__.get("arg_constraints", {})
    return known


def _transform(transform: Any, law: dist.TransformedDistribution, batch: tuple[int, ...]) -> Any:
    if transform.domain.event_dim:
        return transform
    shape = (*batch, *law.base_dist.event_shape)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), shape), transform)


def _broadcast(value: Any, batch: tuple[int, ...], event_dim: int) -> jax.Array:
    array = jnp.asarray(value)
    return jnp.broadcast_to(array, (*batch, *array.shape[array.ndim - event_dim :]))


def _with(law: dist.Distribution, batch: tuple[int, ...], **changed: Any) -> dist.Distribution:
    law = copy.copy(law)
    for name, value in changed.items():
        setattr(law, name, value)
    law._batch_shape = batch
    return law


def over_batch(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """vmap over that many leading axes."""
    for _ in range(axes):
        function = jax.vmap(function)
    return function
