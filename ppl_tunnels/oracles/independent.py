"""The joint law of several independent draws, such as the rows of a table, as one law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.exact_law import ExactLaw


class Independent(ExactLaw, dist.Independent):
    """Independent laws of the last batch axes taken as one event.

    Args:
        base_law: one of `parametric`; impossible where any of its draws is.
        axes: how many of its batch axes become event axes.

    Example:
        >>> import jax.numpy as jnp
        >>> from ppl_tunnels.oracles.parametric import Beta
        >>> law = Independent(Beta(jnp.ones((5, 3)), jnp.ones((5, 3))), 1)
        >>> law.batch_shape, law.event_shape
        ((5,), (3,))
    """

    def __init__(self, base_law: ExactLaw, axes: int, *, validate_args: bool | None = None):
        self.base_dist: Any = base_law
        self.reinterpreted_batch_ndims = axes
        self._validate_args = bool(validate_args)

    @property
    def impossible(self) -> jax.Array:
        return jnp.any(self.base_dist.impossible, axis=self._axes)

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(-self.reinterpreted_batch_ndims, 0))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shape = self.base_dist.batch_shape
        return shape[: len(shape) - self.reinterpreted_batch_ndims]

    @property
    def event_shape(self) -> tuple[int, ...]:
        shape = self.base_dist.batch_shape
        return shape[len(shape) - self.reinterpreted_batch_ndims :] + self.base_dist.event_shape

    def tree_flatten(self):
        return (self.base_dist,), (self.reinterpreted_batch_ndims, self._validate_args)

    @classmethod
    def tree_unflatten(cls, aux_data, params):
        law = cls.__new__(cls)
        (law.base_dist,) = params
        law.reinterpreted_batch_ndims, law._validate_args = aux_data
        return law

    def broadcast_to(self, batch: tuple[int, ...]) -> "Independent":
        inner = self.base_dist.batch_shape[len(self.batch_shape) :]
        return Independent(self.base_dist.broadcast_to((*batch, *inner)), self.reinterpreted_batch_ndims)

    def log_prob(self, value, intermediates=None) -> jax.Array:
        """Nats, `[*sample, *batch]`."""
        return jnp.sum(self.base_dist.log_prob(value), axis=self._axes)

    def entropy(self) -> jax.Array:
        """Nats, `[*batch]`."""
        return jnp.where(self.impossible, 0.0, jnp.sum(self.base_dist.entropy(), axis=self._axes))

    @property
    def mean(self) -> jax.Array:
        """`[*batch, *event]`."""
        return self.base_dist.mean

    @property
    def variance(self) -> jax.Array:
        """`[*batch, *event]`."""
        return self.base_dist.variance

    def to_numpy(self) -> dict[str, np.ndarray]:
        """The parameters of every draw, and "impossible" (bool, `[*batch]`)."""
        return {**self.base_dist.to_numpy(), "impossible": np.asarray(self.impossible)}
