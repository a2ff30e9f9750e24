"""What training minimises, and what it is measured against.

For targets t (the exact law p, or a one-hot of the value drawn) and the model's law q,

    loss = -Σ_v t_v log q_v,    irreducible = -Σ_v t_v log p_v,    KL(p ‖ q) = Σ_v p_v (log p_v - log q_v),

averaged over the scored predictions of a batch. With oracle targets loss = irreducible + KL, and the irreducible part
is the oracle's entropy; with sampled ones that holds on average.
"""

import jax
import jax.numpy as jnp


def cross_entropy(targets: jax.Array, log_q: jax.Array) -> jax.Array:
    """Mean over predictions of -Σ targets * log_q, in nats, a scalar.

    Args:
        targets: non-negative weights `[..., symbol]`. A prediction whose weights are all zero does not count: a label
            of -1 as a one-hot, the law given impossible evidence.
        log_q: log-probabilities `[..., symbol]`; -inf where the target is zero is legal, in the gradient too.

    Example:
        >>> import jax.numpy as jnp
        >>> targets, log_q = jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.array([[-jnp.inf, 0.0], [-jnp.inf, 0.0]])
        >>> abs(float(cross_entropy(targets, log_q)))
        0.0
    """
    counted = targets > 0
    # The inner `where` keeps 0 * inf out of the gradient, the outer one out of the value.
    terms = jnp.where(counted, targets * jnp.where(counted, log_q, 0.0), 0.0)
    predictions = jnp.sum(jnp.any(counted, axis=-1))
    return -jnp.sum(terms) / jnp.maximum(predictions, 1).astype(terms.dtype)


def kl_divergence(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
    """Mean over predictions of KL(p ‖ q), in nats, a scalar; inf where q rules out what p allows."""
    possible = log_p > -jnp.inf
    # One sum of differences: subtracting an entropy from a cross-entropy would cancel the digits that matter.
    difference = jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)
    return jnp.mean(jnp.sum(jnp.exp(log_p) * difference, axis=-1))


def one_hot_targets(labels: jax.Array, symbols: int) -> jax.Array:
    """Labels `[...]` as float32 one-hot rows `[..., symbol]`; a label outside 0 … symbols-1 is a row of zeros."""
    return jax.nn.one_hot(labels, symbols, dtype=jnp.float32)
