"""The sticky chain: the usual forward recursion, known answers, and what a step's state means."""

import jax.numpy as jnp
import numpy as np
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.oracles.bruteforce import brute_force_predictive
from ppl_tunnels.tunnels.hmm import chain
from ppl_tunnels.verification.divergences import entropy_bits


@pytest.fixture(scope="module")
def hmm():
    return load_tunnel("hmm")


def sticky(size, own, following):
    rest = (1 - own - following) / (size - 2)
    return np.array(
        [[own if j == i else following if j == (i + 1) % size else rest for j in range(size)] for i in range(size)]
    )


def forward(initial, transition, emission, symbols):
    """Filtered states and laws of the next symbol, `[step, …]`: the textbook recursion, start state emitting first."""
    belief, filtered, predicted = initial, [], []
    for symbol in symbols:
        predicted.append(belief @ emission)
        belief = belief * emission[:, symbol]
        belief = belief / belief.sum()
        filtered.append(belief)
        belief = belief @ transition
    return np.array(filtered), np.array(predicted)


def test_defaults_and_presets(hmm):
    """Would catch a default configuration that drifts from the published sizes."""
    assert (hmm.length, hmm.predict, hmm.oracle().engine) == (20, "state", "filtering")
    assert hmm.primitives == {"accumulation", "transport"}
    sites = hmm.reading.sites
    assert (sites["state"].support_size, sites["symbol"].support_size) == (5, 5)
    assert hmm.preset("paper") == hmm.preset("small") == hmm and hmm.preset("long").length == 50


def test_how_fast_it_forgets():
    """The rate that the docstring gives is that of the second largest eigenvalue."""
    rates = np.sort(abs(np.linalg.eigvals(sticky(5, 0.8, 0.15))))
    rest = (1 - 0.8 - 0.15) / 3
    assert rates[-1] == pytest.approx(1) and rates[-2] == pytest.approx(0.834, abs=5e-4)
    assert rates[-2] == pytest.approx(abs(0.8 - rest + (0.15 - rest) * np.exp(2j * np.pi / 5)))


def test_the_forward_recursion(hmm):
    """Would catch a move before the first symbol, a transposed table, and a state that belongs to the next step."""
    episodes = hmm.probe[:16]
    states, symbols = (hmm.oracle().predictive(episodes, site).to_numpy() for site in ("state", "symbol"))
    for row, given in enumerate(episodes.stream["symbol"]):
        filtered, predicted = forward(np.full(5, 0.2), sticky(5, 0.8, 0.15), sticky(5, 0.7, 0.2), given)
        np.testing.assert_allclose(states[row], filtered, rtol=1e-12)
        np.testing.assert_allclose(symbols[row], predicted, rtol=1e-12)


def test_brute_force():
    """Would catch an oracle of another program."""
    tunnel = load_tunnel("hmm").configure(states=2, symbols=3, length=3, stay=0.7, forward=0.3)
    law = tunnel.oracle().predictive(tunnel.probe[:8]).to_numpy()
    np.testing.assert_allclose(law, brute_force_predictive(tunnel, tunnel.probe[:8]), rtol=1e-12)


@wind_tunnel(stream="symbol", predict="state")
def fever(length=3):
    """Healthy or feverish, seen as normal, cold or dizzy: the textbook example, in this tunnel's order of draws."""
    initial, moves = jnp.array([0.6, 0.4]), jnp.array([[0.7, 0.3], [0.4, 0.6]])
    chain(initial, moves, jnp.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]), length)


@wind_tunnel(stream="symbol", predict="state")
def one_step(length=1):
    """Rows that would undo the start, if anything moved before the first symbol."""
    chain(jnp.array([0.99, 0.01]), jnp.array([[0.01, 0.99]] * 2), jnp.array([[0.99, 0.01], [0.01, 0.99]]), length)


def test_known_answers():
    """Would catch a move before the first symbol."""
    episodes = fever.episodes(stream={"symbol": [[0, 1, 2]]})
    healthy = fever.oracle().predictive(episodes).to_numpy()[0, :, 0]
    np.testing.assert_allclose(healthy, [0.882353, 0.725522, 0.212128], atol=5e-7)
    assert np.exp(fever.oracle().log_evidence(episodes))[0] == pytest.approx(0.03628, abs=5e-6)
    bits = entropy_bits(np.stack([healthy, 1 - healthy], axis=-1))
    by_definition = [-p * np.log2(p) - (1 - p) * np.log2(1 - p) for p in (0.882353, 0.725522, 0.212128)]
    np.testing.assert_allclose(bits, by_definition, atol=3e-6)
    single = one_step.episodes(stream={"symbol": [[0]]})
    assert np.exp(one_step.oracle().log_evidence(single))[0] == pytest.approx(0.9802, abs=1e-12)
    np.testing.assert_allclose(one_step.oracle().predictive(single).to_numpy()[0, 0], [0.999898, 0.000102], atol=5e-7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stay": 0.9, "forward": 0.2}, "stay=0.9 and forward=0.2"),
        ({"states": 2}, "exactly 1 where there is no third column"),
        ({"emit": -0.1}, "emit=-0.1"),
        ({"states": 0}, "states=0"),
        ({"states": 1, "stay": 0.5, "forward": 0.5}, "for 1 columns"),
    ],
)
def test_settings_that_are_no_probabilities(hmm, settings, words):
    """Would catch rows that do not sum to one."""
    with pytest.raises(ValueError, match=words):
        hmm.configure(**settings).reading  # noqa: B018


def test_one_state(hmm):
    """A single state leaves nothing to infer, and is no error."""
    alone = hmm.configure(states=1, stay=1.0, forward=0.0, length=2)
    np.testing.assert_array_equal(alone.oracle().predictive(alone.probe[:2]).to_numpy(), 1.0)
