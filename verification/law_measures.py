"""How each divergence between two laws is found: over finitely many values, in closed form, or as a sum or an integral."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.verification import divergences, integrands
from ppl_tunnels.verification.family_divergences import log_affinity, normal_total_variation, relative_entropy

# Nats in a bit.
BIT = np.log(2.0)
# How much a measure of logarithms may change for each unit of mass that is missed: logarithms beyond it are not met.
NATS_PER_MASS = 50.0


@dataclasses.dataclass(frozen=True)
class Measure:
    """One divergence.

    Attributes:
        name: as errors call it.
        of_finite: probabilities over common values -> values in the unit.
        in_closed_form: laws -> values in the unit, or None.
        integrand: of its sum or integral.
        unit: what one nat (or 1) is.
        of_parts: values of independent parts and the axes of the parts -> that of the whole; None if there is no such rule.
        most: the largest value there is.
        per_mass: by how much it may change for each unit of mass that was not found, in nats or without unit.
        kinked: whether the integrand has kinks.
    """

    name: str
    of_finite: Callable[[np.ndarray, np.ndarray], np.ndarray]
    in_closed_form: Callable[[dist.Distribution, dist.Distribution], jax.Array | None]
    integrand: integrands.PairIntegrand
    unit: float
    of_parts: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] | None = None
    most: float = 1.0
    per_mass: float = 1.0
    kinked: bool = False


def _closed_kl(p: dist.Distribution, q: dist.Distribution) -> jax.Array | None:
    nats = relative_entropy(p, q)
    return None if nats is None else nats / BIT


def _closed_hellinger(p: dist.Distribution, q: dist.Distribution) -> jax.Array | None:
    affinity = log_affinity(p, q)
    return None if affinity is None else 0.0 - jnp.expm1(affinity)  # never -0


def _closed_total_variation(p: dist.Distribution, q: dist.Distribution) -> jax.Array | None:
    if isinstance(p, exact.Normal) and isinstance(q, exact.Normal):
        return normal_total_variation(p, q)
    return None


def _finite_hellinger(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.clip(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=-1), 0.0, 1.0)


def _hellinger_of_parts(parts: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    with np.errstate(divide="ignore"):  # parts without overlap
        return 0.0 - np.expm1(np.log1p(-np.minimum(parts, 1.0)).sum(axis=axes))


KL = Measure(
    "KL divergence",
    divergences.kl_bits,
    _closed_kl,
    integrands.kl,
    1 / BIT,
    lambda parts, axes: parts.sum(axis=axes),
    most=np.inf,
    per_mass=NATS_PER_MASS,
)
TOTAL_VARIATION = Measure(
    "total variation",
    divergences.total_variation,
    _closed_total_variation,
    integrands.total_variation,
    1.0,
    kinked=True,
)
JENSEN_SHANNON = Measure(
    "Jensen-Shannon divergence",
    divergences.jensen_shannon_bits,
    lambda p, q: None,
    integrands.jensen_shannon,
    1 / BIT,
)
SQUARED_HELLINGER = Measure(
    "squared Hellinger distance",
    _finite_hellinger,
    _closed_hellinger,
    integrands.squared_hellinger,
    1.0,
    _hellinger_of_parts,
)
