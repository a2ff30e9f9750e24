"""Divergences and entropies of laws of counts: summed one by one as far as that goes, and the rest as an integral.

The probabilities of the first counts are summed, and all of them up to the largest where a law ends. If either law has mass
beyond, the formulas of these laws hold for real numbers as well, and by Gregory's formula

    sum of f(k) over k ≥ n  =  integral of f from n on  +  f(n)/2 - Δf(n)/12 + Δ²f(n)/24 - 19 Δ³f(n)/720 + ...,

in which the last term is stated as an error. |p - q| has a kink wherever the laws cross; the integral is off by at most an
eighth of the change of slope there, which is stated too.

Source: Hildebrand (1974), "Introduction to Numerical Analysis", section 5.9.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.densities import exact_log_prob, unchecked_log_prob
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.mixtures import Mixture
from ppl_tunnels.verification.integration import NODES, integrate
from ppl_tunnels.verification.law_rows import LawRows
from ppl_tunnels.verification.tails import doubt_of_missing_mass, measured_tail

# Of a sum of that many terms.
_ROUNDING = 1e-14
# Counts summed one by one before the rest is integrated.
MOST_SUMMED = 1 << 14
# The last count of a law that ends: it is summed as far as that, and this far at most.
LARGEST_LAST = 1 << 24
# Coefficients of Gregory's formula: of f, Δf, Δ²f, ...
GREGORY = (1 / 2, -1 / 12, 1 / 24, -19 / 720, 3 / 160, -863 / 60480, 275 / 24192)

# Counts are taken in blocks as long as a piece has nodes, so that sum and integral are compiled once.
_BLOCK = len(NODES)
_FIRST_BLOCKS = 20
# Blocks summed at once, in a row and over all rows, to bound memory.
_BLOCKS, _BLOCKS_IN_ALL = 1 << 13, 1 << 17
# A sum is complete if a geometric continuation of its last terms stays below this, and so little mass is missing.
_NEGLIGIBLE = 1e-17
_MISSING = 1e-12
# The logarithm of the largest count: squares of counts must not overflow.
_FARTHEST = 345.0
# Where the bulk of a law beyond the counts summed lies: its mean, and standard deviations from it.
_DEVIATIONS = (-20.0, -7.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 7.0, 20.0)

# Logarithms of the probabilities of each law -> the term of the sum (homogeneous: densities in any unit will do).
Term = Callable[..., np.ndarray]


def count_measure(
    laws: list[dist.Distribution], term: Term, per_mass: float, *, kinked: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of term(log p(k), …) over all counts k, for laws of batch shape `[row]`.

    Args:
        laws: of counts 0, 1, 2, …, or `Finite`; at least one of them not `Finite`.
        term: of the sum.
        per_mass: by how much the measure may change for each unit of mass that was not found.
        kinked: whether it has a kink where two laws cross.

    Returns:
        Values and stated errors, `[row]` each; +inf where a term is.

    Raises:
        TunnelError: a law ends, but beyond what can be summed.
    """
    count = laws[0].batch_shape[0]

    def terms(rows, k):
        logs = [evaluator(rows, k) for evaluator in evaluators]
        return np.stack([term(*logs), *map(np.exp, logs)], axis=-1)

    value = np.zeros((count, 1 + len(laws)))
    outside = _other_values(laws)
    if outside.size:
        evaluators = [LawRows(law, exact_log_prob) for law in laws]  # no formula of counts holds there
        blocks = np.resize(outside, (-(-outside.size // _BLOCK), _BLOCK))
        fresh = np.arange(blocks.size).reshape(blocks.shape) < outside.size
        for block, known in zip(blocks, fresh, strict=True):
            value += np.sum(terms(np.arange(count), np.tile(block, (count, 1))), axis=1, where=known[:, None])
    evaluators = [LawRows(law, extended_log_prob) for law in laws]
    error = np.zeros(count)
    summed = np.maximum(MOST_SUMMED, np.max([_last_count(law) for law in laws], axis=0) + 1)
    active, start, blocks = np.arange(count), 0, max(_FIRST_BLOCKS, -(-_largest(laws) // _BLOCK) + 1)
    while active.size:
        part, last = _summed(terms, active, start, blocks)
        value[active] += part
        # The rest is at most about as large as the continuation; what is added one by one is rounded.
        error[active] = per_mass * np.minimum(_continuation(last), 1.0) + _ROUNDING * np.abs(value[active]).max(axis=-1)
        start, blocks = start + blocks * _BLOCK, min(start // _BLOCK + blocks, _BLOCKS)
        left, negligible = np.abs(1 - value[active, 1:]).max(axis=-1), _continuation(last) < _NEGLIGIBLE
        active = active[(left > _MISSING) | ~negligible]
        finished = start >= summed[active]
        if finished.any():
            tail, doubt = _tail(terms, laws, active[finished], start, per_mass, kinked)
            value[active[finished]] += tail
            error[active[finished]] = doubt + _ROUNDING * np.abs(value[active[finished]]).max(axis=-1)
        active = active[~finished]
    infinite = np.isinf(value[:, 0])
    error = error + doubt_of_missing_mass(value[:, 0], value[:, 1:], per_mass, _MISSING)
    return value[:, 0], np.where(infinite, 0.0, error)


def extended_log_prob(law: dist.Distribution, k: jax.Array) -> jax.Array:
    """log p(k), by its formula between the counts too; a finite law has no probability there."""
    if isinstance(law, Finite):
        return exact_log_prob(law, k)
    if isinstance(law, Mixture):
        absent = jnp.isneginf(law.log_weights)
        parts = law.log_weights + extended_log_prob(law.components, k[..., None])
        return logsumexp(jnp.where(absent, -jnp.inf, parts), axis=-1)
    last: Any = getattr(law.support, "upper_bound", jnp.inf)
    # The formula is for counts of the support: beyond, it may be anything.
    return jnp.where(k <= last, unchecked_log_prob(law, jnp.minimum(k, last)), -jnp.inf)


def _last_count(law: dist.Distribution) -> np.ndarray:
    """Where a law ends, `[row]`; 0 where it does not, or its values are listed."""
    if isinstance(law, Finite):
        return np.zeros(law.batch_shape)
    if isinstance(law, Mixture):
        return _last_count(law.components).max(axis=-1)
    last = np.broadcast_to(np.asarray(getattr(law.support, "upper_bound", 0), np.float64), law.batch_shape)
    if np.any(last > LARGEST_LAST):
        raise TunnelError(
            f"a law of counts ends at {last.max():.0f}, and those up to {LARGEST_LAST} can be summed; compare parameters instead"
        )
    return last


def _summed(terms, rows: np.ndarray, start: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of all terms, `[row, function]`, and the last two, `[row, 2, function]`."""
    most = max(1, _BLOCKS_IN_ALL // blocks)
    if len(rows) > most:
        parts = [_summed(terms, rows[i : i + most], start, blocks) for i in range(0, len(rows), most)]
        sums, last = (np.concatenate(each) for each in zip(*parts, strict=True))
        return sums, last
    counts = start + np.arange(blocks * _BLOCK, dtype=np.float64).reshape(blocks, _BLOCK)
    values = terms(np.repeat(rows, blocks), np.tile(counts, (len(rows), 1)))
    values = values.reshape(len(rows), blocks * _BLOCK, -1)
    # Along the last axis NumPy adds in pairs: rounding grows with the logarithm of the number of terms.
    return np.ascontiguousarray(np.moveaxis(values, 1, -1)).sum(axis=-1), values[:, -2:]


def _continuation(last: np.ndarray) -> np.ndarray:
    """The largest of the sums of geometric series that go on as the last two terms do."""
    before, after = np.abs(last[:, 0]), np.abs(last[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(before > 0, after / before, 0.0)
        return np.where(after == 0, 0.0, np.where(ratio < 1, after / (1 - ratio), np.inf)).max(axis=-1)


def _other_values(laws: list[dist.Distribution]) -> np.ndarray:
    """Values of finite laws that are no counts."""
    values = [np.asarray(law.values, np.float64).ravel() for law in laws if isinstance(law, Finite)]
    values = np.unique(np.concatenate([*values, np.zeros(0)]))
    return values[(values < 0) | (values != np.round(values))]


def _largest(laws: list[dist.Distribution]) -> int:
    return max([int(np.asarray(law.values).max()) for law in laws if isinstance(law, Finite)], default=0)


def _tail(terms, laws, rows: np.ndarray, start: int, per_mass: float, kinked: bool) -> tuple[np.ndarray, np.ndarray]:
    local = lambda pieces, z: terms(rows[pieces], np.exp(z)) * np.exp(z)[..., None]  # noqa: E731
    edges = _edges(laws, rows, start)
    inside = integrate(local, edges, kinked=kinked)
    first = terms(rows, np.tile(start + np.arange(_BLOCK, dtype=np.float64), (len(rows), 1)))
    corrections = np.stack([c * np.diff(first, n=j, axis=1)[:, 0] for j, c in enumerate(GREGORY)])
    doubt = inside.error[:, 0] + np.abs(corrections[-1, :, 0])
    rest, unsure, endless = measured_tail(local, edges[:, -1], 1.0, per_mass)
    value, doubt = inside.value + rest + corrections.sum(axis=0), doubt + unsure
    value[:, 0] = np.where(endless, np.inf, value[:, 0])
    if kinked:
        doubt = doubt + _steepest(terms, rows, edges) / 8
    return value, doubt


def _edges(laws, rows: np.ndarray, start: int) -> np.ndarray:
    z = np.log(start) + 0.25 * (2.0 ** np.arange(13) - 1)
    found = [np.broadcast_to(np.minimum(z, _FARTHEST), (len(rows), len(z)))]
    for law in laws:
        if not isinstance(law, Finite):
            inner = law.components if isinstance(law, Mixture) else law
            mean, variance = (np.asarray(each)[rows].reshape(len(rows), -1, 1) for each in (inner.mean, inner.variance))
            known = np.isfinite(mean) & np.isfinite(variance)
            at = np.where(known, mean, 0.0) + np.sqrt(np.where(known, variance, 0.0)) * np.array(_DEVIATIONS)
            found.append(np.log(np.maximum(at, start)).reshape(len(rows), -1))
    return np.sort(np.concatenate(found, axis=1), axis=1)


def _steepest(terms, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The largest change of p - q from one count to the next at the edges of the pieces and half-way between."""
    z = np.sort(np.concatenate([edges, (edges[:, 1:] + edges[:, :-1]) / 2], axis=1), axis=1)
    blocks = -(-z.shape[1] // _BLOCK)
    z = np.concatenate([z, np.repeat(z[:, -1:], blocks * _BLOCK - z.shape[1], axis=1)], axis=1).reshape(-1, _BLOCK)
    index = np.repeat(rows, blocks)
    here, there = (terms(index, np.exp(z) + step) for step in (0.0, 1.0))
    change = np.abs((there[..., 1] - there[..., 2]) - (here[..., 1] - here[..., 2]))
    return change.reshape(len(rows), -1).max(axis=1)
