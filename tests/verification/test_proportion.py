"""Clopper-Pearson bounds against binomial tails summed in rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppl_tunnels.verification.proportion import clopper_pearson_lower, clopper_pearson_upper

counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
confidences = st.sampled_from([0.5, 0.95, 0.99, 0.9999])


def tail(successes, trials, p):
    """P(Binomial(trials, p) in successes), exactly."""
    p = Fraction(p)
    return float(sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in successes))


@given(count=counts, confidence=confidences)
@settings(deadline=None, max_examples=60)
def test_the_bounds_are_where_the_tail_is_alpha(count, confidence):
    k, n = count
    upper = clopper_pearson_upper(k, n, confidence=confidence)
    lower = clopper_pearson_lower(k, n, confidence=confidence)
    assert upper == 1.0 if k == n else tail(range(k + 1), n, upper) == pytest.approx(1 - confidence, rel=1e-9)
    assert lower == 0.0 if k == 0 else tail(range(k, n + 1), n, lower) == pytest.approx(1 - confidence, rel=1e-9)
    assert lower <= k / n <= upper or confidence == 0.5  # at 50 % a one-sided bound may lie on either side
    assert upper == pytest.approx(1 - clopper_pearson_lower(n - k, n, confidence=confidence), abs=1e-12)


def test_known_answers():
    assert clopper_pearson_upper(0, 4603, confidence=0.99) <= 0.001 < clopper_pearson_upper(0, 4602, confidence=0.99)
    assert clopper_pearson_lower(5, 5, confidence=0.99) == pytest.approx(0.01 ** (1 / 5))  # .398
    assert clopper_pearson_lower(3, 3, confidence=0.99) == pytest.approx(0.01 ** (1 / 3))  # .215


@pytest.mark.parametrize("bound", [clopper_pearson_lower, clopper_pearson_upper])
def test_counts_that_make_no_sense_are_refused(bound):
    for k, n in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match="expected 0 <= successes <= trials"):
            bound(k, n, confidence=0.99)
    with pytest.raises(TypeError):
        bound(1.5, 5, confidence=0.99)
    with pytest.raises(ValueError, match="confidence is nan"):
        bound(1, 5, confidence=np.nan)
    assert bound(np.int64(1), np.int64(5), confidence=0.99) == bound(1, 5, confidence=0.99)
