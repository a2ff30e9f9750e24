"""Certifying a predictor: is it the exact posterior, to within so many bits?

    1. check the tunnel's oracle            (nothing is certified against a wrong one)
    2. measure the ladder                   (nothing is certified in a tunnel that demands nothing)
    3. check the predictor's invariants     (causal, lawful, reproducible)
    4. judge it on fresh episodes, and decide.

The certification key is by default a hash of weights, tunnel and configuration, so that it cannot be chosen after looking.
"""

import datetime
import hashlib
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ppl_tunnels.errors import OracleDisagreementError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.tunnel import PROBE_EPISODES, WindTunnel
from ppl_tunnels.verification.certificate import Certificate
from ppl_tunnels.verification.claims import Claim, Position, make_claims
from ppl_tunnels.verification.divergences import FLOOR_SHARE, kl_range_bits
from ppl_tunnels.verification.evaluation import Evaluation, evaluate, rounded_up
from ppl_tunnels.verification.invariants import Invariant, check_invariants
from ppl_tunnels.verification.ladder import Rung, ladder, vacuous
from ppl_tunnels.verification.numerals import numeral, telling_digits
from ppl_tunnels.verification.predictors import Predictor, describe, finite_support
from ppl_tunnels.verification.properties import Finding, check_oracle
from ppl_tunnels.verification.sample_size import episodes_needed

# The share of the tolerance that the default number of episodes assumes the model to use up.
EXPECTED_SHARE = 0.2
# Episodes on which the invariants that need several runs of the predictor are checked; as many as the probe, so that nothing
# is compiled for another shape.
INVARIANT_EPISODES = PROBE_EPISODES
# What is folded into the certification key for each use of it.
_EPISODES, _LADDER, _INVARIANTS = 0, 1, 2

Progress = Callable[[str, int, int], None]


def default_episodes(tunnel: WindTunnel, *, tolerance_bits: float, confidence: float) -> int:
    """How many episodes `certify` draws: enough to certify a model that uses a fifth of the tolerance (and flooring a tenth).

    Example:
        >>> import ppl_tunnels
        >>> default_episodes(ppl_tunnels.load_tunnel("bijection"), tolerance_bits=0.01, confidence=0.99)
        12288
    """
    range_ = kl_range_bits(len(finite_support(tunnel)), tolerance_bits)
    mean = (EXPECTED_SHARE + FLOOR_SHARE) * tolerance_bits
    return rounded_up(episodes_needed(tolerance=tolerance_bits, range_=range_, confidence=confidence, mean=mean))


def certify(
    predictor: Predictor,
    tunnel: WindTunnel,
    *,
    key: int | None = None,
    tolerance_bits: float = 0.01,
    confidence: float = 0.99,
    episodes: int | None = None,
    oracle_findings: tuple[Finding, ...] | None = None,
    on_progress: Progress | None = None,
) -> Certificate:
    """Decide whether a predictor computes the tunnel's exact law to within the tolerance.

    Args:
        predictor: any callable from episodes to laws (see `predictors`); its weights are fixed before the key is drawn.
        tunnel: the generative process, at the configuration that is to be certified.
        key: seed of the fresh episodes, chosen before looking; by default a hash of weights, tunnel and configuration.
        tolerance_bits: of the floored KL and of the entropy error.
        confidence: of each one-sided bound.
        episodes: how many to draw; by default what `default_episodes` says. Rounded up to whole batches.
        oracle_findings: what `check_oracle(tunnel)` found, if it was just run; it is run if there are none.
        on_progress: called with (stage, done, total).

    Returns:
        The certificate; `str()` of it is the claim and the reasons.

    Raises:
        PredictorError: what the predictor returns cannot be read at all.
        OracleDisagreementError: the oracle fails its own check.
        ValueError: a tolerance, confidence or number of episodes out of range.

    Example:
        >>> import ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=4, points=3)
        >>> certify(coin.oracle().predictive, coin, episodes=9000).verdict
        'certified'
    """
    started = time.monotonic()
    _check_arguments(tolerance_bits, confidence, episodes)
    tell = on_progress or (lambda stage, done, total: None)
    if episodes is None:
        episodes = default_episodes(tunnel, tolerance_bits=tolerance_bits, confidence=confidence)
    episodes = rounded_up(episodes)
    who = describe(predictor, tunnel)
    seed, chosen = (
        (key, "given") if key is not None else (_hashed_seed(who, tunnel, tolerance_bits, confidence), "hash")
    )
    root = stream_key(seed, Purpose.CERTIFICATION)

    findings = oracle_findings or check_oracle(tunnel)
    broken = [finding for finding in findings if not finding.passed]
    if broken:
        raise OracleDisagreementError(
            f"the oracle of {tunnel.name!r} fails its own check, so nothing can be certified against it: {broken[0].name}: "
            f"{broken[0].detail}"
        )
    tell("ladder", 0, 1)
    rungs = ladder(tunnel, jax.random.fold_in(root, _LADDER), tolerance_bits=tolerance_bits)
    trivial = vacuous(rungs)
    tell("invariants", 0, 1)
    invariants = _invariants(predictor, tunnel, jax.random.fold_in(root, _INVARIANTS))

    claims: tuple[Claim, ...] = ()
    positions: tuple[Position, ...] = ()
    result: Evaluation | None = None
    if all(finding.passed for finding in invariants if finding.name in ("finite", "normalised")):
        result = evaluate(
            predictor,
            tunnel,
            jax.random.fold_in(root, _EPISODES),
            episodes,
            tolerance_bits=tolerance_bits,
            on_progress=lambda done: tell("episodes", done, episodes),
        )
        if result.failed is not None:
            invariants = _with_failure(invariants, result.failed)
        if len(result.kl):
            claims, positions = make_claims(
                result,
                symbols=len(finite_support(tunnel)),
                scored=tunnel.scored,
                tolerance_bits=tolerance_bits,
                confidence=confidence,
            )
    verdict, reasons = decide(claims, positions, invariants, trivial, confidence)
    return Certificate(
        verdict=verdict,
        claim=_claim_in_words(verdict, claims, tunnel, tolerance_bits, confidence),
        reasons=(*reasons, *_remarks(result, who)),
        tolerance_bits=tolerance_bits,
        confidence=confidence,
        episodes=0 if result is None else len(result.kl),
        tunnel=_tunnel_facts(tunnel),
        predictor=who,
        claims=claims,
        positions=positions,
        invariants=invariants,
        ladder=rungs,
        vacuous=trivial is not None,
        oracle={
            "engine": tunnel.oracle().engine,
            "explain": tunnel.oracle().explain(),
            "check": [
                {"property": f.name, "passed": f.passed, "worst": f.worst, "cases": f.cases, "detail": f.detail}
                for f in findings
            ],
        },
        keys={
            "certification_seed": seed,
            "chosen": "given" if chosen == "given" else "hash of weights, tunnel and configuration",
            "requested_episodes": episodes,
        },
        versions=_versions(),
        platform=jax.default_backend(),
        precision="float64",
        seconds=round(time.monotonic() - started, 3),
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def decide(
    claims: tuple[Claim, ...],
    positions: tuple[Position, ...],
    invariants: tuple[Invariant, ...],
    trivial: Rung | None,
    confidence: float,
) -> tuple[str, list[str]]:
    """The verdict and its reasons, one sentence each; a failed invariant or a refuted claim outweighs everything."""
    reasons = [f"not {finding.name}: {finding.where}" for finding in invariants if not finding.passed]
    for claim in claims:
        if claim.votes and claim.verdict == "failed" and claim.name != "every_step":
            reasons.append(
                f"{claim.title}: {_shown(claim, 'estimate')}{_unit(claim)}, at least {_shown(claim, 'lower')}, where at most "
                f"{_shown(claim, 'tolerance')} was asked for"
            )
    failed = [at for at in positions if at.verdict == "failed"]
    if failed:
        worst = max(failed, key=lambda at: at.kl_lower)
        steps = _listing([at.step for at in failed])
        reasons.append(
            f"KL above the tolerance at step{'s' if len(failed) > 1 else ''} {steps}; worst at step {worst.step}: "
            f"{numeral(worst.kl_bits)} bits, at least {numeral(worst.kl_lower, rounding='down')}"
        )
    if reasons:
        return "refuted", reasons
    if trivial is not None:
        return "undecided", [
            f"this tunnel demands nothing at this tolerance: the {trivial.agent} agent ({trivial.description}) is itself within "
            f"{numeral(trivial.kl_bits)} bits of Bayes; lower the tolerance, or use a tunnel or configuration in which evidence matters"
        ]
    open_claims = [claim for claim in claims if claim.votes and not _passes(claim)]
    if not claims or open_claims:
        for claim in open_claims:
            reasons.append(
                f"{claim.title}: {_shown(claim, 'estimate')}{_unit(claim)}, at most {_shown(claim, 'upper')}, which is above the "
                f"{_shown(claim, 'tolerance')} asked for{_more(claim, confidence)}"
            )
        return "undecided", reasons or ["no episode was judged"]
    return "certified", [
        f"all {sum(claim.votes for claim in claims)} voting claims and {len(invariants)} invariants hold"
    ]


def _passes(claim: Claim) -> bool:
    # Looked at again, and written so that a NaN bound could never pass.
    return claim.verdict == "passed" and claim.upper <= claim.tolerance


def _more(claim: Claim, confidence: float) -> str:
    """What would settle an open claim, as far as that can be said."""
    if not claim.estimate < claim.tolerance:
        return "; the estimate itself is not below it: train longer"
    try:
        needed = episodes_needed(
            tolerance=claim.tolerance, range_=claim.range, confidence=confidence, mean=claim.estimate
        )
    except ValueError:  # so close that no number of episodes would do
        return "; the estimate itself is all but equal to it: train longer"
    return f"; about {max(needed, claim.n + 1):,} episodes or more would settle it at this error"


def _invariants(predictor: Predictor, tunnel: WindTunnel, key: jax.Array) -> tuple[Invariant, ...]:
    own = tunnel.sample(jax.random.fold_in(key, 0), INVARIANT_EPISODES).without_latents()
    other = tunnel.sample(jax.random.fold_in(key, 1), INVARIANT_EPISODES).without_latents()
    exact = tunnel.oracle().predictive(own).to_numpy()
    return check_invariants(predictor, tunnel, own, other, exact)


def _with_failure(invariants: tuple[Invariant, ...], failed: Invariant) -> tuple[Invariant, ...]:
    """A failure found later replaces what the first look said."""
    return tuple(failed if finding.name == failed.name and finding.passed else finding for finding in invariants)


def _hashed_seed(who: dict[str, Any], tunnel: WindTunnel, tolerance_bits: float, confidence: float) -> int:
    text = json.dumps([who["fingerprint"], tunnel.fingerprint, tolerance_bits, confidence])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _claim_in_words(
    verdict: str, claims: tuple[Claim, ...], tunnel: WindTunnel, tolerance_bits: float, confidence: float
) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in tunnel.settings)
    scope = (
        f"weights fixed before the key was drawn; over fresh episodes of {tunnel.name}({settings}), the mean over the "
        f"{int(tunnel.scored.sum())} predicted steps of KL(oracle ‖ floored predictor)"
    )
    level = f"at {100 * confidence:g} % confidence"
    if not claims:
        return (
            f"No claim could be tested: {scope} is undefined, because the predictor's output is not a probability law."
        )
    kl = claims[0]
    if verdict == "certified":
        return f"{scope[0].upper()}{scope[1:]} is at most {_shown(kl, 'upper')} bits, {level} (asked for: {numeral(tolerance_bits)})."
    if verdict == "refuted":
        bound = (
            f"is at least {_shown(kl, 'lower')} bits, {level}"
            if kl.verdict == "failed"
            else f"lies between {_shown(kl, 'lower')} and {_shown(kl, 'upper')} bits, each bound {level}, but another condition fails"
        )
        return f"{scope[0].upper()}{scope[1:]} {bound} (asked for: at most {numeral(tolerance_bits)})."
    return (
        f"Not decided: {scope} is estimated at {_shown(kl, 'estimate')} bits, between {_shown(kl, 'lower')} and {_shown(kl, 'upper')}, "
        f"each bound {level} (asked for: at most {numeral(tolerance_bits)})."
    )


def _remarks(result: Evaluation | None, who: dict[str, Any]) -> list[str]:
    remarks = []
    if result is not None and len(result.kl):
        if np.isinf(result.raw_kl):
            remarks.append("without the floor the KL is infinite: the predictor gives probability 0 to what can happen")
        if result.ruled_out_mass > 1e-3:
            remarks.append(
                f"on average it puts probability {numeral(result.ruled_out_mass)} on values that the evidence has ruled out"
            )
    if who["targets"] is not None:
        how = {
            "oracle": "the oracle's own probabilities (distillation)",
            "sampled": "sampled values (ordinary cross-entropy)",
        }
        remarks.append(f"it was trained on {how.get(who['targets'], who['targets'])}")
    return remarks


def _tunnel_facts(tunnel: WindTunnel) -> dict[str, Any]:
    bits = tunnel.episode_bits
    return {
        "name": tunnel.name,
        "source": tunnel.source,
        "configuration": tunnel.configuration,
        "fingerprint": tunnel.fingerprint,
        "primitives": sorted(tunnel.primitives),
        "stream": list(tunnel.stream),
        "context": list(tunnel.context),
        "predict": tunnel.predict,
        "steps": tunnel.length,
        "scored_steps": int(tunnel.scored.sum()),
        "symbols": len(finite_support(tunnel)),
        "episode_bits": bits.bits,
        "episode_bits_note": bits.meaning,
    }


def _versions() -> dict[str, str]:
    names = ("ppl_tunnels", "numpyro", "jax", "jaxlib", "flax", "numpy", "scipy")
    found = {name: importlib.metadata.version(name.replace("_", "-")) for name in names}
    return {**found, "python": platform.python_version()}


def _check_arguments(tolerance_bits: float, confidence: float, episodes: int | None) -> None:
    if not 0 < tolerance_bits <= 1:
        raise ValueError(
            f"tolerance_bits is {tolerance_bits}; expected a number of bits above 0 and at most 1, such as 0.01"
        )
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected at least 0.5 and below 1, such as 0.99")
    if episodes is not None and episodes < 1:
        raise ValueError(f"episodes is {episodes}; expected at least 1 (leave it out for the default)")


def _shown(claim: Claim, part: str) -> str:
    """A claim's number in few digits: bounds rounded outward, each on its own side of the tolerance."""
    digits = telling_digits(claim.tolerance, lower=claim.lower, estimate=claim.estimate, upper=claim.upper)
    rounding = {"upper": "up", "lower": "down"}.get(part, "nearest")
    return numeral(getattr(claim, part), digits=digits, rounding=rounding)


def _unit(claim: Claim) -> str:
    return f" {claim.unit}" if claim.unit else ""


def _listing(steps: list[int]) -> str:
    return (
        ", ".join(map(str, steps)) if len(steps) <= 6 else f"{', '.join(map(str, steps[:5]))}, … ({len(steps)} in all)"
    )
