"""The referee against arithmetic done by hand in fractions, and against a table that assumes nothing about order."""

from fractions import Fraction as F
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.bruteforce import brute_force_log_evidence, brute_force_posterior, brute_force_predictive
from ppl_tunnels.oracles.joint_table import joint_table_predictive

PROGRAMS = Path(__file__).with_name("programs.py")


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


def umbrella_by_hand(seen, visible):
    """p(rain_t = 1 | visible umbrellas before t, umbrella_t) and p(all umbrellas), in fractions, over every path of rain."""
    stay, shows = F(7, 10), {1: F(9, 10), 0: F(2, 10)}
    steps, evidence = len(seen), F(0)
    mass = [[F(0), F(0)] for _ in seen]
    for path in np.ndindex(*[2] * (steps + 1)):
        prior, likelihood = F(1, 2), []
        for day in range(steps):
            prior *= stay if path[day + 1] == path[day] else 1 - stay
            likelihood.append(shows[path[day + 1]] if seen[day] else 1 - shows[path[day + 1]])
        for day in range(steps):
            weight = prior * likelihood[day]
            for earlier in range(day):
                weight *= likelihood[earlier] if visible[day][earlier] else 1
            mass[day][path[day + 1]] += weight
        product = prior
        for factor in likelihood:
            product *= factor
        evidence += product
    return [float(wet / (dry + wet)) for dry, wet in mass], float(evidence)


@pytest.mark.parametrize("mask", ["all", "none", "some"])
def test_umbrellas_in_fractions(mask):
    """Would catch an off-by-one step, a mask read the wrong way round, and any rounding above 1e-15."""
    visible = {"all": np.tril(np.ones((3, 3), bool), -1), "none": np.zeros((3, 3), bool)}.get(mask, np.eye(3, k=-1) > 0)
    tunnel = load("umbrella")
    seen = np.array([[1, 0, 1], [0, 0, 1]])
    episodes = tunnel.episodes(stream={"umbrella": seen})
    posterior = brute_force_posterior(tunnel, episodes, "rain", visible)
    predictive = brute_force_predictive(tunnel, episodes, visible=visible)
    np.testing.assert_array_equal(predictive, posterior)
    for row, values in enumerate(seen.tolist()):
        by_hand, evidence = umbrella_by_hand(values, visible)
        np.testing.assert_allclose(posterior[row, :, 1], by_hand, rtol=0, atol=1e-15)
        assert brute_force_log_evidence(tunnel, episodes)[row] == pytest.approx(np.log(evidence), abs=1e-14)


@pytest.mark.parametrize(
    ("name", "site"), [("echo", "act"), ("echo", "echo"), ("panel", "label"), ("survey", "answers"), ("urn", "black")]
)
def test_the_referee_agrees_with_the_joint_table(name, site):
    """Would catch a factor given to the wrong step, and future latents or context that fail to cancel."""
    tunnel = load(name)
    episodes = tunnel.probe[:2]
    table = joint_table_predictive(tunnel, episodes, site)
    np.testing.assert_allclose(brute_force_predictive(tunnel, episodes, site), table, rtol=0, atol=1e-15)


def test_impossible_evidence_gives_rows_of_zeros():
    """Would catch 0 / 0, and a row after impossible evidence that looks like a law."""
    tunnel = load("chain")
    episodes = tunnel.episodes(stream={"letter": np.array([[2, 2, 2], [1, 2, 0]])})
    law = brute_force_predictive(tunnel, episodes)
    np.testing.assert_allclose(law[0], [[0.8, 0.2, 0.0], [0.0] * 3, [0.0] * 3], atol=1e-15)
    np.testing.assert_allclose(law[1], [[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]], atol=1e-15)
    np.testing.assert_allclose(joint_table_predictive(tunnel, episodes), law, atol=1e-15)
    assert np.isneginf(brute_force_log_evidence(tunnel, episodes)).all()


def test_the_evidence_is_given_the_context():
    """Would catch p(context, stream) passed off as p(stream | context): by the chain rule over all stream sites."""
    tunnel = load("driven")
    episodes = tunnel.probe[:2]
    law = brute_force_predictive(tunnel, episodes)
    realised = np.take_along_axis(law, episodes.stream["symbol"][..., None], axis=2)[..., 0]
    np.testing.assert_allclose(brute_force_log_evidence(tunnel, episodes), np.log(realised).sum(axis=1), atol=1e-13)


def test_joint_values_of_a_plate_run_first_draw_fastest():
    """Would catch symbols of a joint posterior listed in another order than the oracle's."""
    tunnel = load("panel")
    posterior = brute_force_posterior(tunnel, tunnel.probe[:1], "kind")
    assert posterior.shape == (1, 3, 4)
    hint = int(tunnel.probe.context["hint"][0])
    first = np.array([0.7, 0.3]) * np.array([[0.5, 0.5, 0.0], [0.1, 0.4, 0.5]])[:, hint]
    expected = np.outer([0.7, 0.3], first / first.sum()).ravel()
    np.testing.assert_allclose(posterior[0, 0], expected, atol=1e-15)


@wind_tunnel(stream="x")
def broken(length=2):
    """A law that is none once a head was seen."""

    def step(heads, _):
        x = numpyro.sample("x", dist.Bernoulli(0.5 + 0.6 * heads))
        return heads + x, None

    numpyro.contrib.control_flow.scan(step, 0, None, length=length)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: brute_force_predictive(load("casino").configure(length=14), None), ["32,768 joint values", "5,000"]),
        (lambda: brute_force_predictive(load("line"), load("line").probe[:1], "y"), ["'y'", "no finite support"]),
        (lambda: brute_force_predictive(load("echo"), None, "ehco"), ["'ehco'", "did you mean 'echo'?"]),
        (lambda: brute_force_posterior(load("echo"), None, "act"), ["'act'", "not latent"]),
        (
            lambda: joint_table_predictive(
                load("casino").configure(length=6), load("casino").configure(length=6).probe[:1]
            ),
            ["joint values", "50,000"],
        ),
        (lambda: joint_table_predictive(load("umbrella"), None), ["'rain'", "not a stream site"]),
        (
            lambda: brute_force_predictive(broken, broken.episodes(stream={"x": np.array([[1, 1]])})),
            ["'x'", "nan", "out of range"],
        ),
    ],
)
def test_refusals(call, words):
    """Would catch an hour of loops, and numbers that are not probabilities multiplied as if they were."""
    with pytest.raises(TunnelError) as refusal:
        call()
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
