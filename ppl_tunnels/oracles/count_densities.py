"""Log-probabilities of counts (nats), without differences of large log-gammas.

With e(z) = log Γ(z) - z log z + z and f(k) = log k! - k log k + k (what is left of a log-gamma when its large terms have
cancelled) and the deviance d, both from `log_gamma`:

    Poisson(k; λ)              -d(k, λ) - f(k)
    Binomial(k; n, p)          -d(k, n p) - d(n - k, n (1-p)) + f(n) - f(k) - f(n - k)
    NegativeBinomial(k; a, p)  -d(a, (a+k) p) - d(k, (a+k)(1-p)) + e(a+k) - e(a) - f(k)

and a Dirichlet-multinomial law is independent negative binomials with p = A / (A + n), A the sum of a_i, given their sum n.

Source: Loader (2000), "Fast and accurate computation of binomial probabilities", of which these are the compound cases.
"""

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.log_gamma import deviance, log_factorial_excess, log_gamma_excess


@jax.jit
def poisson(k, rate) -> jax.Array:
    return -deviance(k, rate) - log_factorial_excess(k)


@jax.jit
def binomial(k, n, p, q) -> jax.Array:
    """q is 1 - p, for callers who know it better than by subtraction."""
    choices = log_factorial_excess(n) - log_factorial_excess(k) - log_factorial_excess(n - k)
    return choices - deviance(k, n * p) - deviance(n - k, n * q)


@jax.jit
def negative_binomial(k, shape, p, q) -> jax.Array:
    """Γ(a + k) / (Γ(a) k!) p^a q^k with q = 1 - p."""
    total = shape + k
    weights = log_gamma_excess(total) - log_gamma_excess(shape) - log_factorial_excess(k)
    return weights - deviance(shape, total * p) - deviance(k, total * q)


@jax.jit
def gamma_poisson(k, shape, rate) -> jax.Array:
    """Poisson(θ) with θ ~ Gamma(shape, rate)."""
    return negative_binomial(k, shape, 1 / (1 + 1 / rate), 1 / (1 + rate))


@jax.jit
def dirichlet_multinomial(counts, concentration, total_count) -> jax.Array:
    """`[..., category]` counts of total_count draws from θ ~ Dirichlet(concentration)."""
    prior = jnp.sum(concentration, axis=-1)
    total = prior + total_count
    p, q = (prior / total)[..., None], (total_count / total)[..., None]
    parts = jnp.sum(negative_binomial(counts, concentration, p, q), axis=-1)
    return parts - (log_gamma_excess(total) - log_gamma_excess(prior) - log_factorial_excess(total_count))


@jax.jit
def beta_binomial(k, heads, tails, n) -> jax.Array:
    """k successes among n trials of probability θ ~ Beta(heads, tails)."""
    prior = heads + tails
    total = prior + n
    p, q = prior / total, n / total
    parts = negative_binomial(k, heads, p, q) + negative_binomial(n - k, tails, p, q)
    return parts - (log_gamma_excess(total) - log_gamma_excess(prior) - log_factorial_excess(n))


@jax.jit
def beta_geometric(k, heads, tails) -> jax.Array:
    """k failures before the first success, of probability θ ~ Beta(heads, tails): one success, in the last place."""
    return beta_binomial(jnp.ones_like(k * 1.0), heads, tails, k + 1.0) - jnp.log1p(k)


@jax.jit
def multinomial(counts, n, probs) -> jax.Array:
    """`[..., category]` counts of n draws."""
    parts = deviance(counts, n[..., None] * probs) + log_factorial_excess(counts)
    return log_factorial_excess(n) - jnp.sum(parts, axis=-1)
