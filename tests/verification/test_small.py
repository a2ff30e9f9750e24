"""Which configurations brute force is given: those that a tunnel names, itself, or what shrinking its integers finds."""

import dataclasses

import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels.distributions import RandomPermutation
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.tunnel import wind_tunnel
from ppl_tunnels.verification.small import MOST_HYPOTHESES, small_configurations


@wind_tunnel(stream="card")
def deck(size=30, length=12, marked=True, name="deck"):
    """Cards of a shuffled deck, one by one, unless there are more draws than cards."""
    if length > size:
        raise ValueError("not so many cards")
    order = numpyro.sample("order", RandomPermutation(size))
    with numpyro.plate("draws", length):
        numpyro.sample("card", dist.Binomial(size, 0.5 + 0.0 * order[0]))


def test_a_small_tunnel_is_its_own(small_tunnels, programs):
    assert small_configurations(programs.umbrella) == (programs.umbrella,)
    unnamed = dataclasses.replace(small_tunnels["coin"], small=())
    assert small_configurations(unnamed) == (unnamed,)


def test_what_a_tunnel_names_comes_first(bijection):
    named = small_configurations(bijection)
    assert [tunnel.configuration for tunnel in named] == [
        {"size": 4, "length": 3, "distinct": True},
        {"size": 3, "length": 4, "distinct": False},
    ]


def test_a_named_configuration_that_is_not_small_is_refused(bijection):
    large = dataclasses.replace(bijection, small=({"size": 7, "length": 3},))
    with pytest.raises(TunnelError, match=rf"'length': 3.*of 'bijection' is not small: at most {MOST_HYPOTHESES}"):
        small_configurations(large)
    long = dataclasses.replace(bijection, small=({"size": 3, "length": 9, "distinct": False},))
    with pytest.raises(TunnelError, match="is not small"):
        small_configurations(long)


def test_integers_are_shrunk_and_nothing_else():
    (found,) = small_configurations(deck)
    assert found.configuration == {"size": 6, "length": 6, "marked": True, "name": "deck"}  # 6! = 720 hypotheses


def test_what_the_grid_can_referee_is_small():
    """Would catch continuous programs left without a referee, and ones too long for it."""

    @wind_tunnel(stream="height")
    def heights(length=100):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("people", length):
            numpyro.sample("height", dist.Normal(mean, 1.0))

    (found,) = small_configurations(heights)
    assert found.configuration == {"length": 6}


@pytest.mark.slow
def test_where_nothing_is_small_there_is_none():
    """Would catch a referee that is given what it cannot finish (8! hypotheses) or takes for Gaussian."""

    @wind_tunnel(stream="card")
    def fixed_deck(fair=0.5):
        order = numpyro.sample("order", RandomPermutation(8))
        with numpyro.plate("draws", 3):
            numpyro.sample("card", dist.Binomial(8, fair + 0.0 * order[0]))

    @wind_tunnel(stream="height")
    def heights(length=100):
        mean = numpyro.sample("mean", dist.Cauchy(0.0, 1.0))  # of which the grid knows no coordinate
        with numpyro.plate("people", length):
            numpyro.sample("height", dist.Normal(mean, 1.0))

    assert small_configurations(fixed_deck) == ()
    assert small_configurations(heights) == ()


@pytest.mark.slow
def test_a_grid_too_coarse_to_settle_anything_is_no_referee():
    """Would catch six dimensions with five points along each, whose own error is far above what is looked for."""

    @wind_tunnel(stream="heads")
    def coins(sharp=2.0):
        bias = numpyro.sample("bias", dist.Beta(sharp, 1.0).expand([6]).to_event(1))
        with numpyro.plate("flips", 2):
            numpyro.sample("heads", dist.Bernoulli(bias.prod()))

    assert small_configurations(coins) == ()
