"""Laws the tunnels need and NumPyro lacks."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints


class _Permutation(constraints.ParameterFreeConstraint):
    """Vectors that hold each of 0 … size-1 once."""

    is_discrete = True
    event_dim = 1

    def __call__(self, value):
        return jnp.all(jnp.sort(value, axis=-1) == jnp.arange(value.shape[-1]), axis=-1)

    def feasible_like(self, prototype):
        return jnp.broadcast_to(jnp.arange(prototype.shape[-1]), prototype.shape)


class RandomPermutation(dist.Distribution):
    """A uniformly random permutation of 0 … size-1: each of the `size`! orders has the same probability.

    Args:
        size: how many items.

    Example:
        >>> RandomPermutation(3).enumerate_support().shape
        (6, 3)
    """

    arg_constraints = {}  # noqa: RUF012  (NumPyro's own convention)
    pytree_aux_fields = ("size",)
    has_enumerate_support = True

    def __init__(self, size: int, *, validate_args: bool | None = None):
        if size < 1:
            raise ValueError(f"RandomPermutation was given size {size}; expected at least 1")
        self.size = int(size)
        super().__init__((), (self.size,), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Permutations of as many items."""
        return _Permutation()

    @property
    def support_size(self) -> int:
        """How many values there are, known without listing them."""
        return math.factorial(self.size)

    @property
    def element_support(self) -> np.ndarray:
        """What one element can be, `[size]`."""
        return np.arange(self.size)

    def sample(self, key, sample_shape=()) -> jax.Array:
        """Draws, `[*sample_shape, size]`."""
        # Sorting independent uniforms is unbiased up to ties, which double precision leaves at about size² / 2⁵³.
        uniforms = jax.random.uniform(key, (*sample_shape, self.size))
        return jnp.argsort(uniforms, axis=-1)

    def log_prob(self, value) -> jax.Array:
        """-log(size!) nats for a permutation, -inf for anything else."""
        return jnp.where(self.support(value), -math.lgamma(self.size + 1), -jnp.inf)

    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """All permutations, `[size!, size]`, in lexicographic order."""
        return jnp.asarray(np.array(list(itertools.permutations(range(self.size)))))


class UniformOver(dist.Distribution):
    """Uniform over the numbers 0 … size-1 that a mask allows: n allowed ones have probability 1/n each, any other none.

    Drawing takes one uniform number a draw, where a Categorical takes one a symbol. The support is all of 0 … size-1 whatever
    the mask, so the mask may depend on what was drawn before. Where nothing is allowed there is no law: every number has
    log-probability -inf, and a draw is 0.

    Args:
        allowed: booleans, `[*batch, size]`.

    Example:
        >>> import jax.numpy as jnp
        >>> law = UniformOver(jnp.array([True, False, True, True]))
        >>> print(law.log_prob(jnp.arange(4)).round(4))
        [-1.0986    -inf -1.0986 -1.0986]
    """

    arg_constraints = {"allowed": constraints.independent(constraints.boolean, 1)}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(self, allowed, *, validate_args: bool | None = None):
        kind, shape = jnp.result_type(allowed), jnp.shape(allowed)
        if kind != jnp.bool_ or not shape or not shape[-1]:
            raise ValueError(
                f"UniformOver was given {kind} of shape {shape}; expected booleans [..., size], at least one: say which numbers "
                "are allowed"
            )
        self.allowed = jnp.asarray(allowed)
        super().__init__(shape[:-1], (), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """The numbers 0 … size-1, allowed or not."""
        return constraints.integer_interval(0, self.support_size - 1)

    @property
    def support_size(self) -> int:
        """How many numbers there are, allowed or not."""
        return self.allowed.shape[-1]

    def sample(self, key, sample_shape=()) -> jax.Array:
        """Draws, `[*sample_shape, *batch]`."""
        allowed_so_far = jnp.cumsum(self.allowed, axis=-1)
        count = allowed_so_far[..., -1]
        # A uniform number below 1 stays below its whole multiples when rounded, in either precision; ranks have their bias, of
        # about size / 2⁵² (double) or size / 2²³.
        rank = jnp.floor(jax.random.uniform(key, (*sample_shape, *self.allowed.shape[:-1])) * count)
        index = jnp.sum(allowed_so_far <= rank[..., None], axis=-1)
        return jnp.where(count > 0, index, 0)

    def log_prob(self, value) -> jax.Array:
        """-log n nats for each of n allowed numbers, -inf for anything else."""
        value, size = jnp.asarray(value), self.support_size
        inside = self.support(value)
        index = jnp.where(inside, value, 0).astype(int)
        shape = jnp.broadcast_shapes(index.shape, self.allowed.shape[:-1])
        allowed = jnp.broadcast_to(self.allowed, (*shape, size))
        chosen = jnp.take_along_axis(allowed, jnp.broadcast_to(index, shape)[..., None], axis=-1)[..., 0]
        count = jnp.maximum(jnp.sum(self.allowed, axis=-1), 1)
        return jnp.where(inside & chosen, -jnp.log(count), -jnp.inf)

    @property
    def probs(self) -> jax.Array:
        """The probability of every number, `[*batch, size]`; zeros where nothing is allowed."""
        return self.allowed / jnp.maximum(jnp.sum(self.allowed, axis=-1, keepdims=True), 1)

    def entropy(self) -> jax.Array:
        """log n nats, `[*batch]`; 0 where nothing is allowed."""
        return jnp.log(jnp.maximum(jnp.sum(self.allowed, axis=-1), 1))

    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """The numbers 0 … size-1, allowed or not, `[size, *batch]` (or with batch axes of size one)."""
        batch = self.allowed.shape[:-1]
        values = jnp.arange(self.support_size).reshape(-1, *[1] * len(batch))
        return jnp.broadcast_to(values, (self.support_size, *batch)) if expand else values
