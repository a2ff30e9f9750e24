"""Exponential families of priors: p(x) proportional to exp(<eta, T(x)>) h(x), with everything conjugate updating needs.

A likelihood exp(<s, T(x)> + c) turns eta into eta + s and has evidence exp(c) Z(eta + s) / Z(eta), Z the normaliser. The table
holds no pairs of prior and likelihood: whatever likelihood is linear in T(x) is conjugate, and s and c are found by solving.

Source: Diaconis and Ylvisaker (1979).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles import parametric
from ppl_tunnels.oracles.log_gamma import log_gamma_ratio


@dataclasses.dataclass(frozen=True)
class Family:
    """One exponential family.

    Attributes:
        name: as reports call it.
        event_dim: axes of one value.
        natural: NumPyro law -> its parameters eta, `[*batch, statistic]`.
        statistics: values `[*batch, *event]` -> T(x), `[*batch, statistic]`.
        points: number of statistics -> values at which the statistics span, `[statistic + 1, *event]`, the first of them
            the base point.
        held_out: number of statistics, how many, generator -> other values, `[how many, *event]`.
        log_evidence: (eta, s) -> log Z(eta + s) - log Z(eta), `[*batch]`, without cancellation.
        law: eta `[*batch, statistic]` and where the evidence is impossible -> the law.
    """

    name: str
    event_dim: int
    natural: Callable[[dist.Distribution], jax.Array]
    statistics: Callable[[jax.Array], jax.Array]
    points: Callable[[int], np.ndarray]
    held_out: Callable[[int, int, np.random.Generator], np.ndarray]
    log_evidence: Callable[[jax.Array, jax.Array], jax.Array]
    law: Callable[[jax.Array, jax.Array], dist.Distribution]


def _parameters(*names: str) -> Callable[[dist.Distribution], jax.Array]:
    def natural(fn):
        return jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(getattr(fn, name)) for name in names)), axis=-1)

    return natural


def _dirichlet_evidence(eta: jax.Array, s: jax.Array) -> jax.Array:
    return jnp.sum(log_gamma_ratio(eta, s), axis=-1) - log_gamma_ratio(jnp.sum(eta, axis=-1), jnp.sum(s, axis=-1))


def _gamma_evidence(eta: jax.Array, s: jax.Array) -> jax.Array:
    shape, rate = eta[..., 0], eta[..., 1]
    more_shape, more_rate = s[..., 0], s[..., 1]
    return (
        log_gamma_ratio(shape, more_shape)
        - more_shape * jnp.log(rate + more_rate)
        - shape * jnp.log1p(more_rate / rate)
    )


def _simplex_points(size: int) -> np.ndarray:
    raised = np.concatenate([np.ones((1, size)), np.ones((size, size)) + 2 * np.eye(size)])
    return raised / raised.sum(axis=1, keepdims=True)


BETA = Family(
    name="Beta",
    event_dim=0,
    natural=_parameters("concentration1", "concentration0"),
    statistics=lambda x: jnp.stack([jnp.log(x), jnp.log1p(-x)], axis=-1),
    points=lambda _: np.array([0.5, 0.25, 0.75]),
    held_out=lambda _, count, generator: generator.uniform(0.1, 0.9, count),
    log_evidence=_dirichlet_evidence,
    law=lambda eta, impossible: parametric.Beta(eta[..., 0], eta[..., 1], impossible=impossible),
)

GAMMA = Family(
    name="Gamma",
    event_dim=0,
    natural=_parameters("concentration", "rate"),
    statistics=lambda x: jnp.stack([jnp.log(x), -x], axis=-1),
    points=lambda _: np.array([1.0, 0.5, 2.0]),
    held_out=lambda _, count, generator: generator.uniform(0.4, 2.5, count),
    log_evidence=_gamma_evidence,
    law=lambda eta, impossible: parametric.Gamma(eta[..., 0], eta[..., 1], impossible=impossible),
)


def _dirichlet_natural(fn: Any) -> jax.Array:
    return jnp.asarray(fn.concentration)


DIRICHLET = Family(
    name="Dirichlet",
    event_dim=1,
    natural=_dirichlet_natural,
    statistics=jnp.log,
    points=_simplex_points,
    held_out=lambda size, count, generator: generator.dirichlet(np.full(size, 4.0), count),
    log_evidence=_dirichlet_evidence,
    law=lambda eta, impossible: parametric.Dirichlet(eta, impossible=impossible),
)

FAMILIES: dict[type, Family] = {dist.Beta: BETA, dist.Gamma: GAMMA, dist.Dirichlet: DIRICHLET}


def family_of(fn: dist.Distribution) -> Family | None:
    """The family of an unwrapped law, or None if the table has none."""
    return next((family for kind, family in FAMILIES.items() if isinstance(fn, kind)), None)
