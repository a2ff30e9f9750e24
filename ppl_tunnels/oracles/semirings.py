"""Sums of products of probabilities, in linear space or by logarithms.

Linear space is exact and quick as long as nothing underflows; logarithms never do. A factor of zero makes a product zero,
whatever comes after it, even NaN: once something is impossible a program need not state any law.
"""

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Semiring(NamedTuple):
    """How to multiply and add.

    Attributes:
        zero, one: the numbers.
        of_log: from logarithms.
        of_probability: from probabilities.
        log: to logarithms.
        times: the product; of whatever follows a zero, zero.
        total: sum over axes.
        over: a quotient; zero over zero is zero.
    """

    zero: float
    one: float
    of_log: Callable[[jax.Array], jax.Array]
    of_probability: Callable[[jax.Array], jax.Array]
    log: Callable[[jax.Array], jax.Array]
    times: Callable[[jax.Array, jax.Array], jax.Array]
    total: Callable[..., jax.Array]
    over: Callable[[jax.Array, jax.Array], jax.Array]


def _logsumexp(x: jax.Array, axis) -> jax.Array:
    largest = jnp.max(x, axis=axis, keepdims=True, initial=-jnp.inf)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return jnp.log(jnp.sum(jnp.exp(x - largest), axis=axis)) + jnp.squeeze(largest, axis=axis)


# Sums of so few terms are written out: compiled together with what makes the terms, which then need not be stored.
_MOST_WRITTEN_OUT = 32


def _sum(x: jax.Array, axis) -> jax.Array:
    axes = sorted({a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)}, reverse=True)
    for each in axes:
        if x.shape[each] == 1:
            x = jnp.squeeze(x, axis=each)
        elif 1 < x.shape[each] <= _MOST_WRITTEN_OUT:
            x = functools.reduce(
                operator.add, [jax.lax.index_in_dim(x, i, each, keepdims=False) for i in range(x.shape[each])]
            )
        else:
            x = jnp.sum(x, axis=each)
    return x


LINEAR = Semiring(
    zero=0.0,
    one=1.0,
    of_log=jnp.exp,
    of_probability=lambda p: p,
    log=jnp.log,
    times=lambda a, b: jnp.where(a == 0, 0.0, a * b),
    total=_sum,
    over=lambda a, b: a / jnp.where(b == 0, 1.0, b),
)

LOG = Semiring(
    zero=-jnp.inf,
    one=0.0,
    of_log=lambda x: x,
    of_probability=jnp.log,
    log=lambda x: x,
    times=lambda a, b: jnp.where(jnp.isneginf(a), -jnp.inf, a + b),
    total=_logsumexp,
    over=lambda a, b: jnp.where(jnp.isneginf(b), a, a - b),
)
