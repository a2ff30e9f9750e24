"""Pictures stay legible and true at the edges: one step or a thousand, gaps, zeros, nulls, negative entropies."""

import doctest
import itertools
import math
import re

import pytest

from ppl_tunnels.verification import drawing, figures, numerals


def some_positions(count: int, first: int = 1) -> list[dict]:
    """Steps of a curve that falls, all passed."""
    numbers = {"kl_bits": 2e-4, "kl_lower": 0.0, "kl_upper": 8e-4, "entropy_error_bits": 3e-4, "verdict": "passed"}
    return [
        numbers | {"step": first + i, "oracle_entropy_bits": entropy, "model_entropy_bits": entropy + 3e-4}
        for i, entropy in enumerate(math.log2(count + 1 - i) for i in range(count))
    ]


@pytest.mark.parametrize("first", [1, 7, 63])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 19, 50, 1000])
def test_step_labels_are_few_and_apart(first, count):
    svg = figures.kl_by_step(some_positions(count, first), 0.01)
    labels = re.findall(r'class="middle" x="([\d.]+)%"[^>]*>(\d+)<', svg)
    places = [float(x) for x, _ in labels]
    assert 1 <= len(labels) <= 8 and labels[0][1] == str(first)
    assert all(b - a > 5 for a, b in itertools.pairwise(places))


def test_steps_that_are_not_scored_leave_a_gap_in_the_curve():
    positions = some_positions(6)
    del positions[2]
    svg = figures.entropy_by_step(positions)
    assert svg.count('<line class="bayes"') == 3
    assert figures.entropy_by_step(positions[:1]).count("dash") == 1
    assert svg.count("dash") == 0


def test_differential_entropy_may_be_negative_and_everything_may_be_zero():
    [position] = some_positions(1)
    negative = position | {"model_entropy_bits": -1.3, "oracle_entropy_bits": -1.25}
    assert ">-1.5<" in figures.entropy_by_step([negative])
    zero = {name: 0.0 for name in position} | {"step": 1, "verdict": "passed"}
    assert "100%" in figures.entropy_by_step([zero])
    assert "down" in figures.kl_by_step([zero], 0.01), "a KL of zero is an arrow at the foot of a log axis"


@pytest.mark.parametrize("module", [drawing, figures, numerals])
def test_the_examples_hold(module):
    failed, tried = doctest.testmod(module)
    assert tried and not failed


@pytest.mark.parametrize("tolerance", [1e-6, 0.001, 0.00999, 0.01, 0.5, 30.0])
@pytest.mark.parametrize("values", [[], [0.0], [None], [1e-300], [1e-5, 3.0], [0.01], [10.0, 100.0]])
def test_a_log_axis_shows_the_tolerance_and_marks_what_it_cannot(values, tolerance):
    axis = drawing.LogAxis.covering(values, tolerance)
    assert 0 < axis.at(tolerance) < 1
    for value in values:
        place = axis.at(value)
        shape = axis.shape(value, inside="dot", below="left", above="right")
        assert 0 <= place <= 1
        assert (shape == "dot") == (value is not None and 10.0**axis.low <= value <= 10.0**axis.high)
        assert place == {"left": 0.0, "right": 1.0}.get(shape, place)


@pytest.mark.parametrize("values", [[0.0], [0.9, 4.32], [-1.3, 0.2], [1e-9, 3e-7], [123456.0], [-5.0, -4.0], [1.0] * 3])
def test_ticks_are_few_and_enclose_the_values(values):
    ticks = drawing.nice_ticks(values, 5)
    assert 2 <= len(ticks) <= 6 and 0.0 in ticks
    assert ticks[0] <= min(values) + 1e-12 and ticks[-1] >= max(values) * (1 - 1e-9)


@pytest.mark.parametrize("value", [0.0, 1e-300, 4.9e-5, 0.00099996, 0.0588705, 0.99999, 1.0, 14.8123, 123456.7, 2.5e9])
def test_a_numeral_is_rounded_the_way_it_says(value):
    down, near, up = (read(numerals.numeral(value, rounding=way)) for way in ("down", "nearest", "up"))
    assert down * (1 - 1e-15) <= value <= up * (1 + 1e-15)
    assert near == pytest.approx(value, rel=5.1e-3)


def read(shown: str) -> float:
    mantissa, _, exponent = shown.replace(",", "").partition("×10")
    return float(mantissa) * 10.0 ** int(exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)
