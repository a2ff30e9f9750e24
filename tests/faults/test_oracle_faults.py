"""Every planted fault of an oracle is caught by the property named for it, and the oracle without one passes them all."""

from pathlib import Path

import jax
import numpy as np
import pytest

from ppl_tunnels.registry import module_from_file
from ppl_tunnels.verification import referee as refereed
from ppl_tunnels.verification.properties import ORACLE_PROPERTIES, ROUNDING, check_oracle

planted = module_from_file(str(Path(__file__).with_name("oracle_faults.py")))
CASES = [(fault, where) for fault in planted.ORACLE_FAULTS for where in fault.where]
NAMES = [f"{fault.name} in {where}".replace(" ", "-") for fault, where in CASES]


@pytest.fixture(scope="module", autouse=True)
def referee():
    """Brute force asked once for each question: it is the same for every fault, and most of the time."""
    answers = {}

    def remembered(method):
        def ask(tunnel, episodes, **mask):
            asked = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((episodes, mask))]
            question = method.__name__, tunnel, *asked
            if question not in answers:
                answers[question] = method(tunnel, episodes, **mask)
            return answers[question]

        return ask

    with pytest.MonkeyPatch.context() as patch:
        for method in (refereed.brute_force_predictive, refereed.brute_force_log_evidence):
            patch.setattr(refereed, method.__name__, remembered(method))
        yield answers


@pytest.fixture(scope="module")
def findings(small_tunnels):
    """What `check_oracle` finds, by property, run once for each fault and tunnel."""
    found = {}

    def of(fault, where):
        if (fault, where) not in found:
            findings = check_oracle(small_tunnels[where], oracle=fault.oracle)
            found[fault, where] = {finding.name: finding for finding in findings}
        return found[fault, where]

    return of


@pytest.mark.parametrize("where", planted.NO_FAULT.where)
def test_exact_bayes_written_apart_from_the_library_passes_everything(findings, where):
    failed = [finding for finding in findings(planted.NO_FAULT, where).values() if not finding.passed]
    assert not failed


@pytest.mark.parametrize("where", planted.NO_FAULT.where)
def test_the_derived_oracle_passes_everything(small_tunnels, where):
    findings = check_oracle(small_tunnels[where])
    assert [finding.name for finding in findings] == [prop.name for prop in ORACLE_PROPERTIES]
    for finding in findings:
        assert finding.passed, finding
        assert finding.worst <= ROUNDING
        assert finding.cases >= 16


@pytest.mark.parametrize("fault, where", CASES, ids=NAMES)
def test_the_property_named_for_it_catches_the_fault(findings, fault, where):
    found = findings(fault, where)[fault.caught_by]
    assert not found.passed, f"{fault.wrong}: {found}"
    assert found.worst > ROUNDING
    assert "off by" in found.detail
    assert "step" in found.detail or fault.caught_by == "chain rule"


@pytest.mark.parametrize("fault, where", CASES, ids=NAMES)
def test_rows_alone_show_only_what_is_wrong_with_rows(findings, fault, where):
    assert findings(fault, where)["normalised"].passed == fault.lawful


def test_every_property_catches_a_fault():
    assert {fault.caught_by for fault in planted.ORACLE_FAULTS} == {prop.name for prop in ORACLE_PROPERTIES}


def test_a_wrong_prior_is_invisible_to_what_needs_no_referee(findings):
    found = findings(next(fault for fault in planted.ORACLE_FAULTS if fault.name == "wrong_prior"), planted.COIN)
    assert all(found[name].passed for name in ("normalised", "support", "causality"))
    assert not found["agreement"].passed
