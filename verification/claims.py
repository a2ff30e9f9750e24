"""The claims of a certificate: population statements about fresh episodes, each with one-sided bounds.

*Certified* is an intersection-union test: every voting claim's own bound must pass, and no correction is needed.
*Refuted* is the other way round: some lower bound exceeds its tolerance under Holm over all voting claims and steps.

To add a claim: append it in `make_claims`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from ppl_tunnels.verification.bounds import log_evalue_mean_at_most, lower_bound, p_value, upper_bound
from ppl_tunnels.verification.chernoff import chernoff_upper_bound
from ppl_tunnels.verification.divergences import kl_floor, kl_range_bits, total_variation_tolerance
from ppl_tunnels.verification.evaluation import Evaluation
from ppl_tunnels.verification.holm import holm


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement "the mean of this is at most the tolerance", and what the data say about it.

    Attributes:
        name: fixed identifier.
        title: short words for a table.
        statement: the population statement in full.
        estimate: the sample mean.
        lower, upper: one-sided bounds, each at the certificate's confidence by itself.
        tolerance: what is to be certified.
        unit: "bits" or "" (a probability).
        range: the largest possible value, known in advance; `range_reason` says why.
        chernoff_upper: the Chernoff-KL bound, which can be recomputed by hand (valid at a fixed number of episodes).
        n: sequences.
        p_refute: evidence against the claim, a p-value.
        votes: whether the verdict depends on it.
        verdict: "passed", "failed" (under Holm; a claim that does not vote: by its own bound) or "undecided".
    """

    name: str
    title: str
    statement: str
    estimate: float
    lower: float
    upper: float
    tolerance: float
    unit: str
    range: float
    range_reason: str
    chernoff_upper: float
    n: int
    p_refute: float
    votes: bool
    verdict: str = "undecided"


@dataclasses.dataclass(frozen=True)
class Position:
    """One scored step; `verdict` is about its floored KL.

    Attributes:
        step: counts from 1.
        kl_bits, kl_lower, kl_upper: floored KL and its one-sided bounds, each by itself.
        model_entropy_bits, oracle_entropy_bits, entropy_error_bits: means over episodes.
        p_refute: evidence that the KL at this step exceeds the tolerance.
        verdict: "passed", "failed" (under Holm) or "undecided".
    """

    step: int
    kl_bits: float
    kl_lower: float
    kl_upper: float
    model_entropy_bits: float
    oracle_entropy_bits: float
    entropy_error_bits: float
    p_refute: float
    verdict: str = "undecided"


def make_claims(
    result: Evaluation, *, symbols: int, scored: np.ndarray, tolerance_bits: float, confidence: float
) -> tuple[tuple[Claim, ...], tuple[Position, ...]]:
    """All claims and positions, with their verdicts.

    Args:
        result: what was measured.
        symbols: size of the predicted site's support.
        scored: which steps count, bool `[step]`.
        tolerance_bits: of KL and entropy error; that of total variation follows by Pinsker's inequality.
        confidence: of each one-sided bound.
    """
    log_symbols = float(np.log2(symbols))
    kl_range = kl_range_bits(symbols, tolerance_bits)
    kl_reason = (
        f"log2(V / d): the predictor is floored, (1 - d) q + d / V, with d = {kl_floor(tolerance_bits):.4g} (which costs at most a tenth "
        f"of the tolerance) and V = {symbols}"
    )
    measures = [
        _Measure(
            "kl_bits",
            "KL from the oracle",
            "the mean over predicted steps of KL(oracle ‖ floored predictor)",
            result.kl.mean(axis=1),
            tolerance_bits,
            "bits",
            kl_range,
            kl_reason,
        ),
        _Measure(
            "total_variation",
            "Total variation",
            "the mean over predicted steps of the total variation between oracle and predictor",
            result.total_variation,
            total_variation_tolerance(tolerance_bits),
            "",
            1.0,
            "a difference of probabilities is at most 1",
        ),
        _Measure(
            "jensen_shannon_bits",
            "Jensen–Shannon",
            "the mean over predicted steps of the Jensen–Shannon divergence between oracle and predictor",
            result.jensen_shannon,
            tolerance_bits,
            "bits",
            1.0,
            "it is at most 1 bit",
            votes=False,
        ),
    ]
    if symbols > 1:  # over one symbol every entropy is 0
        entropy = _Measure(
            "entropy_error_bits",
            "Entropy error",
            "the mean over predicted steps of |entropy of the predictor - entropy of the oracle|, the published criterion "
            "(necessary, never sufficient)",
            result.entropy_error,
            tolerance_bits,
            "bits",
            log_symbols,
            f"an entropy over {symbols} values is at most log2 {symbols}",
        )
        measures.insert(2, entropy)
    claims = [_claim(measure, confidence=confidence) for measure in measures]
    positions = _positions(result, scored, kl_range, tolerance_bits, confidence)
    return _judged(result, claims, positions, tolerance_bits, confidence)


class _Measure(NamedTuple):
    """What a claim is about; `values` are one number per sequence, in [0, range]."""

    name: str
    title: str
    statement: str
    values: np.ndarray
    tolerance: float
    unit: str
    range: float
    range_reason: str
    votes: bool = True


def _claim(measure: _Measure, *, confidence: float) -> Claim:
    values, range_, tolerance = measure.values, measure.range, measure.tolerance
    evidence = log_evalue_mean_at_most(values, min(tolerance, range_), range_=range_)
    return Claim(
        **{name: value for name, value in measure._asdict().items() if name != "values"},
        estimate=float(np.mean(values)),
        lower=float(lower_bound(values, range_=range_, confidence=confidence)),
        upper=float(upper_bound(values, range_=range_, confidence=confidence)),
        chernoff_upper=float(chernoff_upper_bound(values, range_=range_, confidence=confidence)),
        n=len(values),
        p_refute=float(p_value(evidence)),
    )


def _positions(result: Evaluation, scored, kl_range: float, tolerance: float, confidence: float) -> list[Position]:
    lower = lower_bound(result.kl, range_=kl_range, confidence=confidence)
    upper = upper_bound(result.kl, range_=kl_range, confidence=confidence)
    p = p_value(log_evalue_mean_at_most(result.kl, tolerance, range_=kl_range))
    return [
        Position(
            step=int(step) + 1,
            kl_bits=float(result.kl[:, i].mean()),
            kl_lower=float(lower[i]),
            kl_upper=float(upper[i]),
            model_entropy_bits=float(result.model_entropy[i]),
            oracle_entropy_bits=float(result.oracle_entropy[i]),
            entropy_error_bits=float(result.entropy_error_by_step[i]),
            p_refute=float(p[i]),
        )
        for i, step in enumerate(np.flatnonzero(scored))
    ]


def _judged(
    result: Evaluation, claims: list[Claim], positions: list[Position], tolerance_bits: float, confidence: float
):
    """Attach verdicts, and the claim about every step."""
    voting = [claim for claim in claims if claim.votes]
    family = holm([*(claim.p_refute for claim in voting), *(at.p_refute for at in positions)], alpha=1 - confidence)
    refuted = family.rejected.tolist()
    claim_refuted = dict(zip((claim.name for claim in voting), refuted[: len(voting)], strict=True))
    judged = [
        dataclasses.replace(
            claim,
            verdict=_verdict(
                claim.upper, claim.tolerance, claim_refuted.get(claim.name, claim.lower > claim.tolerance)
            ),
        )
        for claim in claims
    ]
    positions = [
        dataclasses.replace(at, verdict=_verdict(at.kl_upper, tolerance_bits, rejected))
        for at, rejected in zip(positions, refuted[len(voting) :], strict=True)
    ]
    column = int(np.argmax([at.kl_upper for at in positions]))
    worst, kl = positions[column], claims[0]
    verdicts = {at.verdict for at in positions}
    every = Claim(
        name="every_step",
        title="KL at every step",
        statement="at every predicted step by itself, KL(oracle ‖ floored predictor); shown for the step with the largest bound, "
        f"step {worst.step}",
        estimate=worst.kl_bits,
        lower=worst.kl_lower,
        upper=worst.kl_upper,
        tolerance=tolerance_bits,
        unit="bits",
        range=kl.range,
        range_reason=kl.range_reason,
        chernoff_upper=float(chernoff_upper_bound(result.kl[:, column], range_=kl.range, confidence=confidence)),
        n=kl.n,
        p_refute=min(at.p_refute for at in positions),
        votes=True,
        verdict="failed" if "failed" in verdicts else "undecided" if "undecided" in verdicts else "passed",
    )
    return (judged[0], every, *judged[1:]), tuple(positions)


def _verdict(upper: float, tolerance: float, refuted: bool) -> str:
    # Written so that a NaN bound could never pass.
    return "failed" if refuted else "passed" if upper <= tolerance else "undecided"
