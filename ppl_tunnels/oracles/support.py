"""The finitely many values of one draw, and the joint values of many draws, without listing the joint.

A hypothesis is an integer: its digits, in the mixed radix of all draws, index each draw's support.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

if TYPE_CHECKING:
    from ppl_tunnels.program import Site

# Listing more values than this for a single draw is a mistake in the program's scale, not a support to enumerate.
MOST_LISTED_VALUES = 2_000_000


def one_draw(fn: dist.Distribution) -> dist.Distribution:
    """The law of one element: `Independent` and `expand` wrappers taken off."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return fn


def listed_support(fn: dist.Distribution) -> tuple[np.ndarray | None, int | None]:
    """Every value of one draw, `[symbol, *event]`, and how many there are.

    Returns:
        `(None, size)` if they are finitely many but too many to list, `(None, None)` if infinitely many.
    """
    while isinstance(fn, dist.ExpandedDistribution):
        fn = fn.base_dist
    if isinstance(fn, dist.Independent):
        return _listed_vectors(fn)
    base, size = fn, getattr(fn, "support_size", None)
    if size is not None and size > MOST_LISTED_VALUES:
        return None, size
    try:
        values = np.asarray(base.enumerate_support(expand=False)) if base.has_enumerate_support else None
    except (NotImplementedError, TypeError, ValueError):
        values = None
    if values is None:
        return None, None
    event = base.event_shape
    values = values.reshape(values.shape[0], -1, *event)
    if values.shape[1] != 1:  # a support that differs between the elements of a batch
        return None, None
    return values[:, 0], values.shape[0]


def _listed_vectors(fn: dist.Independent) -> tuple[np.ndarray | None, int | None]:
    """The values of a vector of independent elements: every combination of theirs, the last element running fastest."""
    values, size = listed_support(fn.base_dist)
    shape = fn.event_shape[: fn.reinterpreted_batch_ndims]
    elements = math.prod(shape)
    if size is None or size**elements > MOST_LISTED_VALUES or values is None:
        return None, None if size is None else size**elements
    total = size**elements
    index = np.arange(total)[:, None] // size ** np.arange(elements)[::-1] % size
    return values[index.reshape(total, *shape)], total


class JointSupport:
    """The joint values of some latent sites, indexed by one integer.

    Args:
        sites: finite sites; every element of a site's batch is a draw of its own.
    """

    def __init__(self, sites: "Mapping[str, Site]"):
        self.sites = dict(sites)
        self.draws = {name: math.prod(site.batch_shape) for name, site in self.sites.items()}
        self.radix = {name: site.support_size or 0 for name, site in self.sites.items()}
        self.size = math.prod(self.radix[name] ** self.draws[name] for name in self.sites)

    def digits(self, index: jax.Array) -> dict[str, jax.Array]:
        """Support indices of every draw of every site, `[*batch]`, for one hypothesis (a scalar integer)."""
        digits = {}
        for name, site in self.sites.items():
            radix, count = self.radix[name], self.draws[name]
            powers = jnp.asarray([radix**power for power in range(count)], dtype=jnp.int64)
            block = radix**count
            digits[name] = ((index % block) // powers % radix).reshape(site.batch_shape)
            index = index // block
        return digits

    def values(self, digits: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Support indices -> values, step axis first."""
        return {name: jnp.asarray(self.sites[name].support)[index] for name, index in digits.items()}
