"""Entropies and divergences of laws of one family, in closed form (nats), without differences of large log-gammas.

With e(z) = log Γ(z) - z log z + z, ρ(z) = log z - ψ(z) = -e'(z), and the deviance d(x, m) = x log(x / m) + m - x ≥ 0,

    KL(Gamma(a, r) || Gamma(b, s))  = d(b, a s / r) + B(b, a),          B(b, a) = e(b) - e(a) + ρ(a)(b - a)
    KL(Dirichlet(a) || Dirichlet(b)) = sum of [d(b_i, |b| a_i / |a|) + B(b_i, a_i)] - B(|b|, |a|)

and the logarithm of the affinity (the integral of sqrt(p q)) is, with means c = (a + b) / 2 and t = (r + s) / 2,

    Gamma:      e(c) - e(a)/2 - e(b)/2 - [d(a, c r / t) + d(b, c s / t)] / 2
    Dirichlet:  sum of [e(c_i) - e(a_i)/2 - e(b_i)/2 - d(a_i, |a| c_i / |c|)/2 - d(b_i, |b| c_i / |c|)/2] - the e of the sums.

For Gaussians both are functions of the eigenvalues of one covariance relative to the other.

Source: Penny (2001) for the KL; Pardo (2006), chapter 2, for the affinities.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.oracles.log_gamma import deviance, digamma_remainder, log_gamma_excess


def log_affinity(p: dist.Distribution, q: dist.Distribution) -> jax.Array | None:
    """log of the integral of sqrt(p q), at most 0; None if the two are not of one family known here."""
    for kind, formula in _LOG_AFFINITY.items():
        if isinstance(p, kind) and isinstance(q, kind):
            return jnp.minimum(formula(p, q), 0.0)
    return None


def relative_entropy(p: dist.Distribution, q: dist.Distribution) -> jax.Array | None:
    """KL(p || q) in nats; None if the two are not of one family known here."""
    for kind, formula in _RELATIVE_ENTROPY.items():
        if isinstance(p, kind) and isinstance(q, kind):
            return jnp.maximum(formula(p, q), 0.0)
    return None


def normal_total_variation(p: exact.Normal, q: exact.Normal) -> jax.Array:
    """Between the two crossings of the densities, the narrower law has more mass; with equal scales there is one crossing."""
    swap = q.scale < p.scale
    narrow, wide = jnp.where(swap, q.scale, p.scale), jnp.where(swap, p.scale, q.scale)
    shift = jnp.where(swap, p.loc - q.loc, q.loc - p.loc) / narrow  # of the wider law, in units of the narrower
    ratio = narrow / wide
    one = jax.scipy.special.erf(jnp.abs(shift) / jnp.sqrt(8.0))
    # z² / 2 - (ratio (z - shift))² / 2 = log(1 / ratio), as a z² + 2 b z + c = 0.
    excess = (wide - narrow) / wide
    a = excess * (1 + ratio)
    b, c = ratio * ratio * shift, -(ratio * ratio * shift * shift) + 2 * jnp.log1p(-excess)
    root = jnp.sqrt(jnp.maximum(b * b - a * c, 0.0))
    far = -(b + jnp.where(b < 0, -root, root))
    first, second = far / a, c / jnp.where(far == 0, 1.0, far)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    two = _between(low, high) - _between(ratio * (low - shift), ratio * (high - shift))
    return jnp.clip(jnp.where(excess == 0, one, two), 0.0, 1.0)


def _between(low: jax.Array, high: jax.Array) -> jax.Array:
    """Standard normal mass of [low, high], from the tail in which both lie if they do."""
    return jnp.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _bregman(b: jax.Array, a: jax.Array) -> jax.Array:
    return log_gamma_excess(b) - log_gamma_excess(a) + digamma_remainder(a) * (b - a)


def _middle(a: jax.Array, b: jax.Array) -> jax.Array:
    return log_gamma_excess((a + b) / 2) - log_gamma_excess(a) / 2 - log_gamma_excess(b) / 2


def _gamma_kl(p: exact.Gamma, q: exact.Gamma) -> jax.Array:
    mean = p.concentration * (q.rate / p.rate)
    return deviance(q.concentration, mean) + _bregman(q.concentration, p.concentration)


def _gamma_affinity(p: exact.Gamma, q: exact.Gamma) -> jax.Array:
    shape, rate = (p.concentration + q.concentration) / 2, (p.rate + q.rate) / 2
    apart = deviance(p.concentration, shape * (p.rate / rate)) + deviance(q.concentration, shape * (q.rate / rate))
    return _middle(p.concentration, q.concentration) - apart / 2


def _pair(law: exact.Beta) -> jax.Array:
    return jnp.stack([law.concentration1, law.concentration0], axis=-1)


def _dirichlet_kl(a: jax.Array, b: jax.Array) -> jax.Array:
    first, second = jnp.sum(a, axis=-1), jnp.sum(b, axis=-1)
    parts = deviance(b, a * (second / first)[..., None]) + _bregman(b, a)
    return jnp.sum(parts, axis=-1) - _bregman(second, first)


def _dirichlet_affinity(a: jax.Array, b: jax.Array) -> jax.Array:
    first, second = jnp.sum(a, axis=-1), jnp.sum(b, axis=-1)
    middle, whole = (a + b) / 2, (first + second) / 2
    apart = deviance(a, middle * (first / whole)[..., None]) + deviance(b, middle * (second / whole)[..., None])
    return jnp.sum(_middle(a, b) - apart / 2, axis=-1) - _middle(first, second)


def _normal_kl(p: exact.Normal, q: exact.Normal) -> jax.Array:
    return 0.5 * (deviance(1.0, jnp.square(p.scale / q.scale)) + jnp.square((p.loc - q.loc) / q.scale))


def _normal_affinity(p: exact.Normal, q: exact.Normal) -> jax.Array:
    both = jnp.square(p.scale) + jnp.square(q.scale)
    spread = 0.5 * jnp.log1p(jnp.square(p.scale - q.scale) / (2 * p.scale * q.scale))
    return -spread - jnp.square(p.loc - q.loc) / (4 * both)


def _relative(p: exact.MultivariateNormal, q: exact.MultivariateNormal) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues of p's covariance in units of q's, and the shift between the means in the same basis, `[..., dimension]`."""
    shape = jnp.broadcast_shapes(p.scale_tril.shape, q.scale_tril.shape)
    lower = jnp.broadcast_to(q.scale_tril, shape)
    shift = jnp.broadcast_to((p.loc - q.loc)[..., None], (*shape[:-1], 1))
    both = jnp.concatenate([jnp.broadcast_to(p.scale_tril, shape), shift], axis=-1)
    white = jax.lax.linalg.triangular_solve(lower, both, left_side=True, lower=True)
    left, singular, _ = jnp.linalg.svd(white[..., :-1])
    return jnp.square(singular), jnp.einsum("...ij,...i->...j", left, white[..., -1])


def _multivariate_normal_kl(p: exact.MultivariateNormal, q: exact.MultivariateNormal) -> jax.Array:
    eigenvalues, shift = _relative(p, q)
    return 0.5 * jnp.sum(deviance(1.0, eigenvalues) + jnp.square(shift), axis=-1)


def _multivariate_normal_affinity(p: exact.MultivariateNormal, q: exact.MultivariateNormal) -> jax.Array:
    eigenvalues, shift = _relative(p, q)
    root = jnp.sqrt(eigenvalues)
    spread = 0.5 * jnp.log1p(jnp.square(1 - root) / (2 * root))
    return -jnp.sum(spread + jnp.square(shift) / (4 * (1 + eigenvalues)), axis=-1)


_RELATIVE_ENTROPY = {
    exact.Normal: _normal_kl,
    exact.MultivariateNormal: _multivariate_normal_kl,
    exact.Gamma: _gamma_kl,
    exact.Beta: lambda p, q: _dirichlet_kl(_pair(p), _pair(q)),
    exact.Dirichlet: lambda p, q: _dirichlet_kl(p.concentration, q.concentration),
}
_LOG_AFFINITY = {
    exact.Normal: _normal_affinity,
    exact.MultivariateNormal: _multivariate_normal_affinity,
    exact.Gamma: _gamma_affinity,
    exact.Beta: lambda p, q: _dirichlet_affinity(_pair(p), _pair(q)),
    exact.Dirichlet: lambda p, q: _dirichlet_affinity(p.concentration, q.concentration),
}
