"""The Chernoff-KL bound against its defining equation and closed forms at the ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppl_tunnels.verification.bounds import upper_bound
from ppl_tunnels.verification.chernoff import chernoff_lower_bound, chernoff_upper_bound
from ppl_tunnels.verification.proportion import clopper_pearson_upper

profile = settings(deadline=None, max_examples=40)
confidences = st.sampled_from([0.5, 0.95, 0.99, 0.9999])


def binary_kl(a, b):
    return sum(p * np.log(p / q) for p, q in ((a, b), (1 - a, 1 - b)) if p > 0)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 7, 200]),
    scale=st.sampled_from([1e-4, 0.1, 1.0]),
    range_=st.sampled_from([1.0, 14.8]),
    confidence=confidences,
)
@profile
def test_bounds_solve_the_defining_equation_on_either_side_of_the_mean(seed, n, scale, range_, confidence):
    x = scale * range_ * np.random.default_rng(seed).uniform(size=n)
    lower, upper = (f(x, range_=range_, confidence=confidence) for f in (chernoff_lower_bound, chernoff_upper_bound))
    assert 0 <= lower < x.mean() < upper < range_
    for bound in (lower, upper) if lower > 1e-9 * x.mean() else (upper,):  # so low a root is rounded down to nothing
        assert n * binary_kl(x.mean() / range_, bound / range_) == pytest.approx(-np.log1p(-confidence), rel=1e-7)


@pytest.mark.parametrize("n", [1, 10, 4603])
def test_closed_forms_at_the_ends(n):
    zeros, ones = np.zeros(n), np.ones(n)
    assert chernoff_upper_bound(zeros, range_=1.0, confidence=0.99) == pytest.approx(1 - 0.01 ** (1 / n), rel=1e-9)
    assert chernoff_lower_bound(ones, range_=1.0, confidence=0.99) == pytest.approx(0.01 ** (1 / n), rel=1e-9)
    assert chernoff_lower_bound(zeros, range_=1.0, confidence=0.99) == 0.0
    assert chernoff_upper_bound(ones, range_=1.0, confidence=0.99) == 1.0


def test_columns_are_bounded_one_by_one():
    ranges = np.array([1.0, 2.0, 14.8])
    x = np.random.default_rng(0).uniform(size=(50, 3)) * ranges
    for bound in (chernoff_lower_bound, chernoff_upper_bound):
        alone = [bound(x[:, i], range_=ranges[i], confidence=0.99) for i in range(3)]
        assert bound(x, range_=ranges, confidence=0.99).tolist() == alone
        assert bound(x[::-1], range_=ranges, confidence=0.99).tolist() == alone


def test_bets_are_worth_it_where_errors_vary_little_and_cost_little_where_they_do_not():
    n, range_ = 20_000, 14.8
    generator = np.random.default_rng(0)
    constant = np.full(n, 5e-3)
    spikes = np.where(generator.uniform(size=n) < 0.01, range_, 0.0)
    for x, least, most in ((constant, 0.4, 0.6), (spikes, 1.0, 1.3)):
        excess = [bound(x, range_=range_, confidence=0.99) - x.mean() for bound in (upper_bound, chernoff_upper_bound)]
        assert least <= excess[0] / excess[1] <= most, excess


def test_a_proportion_is_bounded_a_little_less_tightly_than_exactly():
    hits = np.repeat([1.0, 0.0], [3, 97])
    exact = clopper_pearson_upper(3, 100, confidence=0.99)
    assert exact < chernoff_upper_bound(hits, range_=1.0, confidence=0.99) < 1.2 * exact


@pytest.mark.parametrize("bound", [chernoff_lower_bound, chernoff_upper_bound])
def test_what_breaks_the_assumption_is_refused(bound):
    with pytest.raises(ValueError, match=r"x\[1\] is nan"):
        bound([0.0, np.nan], range_=1.0, confidence=0.99)
    with pytest.raises(ValueError, match=r"x\[0\] is 2.0"):
        bound([2.0, 0.0], range_=1.0, confidence=0.99)
    with pytest.raises(ValueError, match="confidence is 99"):
        bound([0.5], range_=1.0, confidence=99)
