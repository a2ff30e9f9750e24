"""The tails of a measure of two laws beyond the last place integrated to."""

import numpy as np

from ppl_tunnels.verification.integration import Integrand, tail_beyond

# Laws whose densities differ by more than this many nats: the measure is that of the larger one alone.
_FAR_APART = 30.0


def measured_tail(function: Integrand, end: np.ndarray, sign: float, per_mass: float) -> tuple[np.ndarray, ...]:
    """The tails of a measure and of the masses of the laws.

    Args:
        function: as for `integrate`; the measure comes first, then the density of each law.
        end: the last place, `[row]`.
        sign: 1.0 if the rest lies above it, -1.0 if below.
        per_mass: by how much the measure may change for each unit of mass.

    Returns:
        The rest, `[row, function]`; by how much that of the measure may be off, `[row]`; and where it is infinite, `[row]`.
    """
    tail = tail_beyond(function, end, sign)
    doubt = tail.doubt[:, 0]
    if tail.rest.shape[1] == 3:
        mass, last, rate = tail.rest[:, 1:], tail.last[:, 1:], tail.rate[:, 1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.abs(np.log(last[:, 0] / last[:, 1])) < _FAR_APART
            # Two densities of one size that fall at different rates may cross: the measure is no exponential then.
            differ = np.minimum(np.abs(rate[:, 0] - rate[:, 1]) / rate.min(axis=1), 1.0)
        doubt = doubt + np.where(near, differ * per_mass * mass.sum(axis=1), 0.0)
    return tail.rest, doubt, tail.endless[:, 0]


def doubt_of_missing_mass(value: np.ndarray, masses: np.ndarray, per_mass: float, rounding: float) -> np.ndarray:
    """By how much a measure may be off, `[row]`, because the masses that were found are not 1.

    Args:
        value: the measure, `[row]`.
        masses: of each law, `[row, law]`.
        per_mass: by how much the measure may change for each unit of mass, unless it is that large itself: a divergence of 800
            nats is an average of numbers of that size.
        rounding: what does not count as missing.
    """
    lost = np.abs(masses - 1).sum(axis=-1)
    size = np.where(np.isfinite(value), 2 * np.abs(value), 0.0)
    return np.maximum(per_mass, size) * np.maximum(lost - rounding, 0.0) + rounding * np.maximum(size - per_mass, 0.0)
