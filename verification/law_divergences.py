"""Entropies and divergences of laws of any kind, and how far each number may be from the truth.

    H(p) = - ∫ p log2 p,    KL(p || q) = ∫ p log2(p / q),    TV(p, q) = 1/2 ∫ |p - q|,
    JS(p, q) = 1/2 KL(p || m) + 1/2 KL(q || m) with m = (p + q) / 2,    Hellinger²(p, q) = 1 - ∫ sqrt(p q)

for densities, and sums for counts and finite laws. Where there is a closed form, it is used and the stated error is 0, that
is, rounding only; otherwise one-dimensional laws are integrated or summed by deterministic rules whose error is estimated.

Sources: Cover and Thomas (2006), chapters 2 and 8; Lin (1991) for JS. The closed forms are those of `family_divergences`.
"""

import dataclasses

import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import parametric as exact
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.program import double_precision
from ppl_tunnels.verification import divergences, quadrature_divergences
from ppl_tunnels.verification.count_divergences import count_measure
from ppl_tunnels.verification.law_forms import (
    as_rows,
    exact_form,
    on_common_values,
    refuse_impossible,
    same_transforms,
)
from ppl_tunnels.verification.law_measures import (
    BIT,
    JENSEN_SHANNON,
    KL,
    NATS_PER_MASS,
    SQUARED_HELLINGER,
    TOTAL_VARIATION,
    Measure,
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A number for each prediction, and how far from the truth it may be.

    Attributes:
        value: float64, `[*batch]`.
        error: of the same shape; 0 where a closed form was used (rounding only), else an estimate of the absolute error.
    """

    value: np.ndarray
    error: np.ndarray


def entropy_bits(law: dist.Distribution) -> Measured:
    """The entropy of a law in bits: differential (of either sign) for a density.

    Args:
        law: `[*batch]`; an oracle's, or any NumPyro law that is finite, of counts, or one-dimensional.

    Raises:
        TunnelError: a row of impossible evidence (the first is named), or a law of several dimensions without a closed form.

    Example:
        >>> from ppl_tunnels.oracles.parametric import Normal
        >>> measured = entropy_bits(Normal(0.0, [1.0, 2.0]))
        >>> measured.value.round(6).tolist(), measured.error.tolist()
        ([2.047096, 3.047096], [0.0, 0.0])
    """
    with double_precision():
        refuse_impossible(law, "the law")
        measured = _entropy(exact_form(law))
    return _defined(measured, f"the entropy of {type(law).__name__}")


def kl_bits(p: dist.Distribution, q: dist.Distribution) -> Measured:
    """KL(p || q) in bits; +inf where p has mass and q has none.

    Args:
        p: the exact law, `[*batch]`.
        q: the predicted law; batch shapes broadcast.

    Raises:
        TunnelError: as for `entropy_bits`, or laws of values of different kinds.

    Example:
        >>> from ppl_tunnels.oracles.parametric import Gamma, Normal
        >>> kl_bits(Normal(0.0, 1.0), Normal(1.0, 1.0)).value.round(6).tolist()  # 1 / (2 ln 2)
        0.721348
    """
    return _measured(KL, p, q)


def total_variation(p: dist.Distribution, q: dist.Distribution) -> Measured:
    """The largest difference in probability that p and q give any event, in [0, 1].

    Arguments and errors are those of `kl_bits`.

    Example:
        >>> from ppl_tunnels.oracles.parametric import Normal
        >>> total_variation(Normal(0.0, 1.0), Normal(1.0, 1.0)).value.round(6).tolist()
        0.382925
    """
    return _measured(TOTAL_VARIATION, p, q)


def jensen_shannon_bits(p: dist.Distribution, q: dist.Distribution) -> Measured:
    """The Jensen-Shannon divergence in bits, in [0, 1].

    Arguments and errors are those of `kl_bits`.

    Example:
        >>> from ppl_tunnels.oracles.parametric import Normal
        >>> jensen_shannon_bits(Normal(0.0, 1.0), Normal(9.0, 1.0)).value.round(4).tolist()
        1.0
    """
    return _measured(JENSEN_SHANNON, p, q)


def squared_hellinger(p: dist.Distribution, q: dist.Distribution) -> Measured:
    """1 - ∫ sqrt(p q), in [0, 1].

    Arguments and errors are those of `kl_bits`.

    Example:
        >>> from ppl_tunnels.oracles.parametric import Normal
        >>> squared_hellinger(Normal(0.0, 1.0), Normal(1.0, 1.0)).value.round(6).tolist()  # 1 - exp(-1/8)
        0.117503
    """
    return _measured(SQUARED_HELLINGER, p, q)


def _measured(measure: Measure, p: dist.Distribution, q: dist.Distribution) -> Measured:
    with double_precision():
        refuse_impossible(p, "p")
        refuse_impossible(q, "q")
        measured = _of_forms(measure, exact_form(p), exact_form(q))
    return _defined(measured, f"the {measure.name} between {type(p).__name__} and {type(q).__name__}")


def _defined(measured: Measured, what: str) -> Measured:
    undefined = np.isnan(measured.value) | np.isnan(measured.error)
    if undefined.any():
        index = tuple(int(i) for i in np.argwhere(undefined)[0])
        raise TunnelError(
            f"{what} is not a number{f' at {list(index)}' if index else ''}; look for parameters there that are NaN, infinite "
            "or out of range"
        )
    return measured


def _entropy(law: dist.Distribution) -> Measured:
    batch = law.batch_shape
    if isinstance(law, Finite):
        return _closed(divergences.entropy_bits(law.to_numpy()), batch)
    if isinstance(law, dist.Independent):
        axes = tuple(range(len(batch), len(law.base_dist.batch_shape)))
        parts = _entropy(law.base_dist)
        return Measured(parts.value.sum(axis=axes), parts.error.sum(axis=axes))
    if isinstance(law, ExactLaw):
        try:
            return _closed(np.asarray(law.entropy()) / BIT, batch)
        except NotImplementedError:
            pass
    _refuse_several_dimensions("entropy", law)
    rows = as_rows(law, batch)
    if _discrete(law):
        value, error = count_measure([rows], _surprise, NATS_PER_MASS)
    else:
        value, error = quadrature_divergences.entropy(rows, NATS_PER_MASS)
    return Measured((value / BIT).reshape(batch), (error / BIT).reshape(batch))


def _of_forms(measure: Measure, p: dist.Distribution, q: dist.Distribution) -> Measured:
    batch = _common_batch(p, q)
    while isinstance(p, exact.Transformed) and isinstance(q, exact.Transformed) and same_transforms(p, q):
        p, q = p.base_dist, q.base_dist  # a common change of variables changes no divergence
    if isinstance(p, Finite) and isinstance(q, Finite):
        return _closed(measure.of_finite(*on_common_values(p, q)), batch)
    if isinstance(p, dist.Independent) and isinstance(q, dist.Independent) and measure.of_parts is not None:
        parts = _of_forms(measure, p.base_dist, q.base_dist)
        axes = tuple(range(len(batch), parts.value.ndim))
        return Measured(measure.of_parts(parts.value, axes), parts.error.sum(axis=axes))
    value = measure.in_closed_form(p, q)
    if value is not None:
        return _closed(np.asarray(value), batch)
    for law in (p, q):
        _refuse_several_dimensions(measure.name, law)
    if _discrete(p) != _discrete(q):
        kinds = {True: "discrete", False: "continuous"}
        raise TunnelError(
            f"the {measure.name} was asked between {type(p).__name__} ({kinds[_discrete(p)]}) and {type(q).__name__} "
            f"({kinds[_discrete(q)]}); give laws of the same kind of values"
        )
    rows = as_rows(p, batch), as_rows(q, batch)
    if _discrete(p):
        value, error = count_measure(list(rows), measure.integrand, measure.per_mass, kinked=measure.kinked)
    else:
        value, error = quadrature_divergences.pair(*rows, measure.integrand, measure.per_mass, kinked=measure.kinked)
    value = np.clip(value * measure.unit, 0.0, measure.most)
    error = np.minimum(error * measure.unit, measure.most)
    return Measured(value.reshape(batch), error.reshape(batch))


def _closed(value: np.ndarray, batch: tuple[int, ...]) -> Measured:
    value = np.broadcast_to(np.asarray(value, np.float64), batch).copy()
    return Measured(value, np.zeros(batch))


def _common_batch(p: dist.Distribution, q: dist.Distribution) -> tuple[int, ...]:
    if p.event_shape != q.event_shape:
        raise TunnelError(f"p is a law of values of shape {p.event_shape} and q of {q.event_shape}; they must agree")
    try:
        return np.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError as error:
        raise TunnelError(
            f"p has batch shape {p.batch_shape} and q {q.batch_shape}; expected shapes that broadcast"
        ) from error


def _discrete(law: dist.Distribution) -> bool:
    if isinstance(law, Finite):
        return True
    support = law.components.support if isinstance(law, Mixture) else law.support
    return support is not None and bool(support.is_discrete)


def _refuse_several_dimensions(name: str, law: dist.Distribution) -> None:
    if law.event_shape:
        raise TunnelError(
            f"there is no closed form for the {name} of {type(law).__name__} laws of values of shape {law.event_shape}, and "
            "only one-dimensional ones are integrated; measure squared_hellinger or kl_bits between laws of one family, or "
            "each coordinate's law by itself"
        )


def _surprise(log_p: np.ndarray) -> np.ndarray:
    p = np.exp(log_p)
    return np.where(p > 0, -p * np.where(p > 0, log_p, 0.0), 0.0)
