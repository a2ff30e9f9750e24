"""What every bound takes for granted: sorted rows inside [0, R], in float64, one for each column."""

import numpy as np
import pytest

from ppl_tunnels.verification.bounded_sample import ROUNDING_ALLOWED, checked_sample, log_inverse_alpha


def test_rows_are_sorted_contiguous_columns():
    x = np.array([[3.0, 0.5], [1.0, 0.25], [2.0, 0.75]], dtype=np.float32)
    rows, ranges = checked_sample(x, range_=[4.0, 1.0])
    assert rows.tolist() == [[1.0, 2.0, 3.0], [0.25, 0.5, 0.75]]
    assert ranges.tolist() == [4.0, 1.0]
    assert rows.dtype == np.float64
    assert rows.flags.c_contiguous


def test_the_data_are_not_changed():
    x = np.array([0.3, 0.1, 0.2])
    checked_sample(x, range_=1.0)
    assert x.tolist() == [0.3, 0.1, 0.2]


def test_rounding_is_brought_back_to_the_ends_and_nothing_else_is():
    rows, _ = checked_sample([-0.9 * ROUNDING_ALLOWED, 1 + 0.9 * ROUNDING_ALLOWED], range_=1.0)
    assert rows.tolist() == [[0.0, 1.0]]
    for value in (-1.1 * ROUNDING_ALLOWED, 1 + 1.1 * ROUNDING_ALLOWED):
        with pytest.raises(ValueError, match=r"x\[1\] is"):
            checked_sample([0.5, value], range_=1.0)


def test_a_value_is_held_against_the_range_of_its_own_column():
    with pytest.raises(ValueError, match=r"x\[0, 1\] is 1.5; expected a value in \[0, 1.0\]"):
        checked_sample([[1.5, 1.5]], range_=[2.0, 1.0])


def test_alpha_keeps_its_digits_near_certainty():
    assert log_inverse_alpha(1 - 2.0**-50) == pytest.approx(50 * np.log(2), rel=1e-12)
