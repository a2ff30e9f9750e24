"""The mixture-of-bets bound against exact rational arithmetic, its symmetries, and bounds that are wrong on purpose."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ppl_tunnels.verification import bounds
from ppl_tunnels.verification.bounds import (
    log_evalue_mean_at_least,
    log_evalue_mean_at_most,
    lower_bound,
    p_value,
    upper_bound,
)

BETS = (0.25, 0.5, 0.75, 0.9, 0.99)  # written out again: a certificate is recomputed with these and no others
PRECISION = 1e-11  # of the range: what the docstring of upper_bound promises
KINDS = ["uniform", "small", "spikes", "ends", "constant", "zero", "full"]
profile = settings(deadline=None, max_examples=25)
confidences = st.sampled_from([0.5, 0.95, 0.99, 0.9999])
seeds = st.integers(0, 2**32 - 1)


def sample(kind, *, n, range_, seed):
    """`[episode]` in [0, R]; the kinds differ in how near the ends of the range the values lie."""
    generator = np.random.default_rng(seed)
    uniform = generator.uniform(size=n)
    unit = {
        "uniform": uniform,
        "small": np.minimum(-1e-3 * np.log(uniform), 1.0),
        "spikes": np.where(generator.uniform(size=n) < 0.1, uniform, 0.0),
        "ends": np.round(uniform),
        "constant": np.full(n, uniform[0]),
        "zero": np.zeros(n),
        "full": np.ones(n),
    }[kind]
    return unit * range_


ranges = st.sampled_from([1.0, 14.8169, 1e-3])
samples = st.builds(
    lambda kind, n, range_, seed: (sample(kind, n=n, range_=range_, seed=seed), range_),
    st.sampled_from(KINDS),
    st.sampled_from([1, 2, 15, 16, 17, 40]),
    ranges,
    seeds,
)


def exact_evalue(x, m, range_, *, at_least=True):
    """E(m) in rational arithmetic, floats taken at their exact values."""
    m, gap = Fraction(float(m)), Fraction(float(range_)) - Fraction(float(m))
    values = [Fraction(float(value)) for value in x]
    payoffs = [(m - value) / gap if at_least else (value - m) / m for value in values]
    return sum(math.prod(1 + Fraction(bet) * payoff for payoff in payoffs) for bet in BETS) / len(BETS)


def log_of_fraction(value):
    shift = value.numerator.bit_length() - value.denominator.bit_length()
    return np.log(float(value / Fraction(2) ** shift)) + shift * np.log(2)


# What any upper bound built on E(m) must do. Each check takes the bound, so that wrong ones can be put through it too.


def encloses_the_mean(upper, x, range_, confidence):
    bound = upper(x, range_=range_, confidence=confidence)
    assert np.mean(x) <= bound * (1 + 1e-15), f"bound {bound} below the sample mean {np.mean(x)}"
    assert bound <= range_, f"bound {bound} above the range {range_}"


def is_the_exact_root_rounded_up(upper, x, range_, confidence):
    bound, wanted = float(upper(x, range_=range_, confidence=confidence)), 1 / (1 - Fraction(confidence))
    assert bound >= range_ or exact_evalue(x, bound, range_) >= wanted, f"{bound} is not refuted"
    below = min(bound, range_) - PRECISION * range_
    assert below <= 0 or exact_evalue(x, below, range_) < wanted, f"{below} is refuted too"


def ignores_the_order(upper, x, range_, confidence):
    shuffled = np.random.default_rng(0).permutation(x)
    found = [float(upper(values, range_=range_, confidence=confidence)) for values in (x, shuffled, x[::-1])]
    assert len(set(found)) == 1, found


def scales_with_the_unit(upper, x, range_, confidence):
    bound = upper(x, range_=range_, confidence=confidence)
    assert upper(8 * x, range_=8 * range_, confidence=confidence) == 8 * bound
    assert upper(x / 3, range_=range_ / 3, confidence=confidence) == pytest.approx(bound / 3, abs=PRECISION * range_)


def grows_with_every_value(upper, x, range_, confidence):
    worse = np.minimum(x + 0.1 * range_ * np.random.default_rng(1).uniform(size=x.shape), range_)
    found = [upper(values, range_=range_, confidence=confidence) for values in (x, worse)]
    assert found[0] <= found[1] + PRECISION * range_, found


CHECKS = [
    encloses_the_mean,
    is_the_exact_root_rounded_up,
    ignores_the_order,
    scales_with_the_unit,
    grows_with_every_value,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@given(drawn=samples, confidence=confidences)
@profile
def test_upper_bound(check, drawn, confidence):
    check(upper_bound, *drawn, confidence)


@given(drawn=samples, confidence=confidences)
@profile
def test_lower_bound_is_the_exact_root_rounded_down(drawn, confidence):
    (x, range_), wanted = drawn, 1 / (1 - Fraction(confidence))
    bound = float(lower_bound(x, range_=range_, confidence=confidence))
    assert 0 <= bound <= np.mean(x) * (1 + 1e-15)
    assert bound == 0 or exact_evalue(x, bound, range_, at_least=False) >= wanted
    above = bound + PRECISION * range_
    assert above >= range_ or exact_evalue(x, above, range_, at_least=False) < wanted


@given(drawn=samples, confidence=confidences)
@profile
def test_lower_bound_mirrors_the_upper_one(drawn, confidence):
    x, range_ = drawn
    mirrored = range_ - upper_bound(range_ - x, range_=range_, confidence=confidence)
    assert lower_bound(x, range_=range_, confidence=confidence) == pytest.approx(mirrored, abs=2 * PRECISION * range_)


FAULTS = {  # what was done wrong -> the bound, and the checks that notice
    "wrong sign": (lambda x, **known: lower_bound(x, **known), {"encloses_the_mean", "is_the_exact_root_rounded_up"}),
    "student t": (
        lambda x, *, range_, confidence: (
            np.mean(x) + stats.t.ppf(confidence, len(x) - 1) * np.std(x, ddof=1) / np.sqrt(len(x))
        ),
        {"is_the_exact_root_rounded_up"},
    ),
    "the other end of the bracket": (
        lambda x, *, range_, confidence: upper_bound(x, range_=range_, confidence=confidence) - 2 * PRECISION * range_,
        {"is_the_exact_root_rounded_up"},
    ),
    "level of a two-sided interval": (
        lambda x, *, range_, confidence: upper_bound(x, range_=range_, confidence=2 * confidence - 1),
        {"is_the_exact_root_rounded_up"},
    ),
    "range taken from the sample": (
        lambda x, *, range_, confidence: upper_bound(x, range_=np.max(x), confidence=confidence),
        {"is_the_exact_root_rounded_up"},
    ),
    "last episode dropped": (
        lambda x, *, range_, confidence: upper_bound(x[:-1], range_=range_, confidence=confidence),
        {"is_the_exact_root_rounded_up", "ignores_the_order"},
    ),
    "range of another tunnel": (
        lambda x, *, range_, confidence: upper_bound(x, range_=200.0, confidence=confidence),
        {"is_the_exact_root_rounded_up", "scales_with_the_unit"},
    ),
    "clipped at a tenth of the range": (
        lambda x, *, range_, confidence: min(upper_bound(x, range_=range_, confidence=confidence), range_ / 10),
        {"encloses_the_mean", "is_the_exact_root_rounded_up"},
    ),
    "mean of R minus x": (
        lambda x, *, range_, confidence: upper_bound(range_ - x, range_=range_, confidence=confidence),
        {"is_the_exact_root_rounded_up", "grows_with_every_value"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_bounds_are_noticed(fault):
    bound, noticing = FAULTS[fault]
    for check in CHECKS:
        if check.__name__ in noticing:
            with pytest.raises(AssertionError):
                for seed, kind in enumerate(["uniform", "small", "spikes", "constant"]):
                    check(bound, sample(kind, n=40, range_=14.8169, seed=seed), 14.8169, 0.99)


@given(drawn=samples, fractions=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)))
@profile
def test_log_evalue_is_exact_and_monotone_in_m(drawn, fractions):
    x, range_ = drawn
    m = [fraction * range_ for fraction in sorted(fractions)]
    for log_evalue, at_least in ((log_evalue_mean_at_least, True), (log_evalue_mean_at_most, False)):
        values = [float(log_evalue(x, threshold, range_=range_)) for threshold in m]
        assert values == sorted(values, reverse=not at_least) or values[0] == pytest.approx(values[1], abs=1e-9)
        for threshold, value in zip(m, values, strict=True):
            if 1e-9 * range_ < threshold < (1 - 1e-9) * range_:
                exact = log_of_fraction(exact_evalue(x, threshold, range_, at_least=at_least))
                assert value == pytest.approx(exact, rel=1e-12, abs=1e-12 * len(x))


@pytest.mark.parametrize("m", [0.0, 1e-300, 1.0])
def test_log_evalue_at_the_ends_of_the_range_is_finite_and_never_overstated(m):
    x = np.repeat([0.0, 0.5, 1.0], 20)
    assert log_evalue_mean_at_least(x, 0.0, range_=1.0) <= 0
    assert log_evalue_mean_at_most(x, 1.0, range_=1.0) <= 0
    assert np.isfinite([log_evalue_mean_at_least(x, m, range_=1.0), log_evalue_mean_at_most(x, m, range_=1.0)]).all()
    if m < 0.5:  # not above what the exact wealth is at a threshold that is easier to refute
        assert log_evalue_mean_at_most(x, m, range_=1.0) <= log_of_fraction(exact_evalue(x, 1e-17, 1.0, at_least=False))


@given(seed=seeds, confidence=confidences)
@settings(profile, max_examples=8)
def test_columns_are_bounded_one_by_one(seed, confidence):
    ranges_by_column = np.array([1.0, 14.8169, 1.0, 4.3, 1e-3, 1.0, 2.0])
    columns = [
        sample(kind, n=40, range_=range_, seed=seed) for kind, range_ in zip(KINDS, ranges_by_column, strict=True)
    ]
    table = np.stack(columns, axis=1)
    for bound in (upper_bound, lower_bound):
        together = bound(table, range_=ranges_by_column, confidence=confidence)
        alone = [bound(x, range_=r, confidence=confidence) for x, r in zip(columns, ranges_by_column, strict=True)]
        assert together.tolist() == alone
    for log_evalue in (log_evalue_mean_at_least, log_evalue_mean_at_most):
        together = log_evalue(table, ranges_by_column / 3, range_=ranges_by_column)
        alone = [log_evalue(x, r / 3, range_=r) for x, r in zip(columns, ranges_by_column, strict=True)]
        assert together.tolist() == alone


@given(drawn=samples)
@settings(profile, max_examples=10)
def test_more_confidence_is_a_wider_bound(drawn):
    x, range_ = drawn
    uppers = [upper_bound(x, range_=range_, confidence=c) for c in (0.5, 0.9, 0.99, 0.9999)]
    lowers = [lower_bound(x, range_=range_, confidence=c) for c in (0.5, 0.9, 0.99, 0.9999)]
    assert uppers == sorted(uppers)
    assert lowers == sorted(lowers, reverse=True)


def test_extreme_samples():
    assert upper_bound(np.ones(30), range_=1.0, confidence=0.99) == 1.0
    assert lower_bound(np.zeros(30), range_=1.0, confidence=0.99) == 0.0
    assert upper_bound([0.3], range_=1.0, confidence=0.99) <= 1.0
    assert upper_bound(np.zeros(10**5), range_=1.0, confidence=0.99) < 1e-4


def test_a_large_sample_agrees_with_the_formula_written_out():
    x = np.minimum(np.random.default_rng(0).exponential(1e-3, 200_000), 14.8)
    m = 1.02e-3
    wealth = [np.log1p(c * (m - x) / (14.8 - m)).sum() for c in BETS]
    assert log_evalue_mean_at_least(x, m, range_=14.8) == pytest.approx(
        np.logaddexp.reduce(wealth) - np.log(5), rel=1e-9
    )
    bound = upper_bound(x, range_=14.8, confidence=0.99)
    assert log_evalue_mean_at_least(x, bound, range_=14.8) == pytest.approx(np.log(100), rel=1e-6)


@pytest.mark.parametrize("function", [upper_bound, lower_bound])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0.1, np.nan], r"x\[1\] is nan"),
        ([[0.1, 0.2], [0.3, np.nan]], r"x\[1, 1\] is nan"),
        ([0.1, -0.2], r"x\[1\] is -0.2; expected a value in \[0, 1.0\]"),
        ([np.inf, 0.2], r"x\[0\] is inf"),
        ([0.1, 1.5], r"x\[1\] is 1.5"),
        ([], r"shape \(0,\)"),
        (np.zeros((3, 0)), r"shape \(3, 0\)"),
        (0.5, r"shape \(\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
    ],
)
def test_a_sample_that_breaks_the_assumption_is_refused_by_its_index(function, x, message):
    with pytest.raises(ValueError, match=message):
        function(x, range_=1.0, confidence=0.99)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 1.5, np.nan])
def test_confidence_must_be_a_probability(confidence):
    with pytest.raises(ValueError, match="confidence is"):
        upper_bound([0.5], range_=1.0, confidence=confidence)


@pytest.mark.parametrize("range_", [0.0, -1.0, np.inf, np.nan])
def test_range_must_be_positive_and_finite(range_):
    with pytest.raises(ValueError, match="range_ is"):
        upper_bound([0.5], range_=range_, confidence=0.99)


def test_rounding_never_makes_a_bound_optimistic(monkeypatch):
    """Bisected until the bracket is one unit in the last place wide, where only the allowance for rounding is left."""
    monkeypatch.setattr(bounds, "HALVINGS", 80)
    for seed in range(30):
        x = sample(["uniform", "small", "spikes"][seed % 3], n=17, range_=1.0, seed=seed)
        upper, lower = (bound(x, range_=1.0, confidence=0.99) for bound in (upper_bound, lower_bound))
        assert exact_evalue(x, upper, 1.0) >= 1 / (1 - Fraction(0.99))
        assert lower == 0 or exact_evalue(x, lower, 1.0, at_least=False) >= 1 / (1 - Fraction(0.99))


def test_thresholds_and_ranges_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected 0 <= m <= range_"):
        log_evalue_mean_at_least([0.5], 1.5, range_=1.0)
    with pytest.raises(ValueError, match="expected 0 <= m <= range_"):
        log_evalue_mean_at_most([0.5], np.nan, range_=1.0)
    with pytest.raises(ValueError, match=r"m has shape \(3,\)"):
        log_evalue_mean_at_least(np.zeros((4, 2)), np.full(3, 0.5), range_=1.0)
    with pytest.raises(ValueError, match=r"range_ has shape \(1,\); expected a scalar, since x has one column"):
        upper_bound(np.zeros(4), range_=[1.0], confidence=0.99)


def test_rounding_at_the_ends_of_the_range_is_forgiven():
    range_ = 4.321928094887363
    x = [-1e-17, range_ * (1 + 4e-16)]
    assert upper_bound(x, range_=range_, confidence=0.99) == upper_bound([0, range_], range_=range_, confidence=0.99)


def test_float32_jax_arrays_are_read_in_float64():
    x = jnp.asarray([0.1, 0.2, 0.3], dtype=jnp.float32)
    bound = upper_bound(x, range_=1.0, confidence=0.99)
    assert bound.dtype == np.float64
    assert bound == upper_bound(np.asarray(x, dtype=np.float64), range_=1.0, confidence=0.99)


def test_p_value():
    assert p_value([-np.inf, 0.0, np.log(100), 800.0]).tolist() == pytest.approx([1, 1, 0.01, 0])
    with pytest.raises(ValueError, match="no evidence"):
        p_value([0.0, np.nan])
