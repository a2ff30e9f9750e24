"""Rows of joint log-probabilities to laws."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp


def normalised(joint: jax.Array) -> jax.Array:
    """Log-probabilities that sum to one along the last axis; an impossible row stays -inf throughout."""
    total = logsumexp(joint, axis=-1, keepdims=True)
    return jnp.where(jnp.isneginf(total), -jnp.inf, joint - jnp.where(jnp.isneginf(total), 0.0, total))
