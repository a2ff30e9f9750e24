"""The referee in fractions: textbook answers to the last digit, and how far the engines are from them."""

from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.bruteforce import brute_force_predictive
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.rationals import Rationals, as_floats


def program(file: str, name: str):
    return load_tunnel(f"{Path(__file__).with_name(file)}:{name}")


def test_the_umbrella_world_in_fractions() -> None:
    """Binary fractions are what floats are: .7 is not 7/10, so the textbook's decimals come to within a rounding of it."""
    umbrella = program("programs.py", "umbrella").configure(length=2)
    seen = umbrella.episodes(stream={"umbrella": np.array([[1, 1]])})
    table = Rationals(umbrella, seen).posterior("rain")
    assert all(isinstance(each, Fraction) for each in table.ravel())
    assert abs(table[0, 1, 1] - Fraction("0.883357041251778")) < Fraction(1, 10**15)
    assert table.sum(axis=-1).tolist() == [[1, 1]]


def test_rows_sum_to_one_exactly_and_the_posterior_is_a_martingale() -> None:
    """E over the next value of the posterior is the posterior, with no rounding at all."""
    echo = program("programs.py", "echo").configure(length=1)
    act, reply = np.meshgrid(np.arange(3), np.arange(2), indexing="ij")
    both = Rationals(echo, echo.episodes(stream={"act": act.reshape(-1, 1), "echo": reply.reshape(-1, 1)}))
    posterior, first, second = both.posterior("habit"), both.predictive("act"), both.predictive("echo")
    expected = sum(
        first[place, 0, act.flat[place]] * second[place, 0, reply.flat[place]] * posterior[place, 1]
        for place in range(6)
    )
    assert expected.tolist() == posterior[0, 0].tolist()


@pytest.mark.parametrize(
    ("file", "name", "site", "engines"),
    [
        ("programs.py", "casino", "face", ("filtering", "enumeration")),
        ("programs.py", "driven", "symbol", ("enumeration",)),
        ("chains.py", "moved_by_its_symbols", "start", ("filtering", "enumeration")),
    ],
)
def test_engines_are_within_rounding_of_it(file, name, site, engines) -> None:
    """Twelve digits and more; brute force by floats shares the bound."""
    tunnel = program(file, name).configure(length=3)
    episodes = tunnel.sample(jax.random.key(0), 3).to_numpy()
    mask = np.tril(np.random.default_rng(1).random((3, 3)) < 0.5, -1)
    referee = Rationals(tunnel, episodes)
    for visible in (None,) if name == "driven" else (mask,):
        latent = tunnel.reading.sites[site].role == "latent"
        right = as_floats((referee.posterior if latent else referee.predictive)(site, visible))
        for engine in engines:
            oracle = derive(tunnel, engine)
            said = (oracle.posterior if latent else oracle.predictive)(episodes, site, visible).to_numpy()
            np.testing.assert_allclose(said, right, rtol=5e-14, atol=0)
        if not latent:
            np.testing.assert_allclose(brute_force_predictive(tunnel, episodes, site, visible), right, rtol=5e-14)


def test_impossible_evidence_is_a_row_of_zeros() -> None:
    certain = program("chains.py", "certain").configure(length=3)
    table = Rationals(certain, certain.episodes(stream={"y": np.array([[0, 1, 0]])})).predictive("y")
    assert table[0, 2].tolist() == [0, 1]
    dead = Rationals(certain, certain.episodes(stream={"y": np.array([[1, 0, 0]])})).predictive("y")
    assert dead[0, 1:].tolist() == [[0, 0], [0, 0]]


def test_other_laws_are_refused() -> None:
    @wind_tunnel(stream="y")
    def counts(length=2):
        rate = numpyro.sample("rate", dist.Categorical(np.ones(2) / 2))
        with numpyro.plate("steps", length):
            numpyro.sample("y", dist.Poisson(1.0 + rate))

    with pytest.raises(TunnelError, match="'y'"):
        Rationals(counts, counts.sample(jax.random.key(0), 1).to_numpy())
