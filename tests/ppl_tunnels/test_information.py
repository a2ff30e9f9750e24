"""How much varies between episodes."""

import math
from pathlib import Path

import pytest

from ppl_tunnels import load_tunnel

PROGRAMS = Path(__file__).with_name("programs.py")


def test_uniform_hypotheses_are_counted_exactly():
    """Would catch the predicted site counted as something to memorise, or the order of the keys left out."""
    bits = load_tunnel("bijection").episode_bits
    assert bits.bits == pytest.approx(2 * math.lgamma(21) / math.log(2), abs=1e-9)
    assert bits.standard_error < 1e-12 and bits.sites == ("mapping", "key")
    assert "far more than any training run" in bits.meaning


def test_a_few_hypotheses_are_called_few():
    """Would catch nats for bits, and a small tunnel that is said to test generalising."""
    bits = load_tunnel("coin").configure(length=3, points=16).episode_bits
    assert bits.bits == pytest.approx(4, abs=1e-9)
    assert "can visit them all" in bits.meaning


def test_a_predicted_static_latent_counts():
    """Would catch the hypothesis itself left out because it is what is predicted."""
    entropy = -sum(p * math.log2(p) for p in (0.2, 0.3, 0.5))
    line = load_tunnel(f"{PROGRAMS}:line")
    assert math.isinf(line.episode_bits.bits) and set(line.episode_bits.sites) == {"x", "y", "slope"}
    assert "continuum" in line.episode_bits.meaning
    echo = load_tunnel(f"{PROGRAMS}:echo").episode_bits
    assert echo.sites == ("habit", "act") and echo.bits > entropy
    assert 0 < echo.standard_error < 0.05


def test_nothing_but_the_predicted_site():
    """Would catch bits of entropy where there is nothing to memorise."""
    bits = load_tunnel(f"{PROGRAMS}:chain").episode_bits
    assert (bits.bits, bits.sites) == (0.0, ()) and "no hypothesis" in bits.meaning


def test_rows_on_a_grid_are_counted():
    """Would catch a finite grid of rows called a continuum: at most log2 of the number of rows, for each row."""
    found = load_tunnel("hmm_in_context").configure(states=2, symbols=2, length=2).episode_bits
    assert found.at_most and found.bits >= 4 * math.log2(91)
    assert 0.5 < found.bits - 4 * math.log2(91) < 2  # and two binary symbols
    assert "at most" in found.meaning
