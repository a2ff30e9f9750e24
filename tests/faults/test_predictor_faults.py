"""Every planted fault of a predictor is refused, by name and place; exact Bayes itself, in the same tunnels, is certified."""

import re
from pathlib import Path

import pytest

from ppl_tunnels.registry import module_from_file
from ppl_tunnels.verification.certification import certify
from ppl_tunnels.verification.evaluation import BATCH
from ppl_tunnels.verification.predictors import PredictorError
from ppl_tunnels.verification.properties import Finding

planted = module_from_file(str(Path(__file__).with_name("predictor_faults.py")))
CASES = [(fault, where) for fault in planted.PREDICTOR_FAULTS for where in fault.where]
UNREADABLE = [case for case in CASES if case[0].caught_by == planted.UNREADABLE]
REFUTED = [case for case in CASES if case[0].caught_by != planted.UNREADABLE]
pytestmark = pytest.mark.usefixtures("remembered")
TOLERANCE = 0.05


def named(cases):
    return {"argvalues": cases, "ids": [f"{fault}-{where}".replace(" ", "-") for fault, where in cases]}


@pytest.fixture(scope="module")
def judge(small_tunnels):
    checked = (Finding("agreement", True, 0.0, 1, "checked in test_oracle_faults"),)

    def of(predictor, where, episodes=BATCH):
        return certify(
            predictor,
            small_tunnels[where],
            key=0,
            tolerance_bits=TOLERANCE,
            episodes=episodes,
            oracle_findings=checked,
        )

    return of


@pytest.mark.parametrize("where", planted.BOTH)
def test_without_a_fault_it_is_certified(small_tunnels, judge, where):
    assert judge(planted.exact(small_tunnels[where]), where).verdict == "certified"
    assert judge(planted.edited(lambda probs: None)(small_tunnels[where]), where).verdict == "certified"
    assert judge(planted.leak(0.0)(small_tunnels[where]), where).verdict == "certified"


@pytest.mark.parametrize("fault, where", **named(UNREADABLE))
def test_what_cannot_be_read_is_one_sentence(small_tunnels, judge, fault, where):
    with pytest.raises(PredictorError, match=fault.says) as caught:
        judge(fault.make(small_tunnels[where]), where)
    assert "predictor" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault, where", **named(REFUTED))
def test_what_named_it_catches_it(small_tunnels, judge, fault, where):
    certificate = judge(
        fault.make(small_tunnels[where]), where, episodes=2 * BATCH if "last batch" in str(fault) else BATCH
    )
    assert certificate.verdict == "refuted"
    assert certificate.exit_status == 1
    invariants = {finding.name: finding for finding in certificate.invariants}
    claims = {claim.name: claim for claim in certificate.claims}
    if fault.caught_by in claims and fault.caught_by not in invariants:
        assert all(finding.passed for finding in invariants.values())
        assert claims[fault.caught_by].verdict == "failed"
        assert claims[fault.caught_by].lower > TOLERANCE
    else:
        found = invariants[fault.caught_by]
        assert not found.passed
        assert found.worst > 0
        assert any(found.where in reason for reason in certificate.reasons)
        assert re.search(fault.says, found.where), found.where
    certificate.to_json()  # holds no NaN


def test_every_kind_of_failure_is_planted():
    caught = {fault.caught_by for fault in planted.PREDICTOR_FAULTS}
    assert caught >= {"finite", "normalised", "covers the oracle", "causal", "deterministic", "kl_bits", "every_step"}
