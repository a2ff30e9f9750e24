"""Random programs: every oracle that is derived says what the referee says, and what is out of reach is refused.

A few program shapes with dozens of programs each; `campaign` judges thousands.
"""

import json
import math

import hypothesis
import numpy as np
import pytest

from ppl_tunnels.verification.strategies import FINITE_FAMILIES, random_programs, seeded_spec
from tests.fuzz.comparison import compare
from tests.fuzz.journal import Journal, Totals, without_names
from tests.fuzz.verdict import UNDEFINED, Verdict

CASES = 60
# Seeds of small programs, one of each family within reach, and programs out of it.
INSIDE = {"static": 29, "chain": 5, "conjugate": 0, "regression": 30, "gaussian chain": 62}
OUTSIDE = {"curved": 0}
SLOWER = {"wrong scale": 10, "not conjugate": 57, "conjugate for some data": 10, "hidden choice": 1, "unclosed": 0}


def assert_right(verdict: Verdict, spec) -> None:
    """Nothing that was answered is wrong."""
    assert not verdict.wrong, f"{verdict.disagreement}\n{verdict.crashes}\n{spec.to_json()}"


# Compiled with a Gaussian part these take longest; the tunnels `kalman` and `regression` are such programs.
LONGER = {"regression", "gaussian chain"}


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow) if name in LONGER else name for name in INSIDE]
)
def test_a_program_within_reach_is_derived_and_every_number_is_right(family):
    spec = seeded_spec(INSIDE[family], (family,))
    (verdict,) = compare(spec, every_engine=False, cases=CASES)
    assert_right(verdict, spec)
    assert not verdict.refused and not verdict.partly
    assert verdict.cases >= CASES and verdict.compared > 10 * verdict.unsure


@pytest.mark.parametrize("family", [*OUTSIDE, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOWER)])
def test_a_program_out_of_reach_is_refused(family):
    spec = seeded_spec((OUTSIDE | SLOWER)[family], (family,))
    (verdict,) = compare(spec, every_engine=False, cases=CASES)
    assert_right(verdict, spec)
    assert verdict.refused


@hypothesis.given(random_programs(FINITE_FAMILIES))
@hypothesis.settings(max_examples=2, phases=[hypothesis.Phase.generate, hypothesis.Phase.target])
def test_drawn_programs_of_finite_latents_are_right(spec):
    hypothesis.assume(spec.steps > 1)
    (verdict,) = compare(spec, every_engine=False, cases=CASES)
    hypothesis.target(math.log10(verdict.worst + 1e-18), label="largest relative error, log10")
    assert_right(verdict, spec)
    assert not verdict.refused


@pytest.mark.slow
@hypothesis.given(random_programs())
@hypothesis.settings(max_examples=100, derandomize=False)
def test_many_drawn_programs_are_right(spec):
    verdicts = compare(spec, cases=CASES)
    for verdict in verdicts:
        hypothesis.target(math.log10(verdict.worst + 1e-18), label=f"largest relative error of {verdict.engine}, log10")
        assert_right(verdict, spec)
    assert spec.inside or verdicts[0].refused


@pytest.mark.slow
def test_nearly_all_programs_within_reach_are_derived():
    specs = [spec for spec in map(seeded_spec, range(100)) if spec.inside]
    verdicts = [compare(spec, every_engine=False, cases=1)[0] for spec in specs]
    assert sum(not verdict.refused for verdict in verdicts) >= 0.95 * len(specs)


def test_a_number_out_of_tolerance_is_a_disagreement_and_one_that_the_referee_doubts_is_not():
    expected = np.array([0.25, 0.75, 0.0])
    verdict = Verdict("engine")
    verdict.note("right", expected * (1 + 1e-13), expected, np.zeros(3))
    assert not verdict.wrong and verdict.compared == 3 and 0 < verdict.worst < 2e-13
    verdict.note("doubted", expected + 1e-3, expected, np.full(3, 1e-2))
    assert not verdict.wrong and verdict.unsure == 3
    verdict.note("off", expected + np.array([0, 1e-9, 0]), expected, np.full(3, 1e-10))
    assert verdict.disagreement.startswith("off at (1,)")


@pytest.mark.parametrize("got", [0.5, -np.inf, np.inf], ids=str)
def test_what_is_possible_and_called_impossible_is_a_disagreement(got):
    expected = np.array([-np.inf if got == 0.5 else 0.5])
    verdict = Verdict("engine")
    verdict.note("evidence", np.array([got]), expected, np.zeros(1))
    assert verdict.wrong


def test_nan_is_a_refusal_and_hides_nothing_else():
    verdict = Verdict("engine")
    verdict.note("law under mask 0", np.array([np.nan, 0.5]), np.array([0.5, 0.5]), np.zeros(2))
    assert verdict.partly == {"law": UNDEFINED} and verdict.compared == 1 and not verdict.wrong
    verdict.note("law under mask 1", np.array([np.nan, 0.6]), np.array([0.5, 0.5]), np.zeros(2))
    assert verdict.wrong


def entry(seed: int, **verdict) -> dict:
    return {
        "seed": seed,
        "family": "static",
        "reach": "inside",
        "shape": str(seed % 2),
        "seconds": 1.0,
        "verdicts": [vars(Verdict("enumeration", programs=5, cases=10, compared=100)) | verdict],
    }


def test_a_journal_goes_on_after_a_line_that_was_cut_short(tmp_path):
    path = tmp_path / "campaign" / "out.jsonl"
    journal = Journal(path)
    for seed in range(3):
        journal.add(entry(seed))
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    again = Journal(path)
    assert [each["seed"] for each in again.entries] == [0, 1]
    again.add(entry(7))
    again.close()
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1, 7]


def test_totals_count_what_was_seen():
    entries = [entry(0, worst=1e-14), entry(1, worst=1e-13), entry(2, refused="site 'x' has 3 values"), entry(4)]
    entries += [entry(5, disagreement="off by 1"), entry(6, crashes={"derive": "KeyError: 1"})]
    entries += [entry(8, refused="no"), entry(10)]
    for outside in entries[-2:]:
        outside["reach"] = "outside: a reason"
    totals = Totals.of(entries)
    assert (totals.specs, len(totals.shapes), totals.cases, totals.compared) == (8, 2, 80, 800)
    assert totals.programs == 6 * 5 + 2
    assert totals.inside == [6, 5] and totals.outside == [2, 1, 1]
    assert totals.worst["enumeration"] == (1e-13, 1)
    assert totals.refusals == {without_names("site 'y' has 4 values"): 1}
    assert [each["seed"] for each in totals.wrong] == [5, 6]
    assert "WRONG seed 6, static, enumeration: derive: KeyError: 1" in totals.summary()
