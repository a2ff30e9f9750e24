"""Divergences and entropies of one-dimensional densities by integration, with error estimates.

The line coordinate of `line_coordinates` is cut at the quantiles of both laws, integrated piece by piece, and extrapolated
beyond its limits as an exponential, which is what power tails and edges are there. Along with the measure itself the masses
of both laws are integrated: how far they are from 1 is part of the error stated.
"""

import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.verification.edges import edges_between
from ppl_tunnels.verification.integrands import PairIntegrand
from ppl_tunnels.verification.integration import integrate
from ppl_tunnels.verification.line_coordinates import (
    Coordinate,
    bounds,
    common_coordinate,
    inner_ends,
    log_density,
)
from ppl_tunnels.verification.places import places
from ppl_tunnels.verification.tails import measured_tail

# Of an integral of a density; less mass than this is not missing.
_ROUNDING = 1e-13


def pair(
    p: dist.Distribution, q: dist.Distribution, measure: PairIntegrand, per_mass: float
) -> tuple[np.ndarray, np.ndarray]:
    """A measure of two laws of batch shape `[row]`, and the error, `[row]` each, in nats (or without unit).

    Args:
        p, q: one-dimensional, with densities.
        measure: its integrand.
        per_mass: by how much the measure may change for each unit of mass that was not found.
    """
    ends = [bounds(p), bounds(q)]
    where = [places(p), places(q)]
    coordinate = common_coordinate(ends, np.concatenate([each.reshape(len(each), -1) for each in where], axis=1))
    of_p, of_q = log_density(p, coordinate), log_density(q, coordinate)

    def integrands(rows, z):
        (first, _), (second, _) = of_p(rows, z), of_q(rows, z)
        return np.stack([measure(first, second), np.exp(first), np.exp(second)], axis=-1)

    return _integrated(integrands, coordinate, where, ends, per_mass)


def entropy(p: dist.Distribution, per_mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Differential entropy in nats of a law of batch shape `[row]`, and the error; `per_mass` as for `pair`."""
    ends, where = [bounds(p)], [places(p)]
    coordinate = common_coordinate(ends, where[0].reshape(len(where[0]), -1))
    of_p = log_density(p, coordinate)

    def integrands(rows, z):
        density, jacobian = of_p(rows, z)
        mass = np.exp(density)
        return np.stack([np.where(mass > 0, -mass * np.where(mass > 0, density - jacobian, 0.0), 0.0), mass], axis=-1)

    return _integrated(integrands, coordinate, where, ends, per_mass)


def _integrated(integrands, coordinate: Coordinate, where, ends, per_mass: float) -> tuple[np.ndarray, np.ndarray]:
    count = len(where[0])
    infinite = np.zeros(count, bool)

    def finite(rows, z):
        values = integrands(rows, z)
        beyond = np.isinf(values[..., 0])
        np.logical_or.at(infinite, rows, beyond.any(axis=-1))
        values[..., 0] = np.where(beyond, 0.0, values[..., 0])
        return values

    inner = [coordinate.place(each) for each in where]
    marks = [coordinate.place(end[:, None])[:, 0] for end in inner_ends(ends)]
    cut = edges_between(inner, marks, coordinate.limits())
    undefined = np.isnan(cut).any(axis=1)  # neither law has its mass anywhere
    cut[undefined] = np.linspace(*coordinate.limits(), cut.shape[1])
    inside = integrate(finite, cut)
    value, error = inside.value.copy(), inside.error[:, 0]
    for end, sign in ((cut[:, 0], -1.0), (cut[:, -1], 1.0)):
        rest, doubt, endless = measured_tail(finite, end, sign, per_mass)
        value, error, infinite = value + rest, error + doubt, infinite | endless
    lost = np.abs(value[:, 1:] - 1).sum(axis=-1)
    error = error + per_mass * np.maximum(lost - _ROUNDING, 0.0)
    value = np.where(undefined, np.nan, np.where(infinite, np.inf, value[:, 0]))
    return value, np.where(infinite, 0.0, error)
