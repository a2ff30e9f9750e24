"""The verdict as a function of what was found: every combination, and nothing that is not a number ever passes."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from ppl_tunnels.verification.certification import decide
from ppl_tunnels.verification.claims import Claim, Position
from ppl_tunnels.verification.invariants import Invariant
from ppl_tunnels.verification.ladder import Rung

BOUNDS = {"passed": (0.001, 0.004, 0.008), "failed": (0.03, 0.04, 0.05), "undecided": (0.001, 0.004, 0.02)}
VERDICTS = tuple(BOUNDS)
TRIVIAL = Rung("prior", "Bayes without evidence", 0.0042, False, 0.01, 0.002, True, True)


def claim(verdict="passed", name="kl_bits", **changes):
    lower, estimate, upper = BOUNDS[verdict]
    facts = {
        "name": name,
        "title": f"the {name}",
        "statement": "",
        "estimate": estimate,
        "lower": lower,
        "upper": upper,
        "tolerance": 0.01,
        "unit": "bits",
        "range": 10.0,
        "range_reason": "",
        "chernoff_upper": upper,
        "n": 1000,
        "p_refute": 0.0 if verdict == "failed" else 1.0,
        "votes": True,
        "verdict": verdict,
    }
    return Claim(**{**facts, **changes})


def position(step, verdict="passed", **changes):
    lower, estimate, upper = BOUNDS[verdict]
    return dataclasses.replace(Position(step, estimate, lower, upper, 1.0, 1.0, 0.0, 1.0, verdict), **changes)


def invariant(passed=True, name="finite"):
    return Invariant(name, "", passed, 0.0 if passed else 0.5, None if passed else "episode 7, step 3 of 9")


def decided(claims, positions=None, invariants=None, trivial=None):
    positions = (position(1),) if positions is None else positions
    invariants = (invariant(),) if invariants is None else invariants
    verdict, reasons = decide(claims, positions, invariants, trivial, 0.99)
    assert reasons
    assert all(isinstance(reason, str) and reason for reason in reasons)
    return verdict, " | ".join(reasons)


@pytest.mark.parametrize("trivial", [None, TRIVIAL], ids=["demanding", "vacuous"])
@pytest.mark.parametrize("lawful", [True, False], ids=["lawful", "unlawful"])
@pytest.mark.parametrize("at_step", VERDICTS)
@pytest.mark.parametrize("of_claim", VERDICTS)
def test_every_combination(of_claim, at_step, lawful, trivial):
    claims = (claim(of_claim), claim(at_step, "every_step"), claim("passed", "total_variation"))
    verdict, reasons = decided(claims, (position(1), position(2, at_step)), (invariant(), invariant(lawful)), trivial)
    found = {of_claim, at_step}
    if not lawful or "failed" in found:
        assert verdict == "refuted"
        assert ("not finite: episode 7, step 3" in reasons) == (not lawful)
        assert ("the kl_bits: 0.04" in reasons) == (of_claim == "failed")
        assert ("above the tolerance at step 2;" in reasons) == (at_step == "failed")
        assert "undecided" not in reasons
    elif trivial is not None:
        assert verdict == "undecided"
        assert "the prior agent (Bayes without evidence)" in reasons
        assert "lower the tolerance, or use a tunnel or configuration in which evidence matters" in reasons
    elif "undecided" in found:
        assert verdict == "undecided"
        assert "above the 0.01" in reasons
        assert re.search(r"about [\d,]+ episodes or more would settle it", reasons)
    else:
        assert verdict == "certified"
        assert "all 3 voting claims and 2 invariants hold" in reasons


def test_what_does_not_vote_decides_nothing():
    for verdict in VERDICTS:
        assert decided((claim(), claim(verdict, "jensen_shannon_bits", votes=False)))[0] == "certified"


def test_nothing_judged_is_nothing_decided():
    verdict, reasons = decided(claims=(), positions=())
    assert verdict == "undecided"
    assert reasons == "no episode was judged"


@pytest.mark.parametrize("bound", [np.nan, np.inf])
def test_a_bound_that_is_no_number_never_passes(bound):
    verdict, reasons = decided((claim(upper=bound),))  # though it says that it passed
    assert verdict == "undecided"
    assert "nan" not in reasons
    for name in ("estimate", "upper"):
        assert decided((claim("undecided", **{name: bound}),))[0] == "undecided"


def test_an_estimate_at_the_tolerance_asks_for_training_and_one_just_below_it_does_not_crash():
    assert "train longer" in decided((claim("undecided", estimate=0.01),))[1]
    assert "train longer" in decided((claim("undecided", estimate=np.nextafter(0.01, 0)),))[1]


def test_more_episodes_are_asked_for_than_were_judged():
    for n, estimate in itertools.product((10, 10**7), (0.0, 0.005, 0.0099)):
        _, reasons = decided((claim("undecided", n=n, estimate=estimate),))
        needed = int(re.search(r"about ([\d,]+) episodes", reasons)[1].replace(",", ""))
        assert needed > n
        assert needed >= 4000  # ln(100) / .99 × range / tolerance: nothing is certified with fewer


def test_the_worst_of_many_steps_is_named_and_the_list_is_cut():
    steps = [position(step, "failed", kl_bits=0.1 * step, kl_lower=0.09 * step) for step in range(1, 11)]
    _, reasons = decided((claim("passed"), claim("failed", "every_step")), (*steps, position(11)))
    assert "at steps 1, 2, 3, 4, 5, … (10 in all); worst at step 10: 1" in reasons
