"""The size that `episodes_needed` names is the first at which `upper_bound` certifies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppl_tunnels.verification.bounds import upper_bound
from ppl_tunnels.verification.divergences import FLOOR_SHARE, kl_range_bits
from ppl_tunnels.verification.sample_size import episodes_needed


# Published planning figures, V = 20 at 99 %: (tolerance, KL of the model before flooring, episodes).
@pytest.mark.parametrize(
    "tolerance, kl, episodes",
    [
        (0.01, 1e-4, 9_330),
        (0.01, 2e-3, 11_900),
        (0.005, 8e-4, 24_000),
        (0.001, 5e-5, 120_000),
        (0.001, 4e-4, 203_000),
    ],
)
def test_planning_figures_for_a_floored_kl(tolerance, kl, episodes):
    needed = episodes_needed(
        tolerance=tolerance,
        range_=kl_range_bits(20, tolerance),
        confidence=0.99,
        mean=kl + FLOOR_SHARE * tolerance,  # flooring adds its share of the tolerance
    )
    assert needed == pytest.approx(episodes, rel=0.005)


def test_no_valid_bound_needs_fewer_than_one_bet_of_everything():
    """Stake all, c = 1: 25,891 episodes for .001 at a truth of .0005, R = log2 20, 95 %; total variation (R = 1) 5,987."""
    assert 25_891 < episodes_needed(tolerance=1e-3, range_=np.log2(20), confidence=0.95, mean=5e-4) < 36_000
    assert 5_987 < episodes_needed(tolerance=1e-3, range_=1.0, confidence=0.95, mean=5e-4) < 9_000


@given(
    tolerance=st.floats(0.01, 0.9),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    range_=st.sampled_from([1.0, 4.3, 14.8]),
    confidence=st.sampled_from([0.5, 0.95, 0.99]),
)
@settings(deadline=None, max_examples=25)
def test_it_is_the_first_size_that_certifies(tolerance, share, range_, confidence):
    mean = share * tolerance
    n = episodes_needed(tolerance=tolerance, range_=range_, confidence=confidence, mean=mean)

    def bound(size):
        return upper_bound(np.full(size, mean), range_=range_, confidence=confidence)

    assert bound(n) <= tolerance * (1 + 1e-9)
    assert n == 1 or bound(n - 1) > tolerance


@pytest.mark.parametrize(
    "numbers",
    [
        {"tolerance": 0.01, "range_": 1.0, "mean": 0.01},
        {"tolerance": 0.01, "range_": 1.0, "mean": -0.01},
        {"tolerance": 2.0, "range_": 1.0, "mean": 0.01},
        {"tolerance": np.nan, "range_": 1.0, "mean": 0.01},
        {"tolerance": 0.01, "range_": np.inf, "mean": 0.0},
    ],
)
def test_a_tolerance_that_no_number_of_episodes_certifies(numbers):
    with pytest.raises(ValueError, match="expected 0 <= mean < tolerance < range_"):
        episodes_needed(**numbers, confidence=0.99)


def test_a_mean_too_close_to_the_tolerance():
    with pytest.raises(ValueError, match="too close"):
        episodes_needed(tolerance=0.5, range_=1e3, confidence=0.99, mean=np.nextafter(0.5, 0))
