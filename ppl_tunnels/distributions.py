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
