"""Exact laws over finitely many values, as NumPyro distributions.

NumPyro's Categorical normalises through float logits and knows only the values 0 … K-1; an oracle needs log-probabilities
that are what they are (-inf included), and any support.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError


def _in_own_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a double-precision law be used by a caller in single precision without being truncated."""

    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        if isinstance(self.log_probs, Tracer) or self.log_probs.dtype != np.float64:
            return method(self, *args, **kwargs)
        with jax.enable_x64(True):
            return method(self, *args, **kwargs)

    return wrapped


def rows_of(law: Any, index: Any) -> Any:
    """Some rows of a law: its batch axes indexed as an array's are.

    Example:
        >>> import jax.numpy as jnp
        >>> law = Finite(jnp.log(jnp.full((3, 4, 2), 0.5)), [0, 1])
        >>> rows_of(law, (slice(None), jnp.array([True, False, False, True]))).batch_shape
        (3, 2)
    """
    if isinstance(law, Finite):
        return Finite(law.log_probs[index], law.values)
    full = law.broadcast_to(law.batch_shape) if hasattr(law, "broadcast_to") else law
    return jax.tree.map(lambda leaf: leaf[index], full)


class OneOf(constraints.Constraint):
    """The listed values, `[symbol, *event]`, and no others."""

    is_discrete = True

    def __init__(self, values):
        self.values = values
        self.event_dim = values.ndim - 1

    def __call__(self, value):
        return _place(value, self.values)[1]

    def __repr__(self) -> str:
        return f"OneOf({len(self.values)} values)"

    def tree_flatten(self):
        return (self.values,), (("values",), {"event_dim": self.event_dim})


def _place(value, values) -> tuple[jax.Array, jax.Array]:
    value = jnp.asarray(value)
    lead = value.ndim - (values.ndim - 1)
    matches = value.reshape(*value.shape[:lead], 1, *value.shape[lead:]) == values
    matches = matches.reshape(*value.shape[:lead], values.shape[0], -1).all(axis=-1)
    return jnp.argmax(matches, axis=-1), matches.any(axis=-1)


class Finite(dist.Distribution):
    """A law over the listed values of one site.

    Args:
        log_probs: natural logarithms, `[*batch, symbol]`. Rows sum to one in probability, or are -inf throughout where
            the evidence is impossible (no law conditions on it).
        values: what the symbols stand for, `[symbol, *event]`; 0 … K-1 if not given.

    Example:
        >>> import jax.numpy as jnp
        >>> law = Finite(jnp.log(jnp.array([0.25, 0.0, 0.75])))
        >>> print(law.to_numpy(), law.log_prob(1))
        [0.25 0.   0.75] -inf
    """

    arg_constraints = {}  # noqa: RUF012  (NumPyro's own convention)
    pytree_data_fields = ("log_probs", "values")
    has_enumerate_support = True

    def __init__(self, log_probs, values=None, *, validate_args: bool | None = None):
        wide = getattr(log_probs, "dtype", None) == np.float64
        with jax.enable_x64(True) if wide else contextlib.nullcontext():
            self.log_probs = jnp.asarray(log_probs)
            self.values = jnp.asarray(np.arange(self.log_probs.shape[-1]) if values is None else values)
        symbols = self.log_probs.shape[-1]
        if self.values.shape[0] != symbols:
            raise TunnelError(
                f"a finite law was given {symbols} log-probabilities for {self.values.shape[0]} values; give one per value"
            )
        super().__init__(self.log_probs.shape[:-1], self.values.shape[1:], validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return OneOf(self.values)

    @property
    @_in_own_precision
    def probs(self) -> jax.Array:
        """Probabilities, `[*batch, symbol]`."""
        return jnp.exp(self.log_probs)

    @property
    @_in_own_precision
    def impossible(self) -> jax.Array:
        """Where the evidence has probability zero, `[*batch]`: no row there."""
        return jnp.all(jnp.isneginf(self.log_probs), axis=-1)

    @_in_own_precision
    def index_of(self, value) -> tuple[jax.Array, jax.Array]:
        """The symbol of each value and whether it has one, `[*shape]` each."""
        return _place(value, self.values)

    @_in_own_precision
    def log_prob(self, value) -> jax.Array:
        """Natural logarithm of the probability; -inf for a value outside the support."""
        index, known = self.index_of(value)
        shape = jnp.broadcast_shapes(index.shape, self.batch_shape)
        log_probs = jnp.broadcast_to(self.log_probs, (*shape, self.log_probs.shape[-1]))
        chosen = jnp.take_along_axis(log_probs, jnp.broadcast_to(index, shape)[..., None], axis=-1)[..., 0]
        return jnp.where(known, chosen, -jnp.inf)

    @_in_own_precision
    def sample(self, key, sample_shape=()) -> jax.Array:
        """Draws, `[*sample_shape, *batch, *event]`."""
        index = jax.random.categorical(key, self.log_probs, shape=(*sample_shape, *self.batch_shape))
        return self.values[index]

    @_in_own_precision
    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """All values, `[symbol, *batch, *event]` (or with batch axes of size one)."""
        ones = (1,) * len(self.batch_shape)
        values = self.values.reshape(self.values.shape[0], *ones, *self.event_shape)
        if expand:
            values = jnp.broadcast_to(values, (values.shape[0], *self.batch_shape, *self.event_shape))
        return values

    @_in_own_precision
    def entropy(self) -> jax.Array:
        """Entropy in nats, `[*batch]`; zero probabilities contribute nothing."""
        finite = jnp.where(jnp.isneginf(self.log_probs), 0.0, self.log_probs)
        return -jnp.sum(self.probs * finite, axis=-1)

    def to_numpy(self) -> np.ndarray:
        """Probabilities as a NumPy array, `[*batch, symbol]`, in the precision they were computed in."""
        return np.exp(np.asarray(self.log_probs))
