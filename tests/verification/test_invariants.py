"""What is checked of any predictor, seen from inside: twins, company, and which steps count.

The predictors here are plain functions of the coin's flips, so that nothing is compiled; certificates that these checks
refuse are in tests/faults.
"""

import jax
import numpy as np
import pytest

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.verification.invariants import (
    REPRODUCIBILITY,
    STATEMENTS,
    check_causal,
    check_deterministic,
    check_invariants,
    check_rows,
    spliced,
)
from ppl_tunnels.verification.predictors import PredictorError

STEPS = 20


@pytest.fixture(scope="module")
def pair(coin):
    """Two draws of 64 episodes."""
    draws = np.random.default_rng(0).integers(0, 2, (2, 64, STEPS))
    return tuple(Episodes(stream={"flip": flips}) for flips in draws)


def law_of_heads(function):
    """A predictor of the coin from `flips [episode, step] -> heads [episode, step]`."""

    def predictor(episodes):
        heads = function(np.asarray(episodes.stream["flip"]))
        return np.stack([1 - heads, heads], axis=-1)

    return predictor


def laplace(flips):
    before = np.cumsum(flips, axis=1) - flips
    return (before + 1) / (np.arange(STEPS) + 2)


def peeking(step, ahead, share=1e-3):
    """Laplace's rule, but at one step a share of the law follows the flip that is `ahead` steps away."""

    def function(flips):
        heads = laplace(flips)
        heads[:, step] = (1 - share) * heads[:, step] + share * flips[:, step + ahead]
        return heads

    return law_of_heads(function)


@pytest.mark.parametrize("ahead", [0, 1, 7])
def test_a_leak_at_any_single_step_is_seen_and_placed(coin, pair, ahead):
    for step in range(STEPS - ahead):
        found = check_causal(peeking(step, ahead), coin, *pair)
        assert not found.passed, step
        assert f"step {step + 1} of 20" in found.where
        assert found.worst == pytest.approx(1e-3)


def test_what_only_looks_back_is_causal_to_the_last_bit(coin, pair):
    assert check_causal(law_of_heads(laplace), coin, *pair).worst == 0.0
    assert check_causal(peeking(5, -1), coin, *pair).worst == 0.0


def test_the_threshold_of_causality(coin, pair):
    assert check_causal(peeking(3, 0, share=0.9 * REPRODUCIBILITY), coin, *pair).passed
    found = check_causal(peeking(3, 0, share=1.1 * REPRODUCIBILITY), coin, *pair)
    assert not found.passed
    assert "when only what is revealed from 'flip' of step 4 on is changed" in found.where


def test_a_predictor_that_cannot_bear_a_replaced_future_is_told_about_it(coin, pair):
    own = np.asarray(pair[0].stream["flip"])

    def predictor(episodes):
        if not np.array_equal(np.asarray(episodes.stream["flip"]), own):
            raise ValueError("never seen")
        return np.full((*own.shape, 2), 0.5)

    with pytest.raises(PredictorError, match=r"raised ValueError .*never seen .*futures had been replaced"):
        check_causal(predictor, coin, *pair)


def test_twins_are_arrays_like_any_other(coin, pair):
    kinds = []

    def predictor(episodes):
        kinds.append(type(episodes.stream["flip"]))
        return np.full((len(episodes), STEPS, 2), 0.5)

    check_causal(predictor, coin, *pair)
    check_deterministic(predictor, coin, *pair)
    twins = [kind for kind in kinds if kind is not np.ndarray]  # the pair itself is given as NumPy arrays here
    assert len(twins) == len(kinds) - 2
    assert all(issubclass(kind, jax.Array) for kind in twins)


@pytest.mark.parametrize(
    "dependence, how",
    [
        (lambda heads: heads.mean(axis=0, keepdims=True), "asked among other episodes"),
        (lambda heads: np.sort(heads, axis=0)[:1], "asked among other episodes"),
        (lambda heads: heads[:1], "asked"),
        (lambda heads: np.roll(heads, 1, axis=0), "asked"),
        (lambda heads: np.linspace(0, 1, len(heads))[:, None], "asked"),
    ],
    ids=["batch mean", "batch minimum", "first row", "neighbour", "place in the batch"],
)
def test_company_must_not_matter(coin, pair, dependence, how):
    mixed = law_of_heads(lambda flips: 0.99 * laplace(flips) + 0.01 * dependence(laplace(flips)))
    found = check_deterministic(mixed, coin, *pair)
    assert not found.passed
    assert how in found.where
    assert found.worst > REPRODUCIBILITY


def test_who_answers_twice_the_same_is_deterministic(coin, pair):
    assert check_deterministic(law_of_heads(laplace), coin, *pair).worst == 0.0
    generator = np.random.default_rng(0)
    tired = law_of_heads(lambda flips: laplace(flips) * (1 - 1e-4 * generator.random()))
    assert not check_deterministic(tired, coin, *pair).passed


@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_nan_in_any_answer_is_an_infinite_difference(coin, pair, call):
    calls = iter(range(9))

    def sometimes(flips):
        heads = laplace(flips)
        if next(calls) == call:
            heads[40:, 6] = np.nan
        return heads

    found = check_deterministic(law_of_heads(sometimes), coin, *pair)
    assert not found.passed
    assert found.worst == np.inf
    assert "step 7 of 20" in found.where


def test_rows_are_judged_in_order_and_placed(coin):
    exact = np.full((3, STEPS, 2), 0.5)
    names = ["finite", "normalised", "covers the oracle"]
    assert [(f.name, f.passed, f.statement) for f in check_rows(coin, exact, exact)] == [
        (name, True, STATEMENTS[name]) for name in names
    ]
    for value, failing, what in ((np.nan, 0, "it returned nan"), (0.75, 1, "the row sums to 1.25")):
        probs = exact.copy()
        probs[2, 4, 0] = value
        findings = check_rows(coin, probs, exact, offset=100)
        assert [finding.name for finding in findings] == names[: failing + 1]
        assert [finding.passed for finding in findings] == [True] * failing + [False]
        assert findings[-1].where == f"episode 102, step 5 of 20: {what}"
    probs = exact.copy()
    probs[1, 3] = [0.0, 1.0]
    found = check_rows(coin, probs, exact)[-1]
    assert (found.passed, found.worst) == (False, 0.5)
    assert found.where == "episode 1, step 4 of 20: probability 0 for symbol 0, which the oracle gives 0.5"
    certain = np.tile([0.0, 1.0], (3, STEPS, 1))
    assert check_rows(coin, certain, certain)[-1].passed  # zero where zero is right


def test_if_rows_are_no_laws_nothing_else_is_asked(coin, pair):
    calls = []

    def predictor(episodes):
        calls.append(len(episodes))
        return np.full((64, STEPS, 2), 0.6)

    findings = check_invariants(predictor, coin, *pair, np.full((64, STEPS, 2), 0.5))
    assert [finding.name for finding in findings] == ["finite", "normalised"]
    assert calls == [64]


def test_all_invariants_of_an_honest_predictor(coin, pair):
    findings = check_invariants(law_of_heads(laplace), coin, *pair, np.full((64, STEPS, 2), 0.5))
    assert [finding.name for finding in findings] == list(STATEMENTS)
    assert all(finding.passed and finding.where is None for finding in findings)


def test_steps_that_do_not_count_may_look_ahead(programs):
    tunnel = programs.every_other  # steps 2 and 4 of 4 count
    draws = np.random.default_rng(0).integers(0, 2, (2, 64, 4))
    pair = tuple(Episodes(stream={"flip": flips}) for flips in draws)

    def at(step):
        def predictor(episodes):
            probs, flips = np.full((64, 4, 2), 0.5), np.asarray(episodes.stream["flip"])
            probs[:, step] = np.eye(2)[flips[:, step]]  # the answer itself, …
            probs[0, step] = [flips.mean(), 1 - flips.mean()]  # … and the company in one row
            return probs

        return predictor

    exact = np.full((64, 4, 2), 0.5)
    for step, counts in ((0, False), (2, False), (1, True), (3, True)):
        findings = [
            check_causal(at(step), tunnel, *pair),
            check_deterministic(at(step), tunnel, *pair),
            check_rows(tunnel, at(step)(pair[0]), exact)[-1],
        ]
        assert [finding.passed for finding in findings] == [not counts] * 3


def test_splicing_a_stream_of_pairs(small_tunnels):
    tunnel = small_tunnels["bijection"]
    own = Episodes(stream={name: np.zeros((4, 3), int) for name in ("key", "value")}, context={"c": np.zeros(4)})
    other = Episodes(stream={name: np.ones((4, 3), int) for name in ("key", "value")})
    at_one = spliced(tunnel, own, other, 1)
    assert np.asarray(at_one.stream["key"]).tolist() == [[0, 0, 1]] * 4  # the key of the step is revealed first
    assert np.asarray(at_one.stream["value"]).tolist() == [[0, 1, 1]] * 4
    assert np.asarray(at_one.context["c"]).tolist() == [0] * 4
    each = spliced(tunnel, own, other, np.array([0, 1, 2, 0]))
    assert np.asarray(each.stream["key"]).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1]]
    assert np.asarray(each.stream["value"]).tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1]]


def test_splicing_for_a_predicted_latent_keeps_the_whole_step(programs):
    own, other = (Episodes(stream={"seen": np.full((2, 4), value)}) for value in (0, 1))
    assert np.asarray(spliced(programs.umbrella, own, other, 1).stream["seen"]).tolist() == [[0, 0, 1, 1]] * 2
    assert np.asarray(spliced(programs.umbrella, own, other, 3).stream["seen"]).tolist() == [[0, 0, 0, 0]] * 2
