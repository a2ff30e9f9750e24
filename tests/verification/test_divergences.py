"""Divergences of finite laws: known answers, what each must obey, the floor, and wrong formulas that must be noticed."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr

from ppl_tunnels.verification.divergences import (
    FLOOR_SHARE,
    entropy_bits,
    entropy_error_bits,
    floored,
    jensen_shannon_bits,
    kl_bits,
    kl_floor,
    kl_range_bits,
    total_variation,
    total_variation_tolerance,
)

DIVERGENCES = [kl_bits, total_variation, jensen_shannon_bits, entropy_error_bits]
ROUNDING = 1e-13  # bits: sums of at most 20 terms below 40 in size
profile = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)


def law_pairs(seed, symbols, kind):
    """p, q `[8, symbol]`: dense, nearly one-hot, with exact zeros (in p only), or q close to p."""
    generator = np.random.default_rng(seed)
    p, q = generator.dirichlet(np.full(symbols, 0.05 if kind == "spiky" else 1.0), size=(2, 8))
    if kind == "zeros":
        p = np.where(generator.uniform(size=p.shape) < 0.5, 0.0, p)
        p[:, 0] += 1 - p.sum(-1)
    if kind == "close":
        q = (1 - 1e-7) * p + 1e-7 * q
    return p, q


pairs = st.builds(law_pairs, seeds, st.sampled_from([2, 5, 20]), st.sampled_from(["dense", "spiky", "zeros", "close"]))


def coin_ladder(length):
    """The exact next-face law of Beta(1, 1) coins and the probability of each history class: (p [class, 2], weight)."""
    laws = [((1 + h) / (t + 2), 1 / (length * (t + 1))) for t in range(length) for h in range(t + 1)]
    heads, weight = np.array(laws).T
    return np.stack([1 - heads, heads], axis=-1), weight


def test_known_answers():
    assert entropy_bits([0.25, 0.0, 0.75]) == pytest.approx(0.811278, abs=5e-7)
    assert entropy_bits([1.0, 0.0]) == 0.0
    assert entropy_bits([1.0]) == 0.0
    assert [entropy_bits(np.full(n, 1 / n)) for n in (2, 4, 20)] == [1.0, 2.0, pytest.approx(math.log2(20))]
    assert kl_bits([0.0, 1.0], [0.0, 1.0]) == 0.0  # cross-entropy with logits (-inf, 0), elsewhere nan
    assert kl_bits([0.5, 0.5], [0.25, 0.75]) == pytest.approx(1 - math.log2(3) / 2)
    assert kl_bits([0.5, 0.5], [0.0, 1.0]) == np.inf
    assert kl_bits([0.0, 1.0], [0.5, 0.5]) == 1.0
    assert jensen_shannon_bits([1.0, 0.0], [0.5, 0.5]) == pytest.approx(1.5 - 0.75 * math.log2(3))
    assert total_variation([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]) == 1.0


def test_a_uniform_predictor_of_the_bijection():
    """k pairs seen leave 20 - k values for a new key; the uniform law is off by 1.1073 bits in KL and in entropy."""
    p = np.array([[0.0] * k + [1 / (20 - k)] * (20 - k) for k in range(19)])
    assert entropy_bits(p) == pytest.approx(np.log2(20 - np.arange(19)))
    for divergence in (kl_bits, entropy_error_bits):
        assert divergence(p, np.full(20, 1 / 20)).mean() == pytest.approx(1.1073, abs=5e-5)


def test_impostors_that_entropy_and_calibration_do_not_see():
    """On Beta(1, 1) coins: labels swapped everywhere (.7 bits over ten faces), a constant half (.187 over seventeen)."""
    p, weight = coin_ladder(10)
    assert np.sum(weight * kl_bits(p, p[:, ::-1])) == pytest.approx(0.7, abs=0.05)
    assert np.max(entropy_error_bits(p, p[:, ::-1])) == 0.0
    p, weight = coin_ladder(17)
    assert np.sum(weight * kl_bits(p, [0.5, 0.5])) == pytest.approx(0.187, abs=5e-4)


# Each property takes the functions it is about, so that wrong formulas can be put through it too.


def is_zero_at_equality(divergence, p, q):
    assert divergence(p, p).tolist() == [0.0] * len(p)


def is_nonnegative_and_finite_where_q_covers_p(divergence, p, q):
    values = divergence(p, q)
    assert np.all(values >= 0), values.min()
    assert np.all(np.isfinite(values[np.all((q > 0) | (p == 0), axis=-1)]))


def ignores_the_order_of_the_symbols(divergence, p, q):
    assert divergence(p[:, ::-1], q[:, ::-1]) == pytest.approx(divergence(p, q), rel=1e-12, abs=ROUNDING)


def is_taken_law_by_law(divergence, p, q):
    together = divergence(p.reshape(2, 4, -1), q.reshape(2, 4, -1))
    assert together.shape == (2, 4)
    assert together.ravel().tolist() == [float(divergence(a, b)) for a, b in zip(p, q, strict=True)]
    assert divergence(p[0], q).tolist() == [float(divergence(p[0], b)) for b in q]


def does_not_grow_when_symbols_are_merged(divergence, p, q):
    def merge(law):
        return np.concatenate([law[:, :1] + law[:, 1:2], law[:, 2:]], axis=-1)

    assert np.all(divergence(merge(p), merge(q)) <= divergence(p, q) + ROUNDING)


def is_convex(divergence, p, q):
    middle = divergence((p + p[::-1]) / 2, (q + q[::-1]) / 2)
    assert np.all(middle <= (divergence(p, q) + divergence(p[::-1], q[::-1])) / 2 + ROUNDING)


EVERY = [
    is_zero_at_equality,
    is_nonnegative_and_finite_where_q_covers_p,
    ignores_the_order_of_the_symbols,
    is_taken_law_by_law,
]
F_DIVERGENCE = [does_not_grow_when_symbols_are_merged, is_convex]  # an entropy error is none
CASES = [(d, check) for d in DIVERGENCES for check in EVERY + (F_DIVERGENCE if d is not entropy_error_bits else [])]


@pytest.mark.parametrize("divergence, check", CASES, ids=lambda function: function.__name__)
@given(pair=pairs)
@profile
def test_properties(divergence, check, pair):
    check(divergence, *pair)


FAULTS = {  # a formula seen elsewhere -> the formula and the property that it breaks
    "0 log 0 left to be nan": (lambda p, q: (p * np.log2(p / q)).sum(-1), is_nonnegative_and_finite_where_q_covers_p),
    "sum of every law": (lambda p, q: rel_entr(p, q).sum() / math.log(2), is_taken_law_by_law),
    "clipped at 1e-3": (lambda p, q: rel_entr(p, np.clip(q, 1e-3, 1)).sum(-1), is_zero_at_equality),
    "difference of entropies, signed": (
        lambda p, q: entropy_bits(q) - entropy_bits(p),
        is_nonnegative_and_finite_where_q_covers_p,
    ),
    "weighted by the symbol": (
        lambda p, q: np.abs((p - q) * np.arange(1, p.shape[-1] + 1)).sum(-1),
        ignores_the_order_of_the_symbols,
    ),
    "entropy error as a divergence": (entropy_error_bits, does_not_grow_when_symbols_are_merged),
    "entropy error averaged like one": (entropy_error_bits, is_convex),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_formulas_are_noticed(fault):
    formula, check = FAULTS[fault]
    with pytest.raises(AssertionError):
        for kind in ("dense", "spiky", "zeros"):
            check(formula, *law_pairs(0, 5, kind))


@given(pair=pairs)
@profile
def test_relations_between_the_divergences(pair):
    p, q = pair
    kl, tv, js = kl_bits(p, q), total_variation(p, q), jensen_shannon_bits(p, q)
    assert np.all(tv <= np.sqrt(kl * math.log(2) / 2) + 1e-9)  # Pinsker
    assert np.all(js <= tv + ROUNDING)
    assert np.all(js <= 1)
    assert np.all(entropy_error_bits(p, q) <= math.log2(p.shape[-1]))
    assert js.tolist() == jensen_shannon_bits(q, p).tolist()
    assert tv.tolist() == total_variation(q, p).tolist()
    cross_entropy = -np.sum(np.where(p > 0, p * np.log2(np.where(q > 0, q, 1)), 0), axis=-1)
    covered = np.all((q > 0) | (p == 0), axis=-1)
    assert (kl + entropy_bits(p))[covered] == pytest.approx(cross_entropy[covered], abs=1e-10)


@given(pair=pairs, tolerance=st.sampled_from([1e-3, 0.01, 1.0, 20.0]))
@profile
def test_the_floor_costs_its_share_and_buys_a_range(pair, tolerance):
    (p, q), symbols = pair, pair[0].shape[-1]
    softened = floored(q, tolerance)
    assert softened.sum(-1) == pytest.approx(1)
    assert np.all(softened >= kl_floor(tolerance) / symbols)
    assert np.all(kl_bits(p, softened) <= kl_bits(p, q) + FLOOR_SHARE * tolerance + ROUNDING)
    assert np.all(kl_bits(p, softened) <= kl_range_bits(symbols, tolerance) - entropy_bits(p) + ROUNDING)
    assert -math.log2(1 - kl_floor(tolerance)) == pytest.approx(tolerance / 10, rel=1e-9)


def test_the_range_is_reached():
    for symbols, tolerance in ((2, 0.01), (20, 1e-3), (256, 0.1)):
        p, q = np.eye(symbols)[0], np.eye(symbols)[1]
        assert kl_bits(p, floored(q, tolerance)) == pytest.approx(kl_range_bits(symbols, tolerance), rel=1e-12)


def test_tolerances():
    assert total_variation_tolerance(0.01) == pytest.approx(0.059, abs=5e-4)
    assert kl_range_bits(20, 0.01) == pytest.approx(14.817, abs=5e-4)
    for bad in (0.0, -1.0, np.nan, np.inf):
        for function in (
            total_variation_tolerance,
            kl_floor,
            lambda t: floored([1.0], t),
            lambda t: kl_range_bits(2, t),
        ):
            with pytest.raises(ValueError, match="expected a positive finite number of bits"):
                function(bad)
    with pytest.raises(ValueError, match="symbols is 0"):
        kl_range_bits(0, 0.01)


def test_tiny_probabilities_count_and_are_not_taken_for_zero():
    smallest = 5e-324
    assert kl_bits([1.0, 0.0], [smallest, 1.0]) == pytest.approx(1074)
    assert np.isfinite(kl_bits([1.0, smallest], [1.0, 1e-310]))
    assert kl_bits([1.0, smallest], [1.0, 0.0]) == np.inf
    assert jensen_shannon_bits([1.0, smallest], [1.0, 0.0]) == pytest.approx(0, abs=1e-15)


def test_small_divergences_keep_their_digits():
    """Against rational arithmetic and a series: KL = (1/ln 2) sum of p ((q-p)/p)^2 / 2 + O(3)."""
    p, step = np.array([0.25, 0.75]), 2.0**-20
    q = p + np.array([step, -step])
    exact = sum(float((Fraction(b) - Fraction(a)) ** 2 / Fraction(a)) / 2 for a, b in zip(p, q, strict=True))
    assert kl_bits(p, q) == pytest.approx(exact / math.log(2), rel=1e-4)


def test_laws_in_float32_are_accepted_and_their_rounding_is_not_scored():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(50), size=1000)
    rounded = jnp.asarray(p, dtype=jnp.float32)
    assert kl_bits(p, rounded).dtype == np.float64
    assert kl_bits(p, rounded).max() < 1e-13  # the sums alone are off by 1e-8 bits and more
    assert kl_bits(p, p * (1 + 9e-7)).max() < 1e-11


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_what_is_no_law_is_refused_at_its_position(divergence):
    good = np.full((3, 2), 0.5)
    for bad, message in (
        ([[0.5, 0.5], [np.nan, 1.0], [0.5, 0.5]], r"q\[1, 0\] is nan"),
        ([[0.5, 0.5], [0.5, 0.5], [1.1, -0.1]], r"q\[2, 1\] is -0.1"),
        ([[0.5, 0.5], [0.5, 0.6], [0.5, 0.5]], r"q\[1\] sums to 1.1"),
        ([[0.5, 0.5], [np.inf, 0.0], [0.5, 0.5]], r"q\[1\] sums to inf"),
        ([1.0, 1.0], "q sums to 2.0"),
        (np.full((3, 4), 0.25), r"p has shape \(3, 2\) and q \(3, 4\)"),
        (np.full((4, 2), 0.5), r"p has shape \(3, 2\) and q \(4, 2\)"),
        (np.ones((3, 1)), r"p has shape \(3, 2\) and q \(3, 1\)"),
        (1.0, r"q has shape \(\)"),
        (np.ones((3, 0)), r"q has shape \(3, 0\)"),
    ):
        with pytest.raises(ValueError, match=message):
            divergence(good, bad)
        if "q" in message[:2]:
            with pytest.raises(ValueError, match="p" + message[1:]):
                divergence(bad, good)


def test_one_law_is_checked_like_a_pair():
    for function in (entropy_bits, lambda q: floored(q, 0.01)):
        with pytest.raises(ValueError, match=r"\[0, 1\] is nan"):
            function([[0.5, np.nan]])
