"""Divergences and entropies of one-dimensional densities by integration, with error estimates.

The line coordinate of `line_coordinates` is cut at the quantiles of both laws (and where they cross, if that makes a kink),
integrated piece by piece, and extrapolated beyond its limits as an exponential, which is what power tails and edges are there. Along with the measure itself the masses
of both laws are integrated: how far they are from 1 is part of the error stated.
"""

import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.verification.crossings import Gap, with_crossings
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
from ppl_tunnels.verification.tails import doubt_of_missing_mass, measured_tail

# Of an integral of a density; less mass than this is not missing.
_ROUNDING = 1e-13


def pair(
    p: dist.Distribution, q: dist.Distribution, measure: PairIntegrand, per_mass: float, *, kinked: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A measure of two laws of batch shape `[row]`, and the error, `[row]` each, in nats (or without unit).

    Args:
        p, q: one-dimensional, with densities.
        measure: its integrand.
        per_mass: by how much the measure may change for each unit of mass that was not found.
        kinked: whether it has a kink where the laws cross.
    """
    ends = [bounds(p), bounds(q)]
    where = [places(p), places(q)]
    coordinate = common_coordinate(ends, np.concatenate([each.reshape(len(each), -1) for each in where], axis=1))
    of_p, of_q = log_density(p, coordinate), log_density(q, coordinate)

    def integrands(rows, z):
        (first, _), (second, _) = of_p(rows, z), of_q(rows, z)
        return np.stack([measure(first, second), np.exp(first), np.exp(second)], axis=-1)

    gap = (lambda rows, z: _gap(of_p(rows, z)[0], of_q(rows, z)[0])) if kinked else None
    return _integrated(integrands, coordinate, where, ends, per_mass, gap)


def _gap(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(log_p - log_q, nan=0.0)  # 0 where neither has mass


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


def _integrated(
    integrands, coordinate: Coordinate, where, ends, per_mass: float, gap: Gap | None = None
) -> tuple[np.ndarray, np.ndarray]:
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
    if gap is not None:
        cut = with_crossings(gap, cut)
    inside = integrate(finite, cut, kinked=gap is not None, grain=coordinate.grain())
    value, error = inside.value.copy(), inside.error[:, 0]
    for end, sign in ((cut[:, 0], -1.0), (cut[:, -1], 1.0)):
        rest, doubt, endless = measured_tail(finite, end, sign, per_mass)
        value, error, infinite = value + rest, error + doubt, infinite | endless
    error = error + doubt_of_missing_mass(value[:, 0], value[:, 1:], per_mass, _ROUNDING)
    value = np.where(undefined, np.nan, np.where(infinite, np.inf, value[:, 0]))
    return value, np.where(infinite, 0.0, error)
