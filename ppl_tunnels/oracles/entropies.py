"""Entropies in nats without cancellation: log Γ and ψ enter by what they differ from their leading terms.

With δ and ρ from `log_gamma`, the entropy of Gamma(a, 1) is  1/2 log(2π a) + δ(a) + (a - 1) ρ(a), and so on.
"""

import functools

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.log_gamma import HALF_LOG_2PI, digamma_remainder, log_gamma_ratio, stirling_remainder


@jax.jit
def gamma_entropy(shape) -> jax.Array:
    """Of Gamma(shape, 1)."""
    return HALF_LOG_2PI + 0.5 * jnp.log(shape) + stirling_remainder(shape) + (shape - 1) * digamma_remainder(shape)


@jax.jit
def dirichlet_entropy(concentration) -> jax.Array:
    """Of Dirichlet(concentration), `[..., category]`: with A their sum, the log normaliser less the expected logarithms."""
    total, categories = jnp.sum(concentration, axis=-1), concentration.shape[-1]
    parts = stirling_remainder(concentration) + (concentration - 1) * digamma_remainder(concentration)
    parts = parts + HALF_LOG_2PI + 0.5 * jnp.log(concentration)
    whole = stirling_remainder(total) + (total - categories) * digamma_remainder(total)
    return jnp.sum(parts, axis=-1) - whole - HALF_LOG_2PI - (categories - 0.5) * jnp.log(total)


@jax.jit
def beta_entropy(heads, tails) -> jax.Array:
    return dirichlet_entropy(jnp.stack(jnp.broadcast_arrays(heads, tails), axis=-1))


@functools.partial(jax.jit, static_argnums=1)
def student_t_entropy(df, dimension: int) -> jax.Array:
    """Of Student's t with unit scale: (ν + d)/2 [ψ((ν + d)/2) - ψ(ν/2)] plus the log normaliser."""
    half, top = df / 2, (df + dimension) / 2
    digammas = jnp.log1p(dimension / df) - digamma_remainder(top) + digamma_remainder(half)
    normaliser = 0.5 * dimension * jnp.log(jnp.pi * df) - log_gamma_ratio(half, dimension / 2)
    return top * digammas + normaliser
