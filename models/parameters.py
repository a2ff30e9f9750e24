"""What a parameter says about itself: whether it is a matrix that Muon may orthogonalise, and along which axes.

Muon takes steepest descent steps under the spectral norm, which has a meaning for a matrix that maps one activation to
another, and none for a table of embeddings or a filter bank (Bernstein & Newhouse 2024). So each architecture marks
its matrices where it creates them, and the optimiser reads the marks: no list of names to keep in step.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

MUON_AXES = "muon_axes"

# Tables start small, so that the first logits are nearly uniform. On the 20-symbol bijection (one layer, width 32,
# 2,500 steps of Muon) 0.02 ends at 3.3e-5 bits of KL, unit embeddings at 1.1e-4.
TABLE_DEVIATION = 0.02


def matrix(
    key: jax.Array, shape: tuple[int, ...], *, axes: tuple[int, int] = (0, 1), scale: float = 1.0
) -> nnx.Param[jax.Array]:
    """A float32 weight matrix, normal with variance scale / inputs, marked for Muon.

    Args:
        key: a JAX key.
        shape: of the array; axes beyond the two of the matrix are a batch of independent matrices.
        axes: (input axis, output axis).
        scale: variance of an output over the variance of an input at initialisation.

    Example:
        >>> import jax
        >>> kernel = matrix(jax.random.key(0), (3, 32, 64), axes=(1, 2))
        >>> kernel[...].shape, kernel.get_metadata("muon_axes")
        ((3, 32, 64), (1, 2))
    """
    deviation = (scale / shape[axes[0]]) ** 0.5
    return nnx.Param(deviation * jax.random.normal(key, shape, jnp.float32), **{MUON_AXES: axes})


def table(key: jax.Array, shape: tuple[int, ...]) -> nnx.Param[jax.Array]:
    """A float32 table of embeddings, positions or outputs: small normal entries, left to AdamW."""
    return nnx.Param(TABLE_DEVIATION * jax.random.normal(key, shape, jnp.float32))


def ones(shape: tuple[int, ...]) -> nnx.Param[jax.Array]:
    """A float32 gain that starts as the identity."""
    return nnx.Param(jnp.ones(shape, jnp.float32))


def count_parameters(model: Any) -> int:
    """How many numbers training changes in a Flax module."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def map_parameters(function: Callable[[nnx.Param], object], parameters: nnx.State) -> object:
    """A tree like `parameters` with each whole `Param`, metadata included, replaced by `function` of it."""
    return jax.tree.map(function, parameters, is_leaf=lambda node: isinstance(node, nnx.Variable))
