"""Priors as NumPyro spells them, and the plain law that each of them is after a change of variables.

An expanded, plated, shifted, rescaled or otherwise transformed prior is its base law seen through a bijection: inference is
done on the base variable, and the posterior is seen through the same bijection. An inverse-gamma variance is a gamma
precision, a log-normal rate a normal, a uniform probability a Beta(1, 1), all without a table of their own.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import transforms

from ppl_tunnels.program import Site


@dataclasses.dataclass(frozen=True)
class Prior:
    """A prior taken apart.

    Attributes:
        base: the plain law, its parameters as the program gives them (not broadcast).
        transforms: base value -> the site's value, the first applied first.
        event_dim: axes of one value of the base law.
    """

    base: dist.Distribution
    transforms: tuple[Any, ...]

    @property
    def event_dim(self) -> int:
        return self.base.event_dim

    def value(self, base: jax.Array) -> jax.Array:
        """The site's value for a base value."""
        for transform in self.transforms:
            base = transform(base)
        return base

    def base_value(self, value: jax.Array) -> jax.Array:
        """The base value of a site's value."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return value


def take_apart(fn: dist.Distribution) -> Prior:
    """The base law and the transforms of a site's law; wrappers that only arrange the batch are taken off."""
    changes: list[Any] = []
    while True:
        if isinstance(fn, dist.Independent | dist.ExpandedDistribution):
            fn = fn.base_dist
        elif isinstance(fn, dist.TransformedDistribution):
            changes = [*fn.transforms, *changes]
            fn = fn.base_dist
        elif isinstance(fn, dist.Uniform):
            low, width = jnp.asarray(fn.low), jnp.asarray(fn.high) - jnp.asarray(fn.low)
            return Prior(dist.Beta(jnp.ones(()), jnp.ones(())), (transforms.AffineTransform(low, width), *changes))
        elif isinstance(fn, dist.Exponential):
            return Prior(dist.Gamma(jnp.ones(()), fn.rate), tuple(changes))
        else:
            return Prior(fn, tuple(changes))


def elementwise(prior: Prior) -> bool:
    """Whether every transform acts on each number by itself."""
    return all(each.domain.event_dim == 0 and each.codomain.event_dim == 0 for each in prior.transforms)


def element_shape(site: Site, event_dim: int) -> tuple[int, ...]:
    """Shape of the values of a site that are one draw of a base law each, in the program's own layout."""
    return site.shape[: len(site.shape) - event_dim]
