"""Adding up evidence over the visible steps, with impossibility counted apart (0 x -inf would be NaN)."""

import jax
import jax.numpy as jnp


def evidence_before(log_likelihood: jax.Array, visible: jax.Array | None) -> jax.Array:
    """Sum of the visible earlier steps' log-likelihoods before each step.

    Args:
        log_likelihood: nats, `[..., step]`; -inf allowed.
        visible: bool `[step, step]` or None for all earlier steps.

    Returns:
        Nats, `[..., step]`.
    """
    impossible = jnp.isneginf(log_likelihood)
    finite = jnp.where(impossible, 0.0, log_likelihood)
    total, zeros = _prefix_sums(finite, visible), _prefix_sums(impossible.astype(finite.dtype), visible)
    return jnp.where(zeros > 0.5, -jnp.inf, total)


def _prefix_sums(terms: jax.Array, visible: jax.Array | None) -> jax.Array:
    if visible is not None:
        return terms @ visible.T.astype(terms.dtype)
    shifted = jnp.concatenate([jnp.zeros((*terms.shape[:-1], 1), terms.dtype), terms[..., :-1]], axis=-1)
    return jnp.cumsum(shifted, axis=-1)
