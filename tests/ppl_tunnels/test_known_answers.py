"""Published answers, to every digit given, from oracles derived from the models as programs.

Russell & Norvig (umbrella, sprinkler, burglary), the healthy/fever example of the Viterbi literature, MacKay (2003, urns).
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import load_tunnel, wind_tunnel

PROGRAMS = Path(__file__).with_name("programs.py")


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


@wind_tunnel(stream="seen", predict="state")
def emit_first(start=(0.5, 0.5), transition=((0.5, 0.5), (0.5, 0.5)), emission=((0.5, 0.5), (0.5, 0.5)), length=3):
    """The start state emits before anything moves; "state" is the one that emits."""
    tables = [jnp.array(table) for table in (start, transition, emission)]

    def step(last, first):
        state = numpyro.sample("state", dist.Categorical(jnp.where(first, tables[0], tables[1][last])))
        numpyro.sample("seen", dist.Categorical(tables[2][state]))
        return state, None

    scan(step, 0, jnp.arange(length) == 0, length=length)


def test_umbrella_world():
    """Would catch a transition too many or too few before the first umbrella."""
    tunnel = load("umbrella")
    episodes = tunnel.episodes(stream={"umbrella": [[1, 1, 1]]})
    oracle = tunnel.oracle()
    filtered = oracle.posterior(episodes, "rain").to_numpy()[0, :, 1]
    assert filtered[:2] == pytest.approx([0.818182, 0.883357], abs=5e-7)
    bits = np.asarray(oracle.posterior(episodes, "rain").entropy())[0, :2] / np.log(2)
    assert bits == pytest.approx([-p * np.log2(p) - (1 - p) * np.log2(1 - p) for p in (0.818182, 0.883357)], abs=3e-6)
    shown = oracle.predictive(episodes, "umbrella").to_numpy()[0, :, 1]
    assert (shown[2] - 0.2) / 0.7 == pytest.approx(0.653343, abs=5e-7)  # P(umbrella) = .2 + .7 P(rain)
    assert shown[0] * shown[1] == pytest.approx(0.3515, abs=5e-15)


def test_healthy_and_fever():
    """Would catch a transition before the first symptom."""
    tunnel = emit_first.configure(
        start=(0.6, 0.4), transition=((0.7, 0.3), (0.4, 0.6)), emission=((0.5, 0.4, 0.1), (0.1, 0.3, 0.6)), length=3
    )
    episodes = tunnel.episodes(stream={"seen": [[0, 1, 2]]})
    healthy = tunnel.oracle().predictive(episodes).to_numpy()[0, :, 0]
    assert healthy == pytest.approx([0.882353, 0.725522, 0.212128], abs=5e-7)
    assert float(np.exp(tunnel.oracle().log_evidence(episodes)[0])) == pytest.approx(0.03628, abs=5e-9)


def test_one_step_convention():
    """Would catch a transition applied before the only observation: the rows of this one would swap the states."""
    tunnel = emit_first.configure(
        start=(0.99, 0.01), transition=((0.01, 0.99), (0.01, 0.99)), emission=((0.99, 0.01), (0.01, 0.99)), length=1
    )
    episodes = tunnel.episodes(stream={"seen": [[0]]})
    assert float(np.exp(tunnel.oracle().log_evidence(episodes)[0])) == pytest.approx(0.9802, abs=5e-15)
    assert tunnel.oracle().predictive(episodes).to_numpy()[0, 0] == pytest.approx([0.999898, 0.000102], abs=5e-7)


def test_eleven_urns():
    """Would catch a grid off by one, or end points that survive the evidence against them."""
    urns = load_tunnel("coin").configure(points=11, length=11)
    draws = np.array([[1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]])  # three black in the first ten
    episodes = urns.episodes(stream={"flip": draws})
    posterior = urns.oracle().posterior(episodes, "bias").to_numpy()[0, 10]
    published = [0.063073, 0.221240, 0.293220, 0.236256, 0.128779, 0.046668, 0.009892, 0.000864, 0.0000096]
    assert posterior[1:9] == pytest.approx(published[:8], abs=5e-7)
    assert posterior[9] == pytest.approx(published[8], abs=5e-8)
    assert posterior[0] == posterior[10] == 0
    assert urns.oracle().predictive(episodes).to_numpy()[0, 10, 1] == pytest.approx(0.333038, abs=5e-7)


def test_sprinkler():
    """Would catch explaining away the wrong way round."""
    tunnel = load("sprinkler")
    wet = tunnel.episodes(stream={"rain": [[1], [0]], "wet": [[1], [1]]})
    oracle = tunnel.oracle()
    rain = oracle.predictive(wet, "rain").to_numpy()[:, 0]
    p_wet = oracle.predictive(wet, "wet").to_numpy()[:, 0, 1]  # given rain, given no rain
    joint = np.array([rain[0, 1] * p_wet[0], rain[0, 0] * p_wet[1]])
    assert joint.sum() == pytest.approx(0.6471, abs=5e-15)
    assert joint[0] / joint.sum() == pytest.approx(0.707928, abs=5e-7)
    on = oracle.predictive(wet).to_numpy()[:, 0, 1]
    assert on[0] == pytest.approx(0.194499, abs=5e-7)
    assert on @ joint / joint.sum() == pytest.approx(0.429764, abs=5e-7)


@wind_tunnel(stream=("john", "mary"), predict="burglary")
def alarm():
    burglary = numpyro.sample("burglary", dist.Bernoulli(0.001))
    earthquake = numpyro.sample("earthquake", dist.Bernoulli(0.002))
    rings = numpyro.sample("alarm", dist.Bernoulli(jnp.array([[0.001, 0.29], [0.94, 0.95]])[burglary, earthquake]))
    numpyro.sample("john", dist.Bernoulli(jnp.array([0.05, 0.90])[rings]))
    numpyro.sample("mary", dist.Bernoulli(jnp.array([0.01, 0.70])[rings]))


def test_burglary():
    """Would catch rare hypotheses lost, and evidence of two sites in one step not combined."""
    both = alarm.episodes(stream={"john": [[1]], "mary": [[1]]})
    assert alarm.oracle().predictive(both).to_numpy()[0, 0, 1] == pytest.approx(0.284172, abs=5e-7)


@wind_tunnel(stream="x", predict="y")
def noisy_bit(length=1):
    y = numpyro.sample("y", dist.Bernoulli(0.5))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Normal(y, 1.0))


def test_a_bit_seen_through_noise():
    """Would catch a continuous stream whose density is dropped or normalised away."""
    seen = noisy_bit.episodes(stream={"x": [[1.0]]})
    assert noisy_bit.oracle().predictive(seen).to_numpy()[0, 0, 1] == pytest.approx(0.622459, abs=5e-7)


def test_bijection_of_twenty():
    """Would catch an entropy that is not log2(20 - k) bits after k distinct pairs, at the published size."""
    tunnel = load_tunnel("bijection")
    entropy = np.asarray(tunnel.oracle().predictive(tunnel.probe).entropy()) / np.log(2)
    np.testing.assert_allclose(entropy, np.tile(np.log2(20 - np.arange(19)), (len(entropy), 1)), rtol=0, atol=1e-12)
