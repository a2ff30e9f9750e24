"""The ladder's numbers, its order, and when it says that a tunnel demands nothing."""

import dataclasses

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import wind_tunnel
from ppl_tunnels.verification.divergences import entropy_error_bits, floored, kl_bits, kl_range_bits, total_variation
from ppl_tunnels.verification.ladder import Rung, ladder, vacuous
from ppl_tunnels.verification.reference_agents import reference_agents

TOLERANCE = 0.05
KEY = jax.random.key(4)


def rungs(tunnel, tolerance=TOLERANCE):
    return {rung.agent: rung for rung in ladder(tunnel, KEY, tolerance_bits=tolerance, episodes=64)}


@pytest.mark.parametrize("where", ["coin", "bijection"])
def test_every_agent_is_measured_on_the_same_episodes(small_tunnels, where):
    tunnel = small_tunnels[where]
    found = ladder(tunnel, KEY, tolerance_bits=TOLERANCE, episodes=64)
    assert [rung.kl_bits for rung in found] == sorted((rung.kl_bits for rung in found), reverse=True)
    drawn = tunnel.sample(KEY, 64).without_latents()
    exact = tunnel.oracle().predictive(drawn).to_numpy()
    agents = {agent.name: agent for agent in reference_agents(tunnel)}
    assert {rung.agent for rung in found} == set(agents)
    for rung in found:
        said = agents[rung.agent](drawn)
        assert rung.kl_bits == pytest.approx(kl_bits(exact, floored(said, TOLERANCE)).mean())
        assert rung.total_variation == pytest.approx(total_variation(exact, said).mean())
        assert rung.entropy_error_bits == pytest.approx(entropy_error_bits(exact, said).mean())
        assert rung.unbounded == bool(np.isinf(kl_bits(exact, said)).any())
        assert rung.within_tolerance == (rung.kl_bits <= TOLERANCE)
        assert rung.trivial == agents[rung.agent].trivial


def test_an_agent_that_rules_out_what_happens_has_a_finite_place(small_tunnels):
    permuted = rungs(small_tunnels["bijection"])["label-permuted"]
    assert permuted.unbounded
    assert np.isfinite(permuted.kl_bits)
    assert permuted.kl_bits <= kl_range_bits(4, TOLERANCE)
    assert permuted.entropy_error_bits == pytest.approx(0, abs=1e-12)


def test_only_scored_steps_are_on_the_ladder(programs):
    """The first of four flips is predicted alike by everybody; were it counted, the uniform agent would seem closer."""
    found = rungs(programs.every_other)["uniform"]
    drawn = programs.every_other.sample(KEY, 64).without_latents()
    kl = kl_bits(
        programs.every_other.oracle().predictive(drawn).to_numpy(), floored(np.full((64, 4, 2), 0.5), TOLERANCE)
    )
    assert found.kl_bits == pytest.approx(kl[:, [1, 3]].mean())
    assert found.kl_bits > kl.mean() + 0.01


@wind_tunnel(stream="y")
def level(length=2):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("steps", length):
        numpyro.sample("y", dist.Normal(w, 1.0))


def test_where_the_laws_are_densities():
    """By hand: the second step is N(y/2, 3/2), which the prior agent calls N(0, 2); one step of memory is all there is."""
    found = rungs(level)
    assert set(found) == {"prior", "memoryless"} and not any(rung.unbounded for rung in found.values())
    y = np.asarray(level.sample(KEY, 64).stream["y"])[:, 0]
    kl = (np.log(2 / 1.5) + (1.5 + y**2 / 4) / 2 - 1) / 2 / np.log(2)
    assert found["prior"].kl_bits == pytest.approx(kl.mean() / 2, rel=1e-12)
    assert found["prior"].entropy_error_bits == pytest.approx(np.log2(2 / 1.5) / 4, rel=1e-12)
    assert 0 < found["prior"].total_variation < np.sqrt(found["prior"].kl_bits * np.log(2) / 2) + 1e-9
    assert found["memoryless"].kl_bits == pytest.approx(0, abs=1e-12)
    assert found["memoryless"].total_variation == pytest.approx(0, abs=1e-9)


def test_a_tunnel_that_demands_nothing(programs, small_tunnels):
    assert vacuous(ladder(programs.dull, KEY, tolerance_bits=TOLERANCE, episodes=64)).trivial
    assert vacuous(ladder(small_tunnels["coin"], KEY, tolerance_bits=0.01, episodes=64)) is None
    assert vacuous(ladder(small_tunnels["coin"], KEY, tolerance_bits=1.0, episodes=64)) is not None


def test_a_clever_agent_within_the_tolerance_is_no_objection():
    near = Rung("window-16", "", 0.001, False, 0.0, 0.0, True, False)
    far = Rung("prior", "", 0.3, False, 0.1, 0.2, False, True)
    assert vacuous((far, near)) is None
    assert vacuous((far, dataclasses.replace(near, trivial=True))).agent == "window-16"
    assert vacuous(()) is None
