"""Every fault planted in an engine is found by comparing a few hundred cases of random programs with the referee."""

import pytest

from tests.fuzz.mutants import CONJUGACY, GAUSSIAN, MIXTURE
from tests.fuzz.mutants_of_sums import ENUMERATION, FILTERING, LOCAL
from tests.fuzz.planting import MOST_CASES, hunt

ENGINES = {
    "conjugacy": CONJUGACY,
    "Gaussian": GAUSSIAN,
    "mixture": MIXTURE,
    "enumeration": ENUMERATION,
    "local": LOCAL,
    "filtering": FILTERING,
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_planted_fault_is_found(engine):
    hunts = hunt(ENGINES[engine])
    for name, of in hunts.items():
        print(f"{name}: {of.cases} cases of {of.programs} programs ({of.refused} refused): {of.found}")
    assert [name for name, of in hunts.items() if not of.found] == []
    assert all(of.cases <= MOST_CASES for of in hunts.values())


def test_a_fault_is_gone_after_its_context():
    for mutants in ENGINES.values():
        assert len({mutant.name for mutant in mutants}) == 5
        for mutant in mutants:
            owner, attribute = mutant.where
            right = owner.__dict__[attribute]
            with mutant.planted():
                assert owner.__dict__[attribute] is not right
            assert owner.__dict__[attribute] is right
