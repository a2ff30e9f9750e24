"""What all exact parametric laws have in common: double precision, marked impossible evidence, shapes read off the parameters.

NumPyro's distributions keep their batch shape beside their parameters, so that it is stale once `jax.vmap` or an index has
changed them, and keep derived distributions as further leaves. Here the parameters (and `impossible`) are all there is.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer

# What a caller in single precision may use: run in the precision of the law instead.
_METHODS = (
    "log_prob",
    "unchecked_log_prob",
    "entropy",
    "cdf",
    "icdf",
    "sample",
    "rsample",
    "mean",
    "variance",
    "finite",
    "covariance_matrix",
)


def in_own_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a double-precision law be used by a caller in single precision without being truncated."""

    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            return method(self, *args, **kwargs)
        with jax.enable_x64(True):
            return method(self, *args, **kwargs)

    return wrapped


class ExactLaw(dist.Distribution):
    """Base of the laws that oracles return. Subclasses name their parameters and write a log-density.

    Attributes:
        parameters: name of each parameter to how many of its last axes belong to one event.
        counts: the parameters that are whole numbers.
        static: what is known while a program is traced, and stays when axes come and go.
        impossible: where the evidence that the law conditions on has probability zero, bool, `[*batch]`: no law there.
            `log_prob` is -inf for every value, `entropy` and `cdf` are 0.
    """

    parameters: ClassVar[dict[str, int]] = {}
    counts: ClassVar[tuple[str, ...]] = ()
    static: ClassVar[tuple[str, ...]] = ()
    impossible: jax.Array

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _METHODS:
            member = inspect.getattr_static(cls, name, None)
            if isinstance(member, property):
                if not hasattr(member.fget, "__wrapped__"):
                    setattr(cls, name, property(in_own_precision(member.fget)))
            elif inspect.isfunction(member) and getattr(member, "_own_precision", None) is None:
                wrapped = in_own_precision(member)
                wrapped._own_precision = True
                setattr(cls, name, wrapped)

    def _fill(self, impossible: Any, validate_args: bool | None, **values: Any) -> None:
        """Store the parameters as arrays of the full batch shape, in double precision unless traced in single."""
        leaves = [*jax.tree.leaves(values), *([] if impossible is None else [impossible])]
        traced = any(isinstance(leaf, Tracer) for leaf in leaves)
        with jax.enable_x64(True if not traced else jax.config.jax_enable_x64):
            kinds = {name: jnp.result_type(int if name in self.counts else float) for name in values}
            arrays = {name: jnp.asarray(value).astype(kinds[name]) for name, value in values.items()}
            mask = jnp.asarray(False if impossible is None else impossible, bool)
            shapes = [_split(array.shape, self.parameters[name])[0] for name, array in arrays.items()]
            batch = jnp.broadcast_shapes(mask.shape, *shapes)
            for name, array in arrays.items():
                event = _split(array.shape, self.parameters[name])[1]
                setattr(self, name, jnp.broadcast_to(array, (*batch, *event)))
            self.impossible = jnp.broadcast_to(mask, batch)
        self._validate_args = bool(validate_args)
        if validate_args:
            self.validate_args(strict=False)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of `impossible`: every parameter has it too."""
        return tuple(jnp.shape(self.impossible))

    @property
    def event_shape(self) -> tuple[int, ...]:
        name, event_dim = next((item for item in self.parameters.items() if item[1]), (None, 0))
        return () if name is None else tuple(jnp.shape(getattr(self, name))[-1:] if event_dim else ())

    @property
    def _batch_shape(self) -> tuple[int, ...]:
        return self.batch_shape

    @property
    def _event_shape(self) -> tuple[int, ...]:
        return self.event_shape

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        names = (*self.parameters, "impossible")
        aux = (self._validate_args, *(self.__dict__.get(name) for name in self.static))
        return tuple(self.__dict__.get(name) for name in names), aux

    @classmethod
    def tree_unflatten(cls, aux_data: tuple[Any, ...], params: tuple[Any, ...]) -> "ExactLaw":
        law = cls.__new__(cls)
        for name, value in zip((*cls.parameters, "impossible"), params, strict=True):
            setattr(law, name, value)
        for name, value in zip(("_validate_args", *cls.static), aux_data, strict=True):
            setattr(law, name, value)
        return law

    @in_own_precision
    def broadcast_to(self, batch: tuple[int, ...]) -> "ExactLaw":
        """The same law with a larger batch shape."""
        leaves = {name: _broadcast(getattr(self, name), batch, dim) for name, dim in self.parameters.items()}
        children = (*leaves.values(), jnp.broadcast_to(self.impossible, batch))
        return type(self).tree_unflatten(self.tree_flatten()[1], children)

    def _log_density(self, value: jax.Array) -> jax.Array:
        """Inside the support and at its edges; anything, NaN included, outside."""
        raise NotImplementedError

    def _entropy(self) -> jax.Array:
        raise NotImplementedError(f"{type(self).__name__} has no entropy in closed form")

    def _cdf(self, value: jax.Array) -> jax.Array:
        raise NotImplementedError(f"{type(self).__name__} has no cumulative distribution function")

    def _inside(self, value: jax.Array) -> jax.Array:
        support: Any = self.support
        return support(value)

    def log_prob(self, value, intermediates=None) -> jax.Array:
        """Logarithm of the density or probability in nats; -inf outside the support, never NaN.

        Args:
            value: `[*sample, *batch, *event]`, broadcast against the batch.
        """
        value = jnp.asarray(value)
        inside = self._inside(value) & ~self.impossible
        return jnp.where(inside, self._log_density(value), -jnp.inf)

    def unchecked_log_prob(self, value) -> jax.Array:
        """The formula of `log_prob` without a look whether the value is in the support: counts may be real numbers."""
        return self._log_density(jnp.asarray(value))

    def entropy(self) -> jax.Array:
        """Entropy in nats (of a density: differential), `[*batch]`."""
        return jnp.where(self.impossible, 0.0, self._entropy())

    def cdf(self, value) -> jax.Array:
        """P(X ≤ value), `[*sample, *batch]`."""
        return jnp.where(self.impossible, 0.0, self._cdf(jnp.asarray(value)))

    def to_numpy(self) -> dict[str, np.ndarray]:
        """The parameters as float64 arrays of the full batch shape, and "impossible" (bool)."""
        arrays = {name.rstrip("_"): np.asarray(getattr(self, name), np.float64) for name in self.parameters}
        return {**arrays, "impossible": np.asarray(self.impossible)}


def _broadcast(array: jax.Array, batch: tuple[int, ...], event_dim: int) -> jax.Array:
    return jnp.broadcast_to(array, (*batch, *_split(array.shape, event_dim)[1]))


def _split(shape: tuple[int, ...], event_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    cut = len(shape) - event_dim
    return shape[:cut], shape[cut:]
