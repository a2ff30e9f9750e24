"""How properties are run and reported; that each catches what it is for is shown in tests/faults."""

import dataclasses

import numpy as np
import pytest

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.verification import properties
from ppl_tunnels.verification.properties import ORACLE_PROPERTIES, ROUNDING, Property, check_oracle

REFEREED = {"agreement", "masking", "prior at zero evidence", "chain rule"}


@pytest.fixture(scope="module")
def coin(small_tunnels):
    return small_tunnels["coin"]


@dataclasses.dataclass(frozen=True)
class Altered:
    """An oracle whose probabilities are changed by a function."""

    tunnel: object
    change: object

    def predictive(self, episodes, site=None, visible=None):
        law = self.tunnel.oracle().predictive(episodes, site, visible)
        with np.errstate(divide="ignore", invalid="ignore"):
            return Finite(np.log(self.change(law.to_numpy())), law.values)


def of(change):
    return lambda tunnel: Altered(tunnel, change)


def findings(tunnel, change, rounds=1):
    return {finding.name: finding for finding in check_oracle(tunnel, oracle=of(change), rounds=rounds)}


def test_every_property_says_what_it_is_and_why():
    assert len({prop.name for prop in ORACLE_PROPERTIES}) == len(ORACLE_PROPERTIES)
    assert {prop.name for prop in ORACLE_PROPERTIES if prop.small} == REFEREED
    assert all(prop.statement and prop.reason for prop in ORACLE_PROPERTIES)


def test_an_error_between_the_rounding_of_sums_and_the_threshold_is_the_only_slack(coin):
    def tilted(by):
        return lambda probs: probs + by * np.array([1, -1]) * (probs.min(axis=-1, keepdims=True) > 0.1)

    assert all(finding.passed for finding in findings(coin, tilted(0.1 * ROUNDING)).values())
    found = findings(coin, tilted(10 * ROUNDING))["agreement"]
    assert not found.passed
    assert found.worst == pytest.approx(10 * ROUNDING, rel=1e-3)


def test_a_failure_names_episode_step_configuration_and_seed(coin):
    def late(probs):
        probs = probs.copy()
        probs[3, 2] = probs[3, 2][::-1] * 0.5 + 0.5 * probs[3, 2]
        probs[5, 3] = [0.999, 0.001]
        return probs

    found = findings(coin, late)["agreement"]
    assert "at episode 5, step 4 of coin(length=4, points=3), seed 0" in found.detail
    assert found.cases == 8 * 4


def test_a_nan_in_an_oracle_fails_every_property_that_meets_it(coin):
    def poisoned(probs):
        probs = probs.copy()
        probs[0, 0] = np.nan
        return probs

    found = findings(coin, poisoned)
    for name in ("agreement", "masking", "prior at zero evidence", "chain rule", "normalised"):
        assert not found[name].passed
        assert found[name].worst == np.inf


def test_a_leak_at_a_single_step_is_no_oracle(coin):
    """At one step of twenty the law follows the flip itself, by a hair."""
    long = coin.configure(length=20)

    class Peeking(Altered):
        def predictive(self, episodes, site=None, visible=None):
            count, steps = np.shape(episodes.stream["flip"])
            probs = np.full((count, steps, 2), 0.5)
            probs[:, 13] += 1e-12 * np.eye(2)[np.asarray(episodes.stream["flip"])[:, 13]]
            return Finite(np.log(probs))

    causality = next(prop for prop in ORACLE_PROPERTIES if prop.name == "causality")
    violations, _ = causality.run(long, Peeking(long, None), 0)
    assert set(np.argwhere(violations > 0)[:, 1]) == {13}


def test_what_a_tunnel_refuses_to_answer_is_a_finding(coin):
    class Silent(Altered):
        def predictive(self, episodes, site=None, visible=None):
            if visible is not None:
                raise TunnelError("this oracle knows no masks")
            return super().predictive(episodes, site, visible)

    found = {
        finding.name: finding for finding in check_oracle(coin, lambda tunnel: Silent(tunnel, lambda p: p), rounds=1)
    }
    assert not found["masking"].passed
    assert found["masking"].detail == "this oracle knows no masks"
    assert all(finding.passed for name, finding in found.items() if name != "masking")


def test_without_a_referee_nothing_is_said_to_agree(coin, monkeypatch):
    monkeypatch.setattr(properties, "small_configurations", lambda tunnel: ())
    found = {finding.name: finding for finding in check_oracle(coin, rounds=1)}
    assert {name for name, finding in found.items() if not finding.passed} == REFEREED
    for name in REFEREED:
        assert found[name].cases == 0
        assert "no configuration small enough for the referee was found; name one with" in found[name].detail


def test_rounds_are_independent_draws(coin):
    seen = []
    record = Property("record", "", "", False, lambda tunnel, oracle, seed: (seen.append(seed) or np.zeros((2, 3)), ""))
    found = properties._run(record, {coin: None}, (coin,), 3)
    assert seen == [0, 1, 2]
    assert (found.passed, found.worst, found.cases, found.detail) == (True, 0.0, 18, "no difference")


@pytest.mark.parametrize("name", ["umbrella", "told", "every_other"])
def test_oracles_of_other_kinds_pass(programs, name):
    for finding in check_oracle(getattr(programs, name), rounds=1):
        assert finding.passed, finding


def test_a_closed_form_that_is_wrong_is_found_out(programs):
    found = {finding.name: finding for finding in check_oracle(programs.wrongly_solved, rounds=1)}
    assert {name for name, finding in found.items() if not finding.passed} == {"agreement", "masking", "chain rule"}
