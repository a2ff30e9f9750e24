"""Claims on hand-made measurements: known answers, the order of the bounds, and Holm over all claims and steps."""

import math

import numpy as np
import pytest
from scipy import optimize

from ppl_tunnels.verification.bounds import log_evalue_mean_at_most, p_value, upper_bound
from ppl_tunnels.verification.claims import make_claims
from ppl_tunnels.verification.divergences import kl_range_bits
from ppl_tunnels.verification.evaluation import Evaluation
from ppl_tunnels.verification.sample_size import episodes_needed

TOLERANCE, CONFIDENCE, SYMBOLS = 0.05, 0.99, 4
RANGE = kl_range_bits(SYMBOLS, TOLERANCE)
ENOUGH = episodes_needed(tolerance=TOLERANCE, range_=RANGE, confidence=CONFIDENCE, mean=0.01)


def measured(kl, *, tv=0.0, entropy=0.0, js=0.0, model_entropy=None):
    """An evaluation with this KL `[episode, scored step]`, and the rest constant or given."""
    kl = np.asarray(kl, dtype=float)
    episodes, steps = kl.shape
    whole = {
        name: np.broadcast_to(value, episodes).astype(float)
        for name, value in (("tv", tv), ("entropy", entropy), ("js", js))
    }
    entropies = np.linspace(2, 1, steps)
    return Evaluation(
        kl=kl,
        total_variation=whole["tv"],
        entropy_error=whole["entropy"],
        jensen_shannon=whole["js"],
        raw_kl=float(kl.mean()),
        ruled_out_mass=0.0,
        model_entropy=entropies if model_entropy is None else model_entropy,
        oracle_entropy=entropies,
        entropy_error_by_step=np.zeros(steps),
    )


def claimed(evaluation, *, scored=None, symbols=SYMBOLS, tolerance=TOLERANCE):
    steps = evaluation.kl.shape[1]
    claims, positions = make_claims(
        evaluation,
        symbols=symbols,
        scored=np.ones(steps, bool) if scored is None else np.asarray(scored),
        tolerance_bits=tolerance,
        confidence=CONFIDENCE,
    )
    return {claim.name: claim for claim in claims}, positions


def constant(value, episodes=ENOUGH, steps=3):
    return np.full((episodes, steps), value)


def test_a_small_constant_error_passes_as_soon_as_it_can():
    for episodes, verdict in ((ENOUGH, "passed"), (ENOUGH - 1, "undecided")):
        claims, positions = claimed(measured(constant(0.01, episodes)))
        assert claims["kl_bits"].verdict == claims["every_step"].verdict == verdict
        assert {at.verdict for at in positions} == {verdict}
        assert claims["kl_bits"].estimate == pytest.approx(0.01)
        assert claims["kl_bits"].upper == upper_bound(
            constant(0.01, episodes)[:, 0], range_=RANGE, confidence=CONFIDENCE
        )


def test_a_large_error_fails_and_a_middling_one_is_open():
    claims, positions = claimed(measured(constant(0.2)))
    assert claims["kl_bits"].verdict == claims["every_step"].verdict == "failed"
    assert {at.verdict for at in positions} == {"failed"}
    assert claims["total_variation"].verdict == claims["entropy_error_bits"].verdict == "passed"
    claims, positions = claimed(measured(constant(0.049)))
    assert claims["kl_bits"].verdict == claims["every_step"].verdict == "undecided"
    assert {at.verdict for at in positions} == {"undecided"}


@pytest.mark.parametrize("name, given", [("total_variation", "tv"), ("entropy_error_bits", "entropy")])
def test_each_voting_claim_can_fail_alone(name, given):
    claims, _ = claimed(measured(constant(0.001), **{given: 0.9}))
    failed = {claim.name for claim in claims.values() if claim.verdict == "failed"}
    assert failed == {name}
    assert claims[name].votes


def test_jensen_shannon_is_reported_and_does_not_vote():
    claims, _ = claimed(measured(constant(0.001), js=0.9))
    assert not claims["jensen_shannon_bits"].votes
    assert claims["jensen_shannon_bits"].estimate == pytest.approx(0.9)
    assert {claim.verdict for claim in claims.values() if claim.votes} == {"passed"}


def test_what_is_claimed():
    claims, _ = claimed(measured(constant(0.001)))
    assert [(claim.name, claim.unit, claim.votes) for claim in claims.values()] == [
        ("kl_bits", "bits", True),
        ("every_step", "bits", True),
        ("total_variation", "", True),
        ("entropy_error_bits", "bits", True),
        ("jensen_shannon_bits", "bits", False),
    ]
    assert claims["total_variation"].tolerance == pytest.approx(math.sqrt(TOLERANCE * math.log(2) / 2))  # Pinsker
    assert [claims[name].range for name in ("kl_bits", "total_variation", "entropy_error_bits")] == [RANGE, 1.0, 2.0]
    assert "never sufficient" in claims["entropy_error_bits"].statement
    assert all(claim.n == ENOUGH for claim in claims.values())


def test_over_one_symbol_there_is_no_entropy_to_compare():
    claims, _ = claimed(measured(constant(0.0)), symbols=1)
    assert "entropy_error_bits" not in claims
    assert claims["kl_bits"].range == pytest.approx(kl_range_bits(1, TOLERANCE))


def test_the_bounds_enclose_the_estimate(seed):
    generator = np.random.default_rng(seed)
    for spread in (0.01, 1.0, 4.0):
        kl = np.minimum(generator.lognormal(-4, spread, (500, 3)), RANGE)
        tv, entropy = generator.beta(0.2, 2, 500), 2 * generator.beta(0.1, 1, 500)
        claims, positions = claimed(measured(kl, tv=tv, entropy=entropy, js=tv**2))
        for claim in claims.values():
            assert 0 <= claim.lower <= claim.estimate <= claim.upper <= claim.range
            assert claim.estimate <= claim.chernoff_upper <= claim.range
        for at in positions:
            assert 0 <= at.kl_lower <= at.kl_bits <= at.kl_upper <= RANGE
        assert claims["kl_bits"].estimate == pytest.approx(kl.mean())
        assert [at.kl_bits for at in positions] == pytest.approx(kl.mean(axis=0))


@pytest.mark.parametrize("value", [0.0, RANGE])
def test_the_ends_of_the_range_are_measurements_like_others(value):
    claims, _ = claimed(measured(constant(value)))
    assert claims["kl_bits"].verdict == ("passed" if value == 0 else "failed")
    assert claims["kl_bits"].lower <= value <= claims["kl_bits"].upper


def with_raw_p(p, episodes):
    """The constant KL at which the raw p-value against "at most the tolerance" is p."""

    def excess(value):
        return log_evalue_mean_at_most(np.full(episodes, value), TOLERANCE, range_=RANGE) + math.log(p)

    return optimize.brentq(excess, TOLERANCE, RANGE)


@pytest.mark.parametrize("steps, verdict", [(1, "undecided"), (20, "undecided")])
def test_a_raw_p_just_under_alpha_does_not_refute(steps, verdict):
    """Of 3 claims and the steps, one has p = .009: Holm asks for .01 / (3 + steps)."""
    kl = constant(0.0, 200, steps)
    kl[:, 0] = with_raw_p(0.009, 200)
    claims, positions = claimed(measured(kl))
    assert positions[0].p_refute == pytest.approx(0.009, rel=1e-6)
    assert positions[0].kl_lower > TOLERANCE  # by itself it would be refuted
    assert positions[0].verdict == claims["every_step"].verdict == verdict
    assert "failed" not in {claim.verdict for claim in claims.values()}


def test_a_p_that_survives_the_correction_refutes():
    kl = constant(0.0, 200, 20)
    kl[:, 0] = with_raw_p(0.009 / 23, 200)  # 3 claims with a p-value of their own and 20 steps
    claims, positions = claimed(measured(kl))
    assert positions[0].verdict == claims["every_step"].verdict == "failed"
    assert [at.verdict for at in positions[1:]] == ["undecided"] * 19
    kl[:, 0] = with_raw_p(0.011 / 23, 200)
    assert claimed(measured(kl))[1][0].verdict == "undecided"


def test_refuting_one_hypothesis_relaxes_what_the_next_must_show():
    kl = constant(0.0, 200, 2)
    kl[:, 0], kl[:, 1] = with_raw_p(0.005 / 5, 200), with_raw_p(0.009 / 4, 200)
    claims, positions = claimed(measured(kl))
    assert positions[1].p_refute * 5 > 0.01  # were it the clearest of the five, it would not do
    assert claims["kl_bits"].p_refute * 4 < 0.01
    assert [at.verdict for at in positions] == ["failed", "failed"]


def test_steps_are_named_by_their_place_in_the_episode():
    kl = np.tile([0.001, 0.2, 0.001], (ENOUGH, 1))
    claims, positions = claimed(measured(kl), scored=[False, True, False, False, True, True])
    assert [at.step for at in positions] == [2, 5, 6]
    assert [at.verdict for at in positions] == ["passed", "failed", "passed"]
    assert "step 5" in claims["every_step"].statement
    assert claims["every_step"].estimate == pytest.approx(0.2)
    assert claims["every_step"].lower == positions[1].kl_lower
    assert [at.oracle_entropy_bits for at in positions] == [2.0, 1.5, 1.0]


def test_the_mean_over_steps_hides_what_every_step_shows():
    kl = constant(0.0, ENOUGH, 20)
    kl[:, -1] = 0.3
    claims, positions = claimed(measured(kl))
    assert claims["kl_bits"].verdict != "failed"
    assert claims["kl_bits"].estimate == pytest.approx(0.015)
    assert claims["every_step"].verdict == positions[-1].verdict == "failed"


def test_every_step_is_as_good_as_the_worst():
    few = episodes_needed(tolerance=TOLERANCE, range_=RANGE, confidence=CONFIDENCE, mean=0.0)
    kl = constant(0.0, few)
    assert claimed(measured(kl))[0]["every_step"].verdict == "passed"
    kl[:, 1] = 0.02
    claims, positions = claimed(measured(kl))
    assert [at.verdict for at in positions] == ["passed", "undecided", "passed"]
    assert claims["every_step"].verdict == "undecided"


@pytest.mark.parametrize("where", ["kl", "tv", "entropy", "js"])
def test_nan_is_never_a_measurement(where):
    given = {"kl": constant(0.001), "tv": np.zeros(ENOUGH), "entropy": np.zeros(ENOUGH), "js": np.zeros(ENOUGH)}
    given[where][3, ...] = np.nan
    with pytest.raises(ValueError, match="is nan"):
        claimed(measured(given.pop("kl"), **given))


def test_p_values_are_those_of_the_bounds():
    kl = constant(0.07, 300)
    claims, positions = claimed(measured(kl))
    raw = p_value(log_evalue_mean_at_most(kl[:, 0], TOLERANCE, range_=RANGE))
    assert claims["kl_bits"].p_refute == pytest.approx(raw)
    assert claims["every_step"].p_refute == min(at.p_refute for at in positions) == pytest.approx(raw)
    assert (raw <= 0.01) == (claims["kl_bits"].lower > TOLERANCE)
