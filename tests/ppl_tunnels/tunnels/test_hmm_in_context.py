"""The published hidden Markov format: its oracle, its layout, and where its reference agents stand."""

import jax
import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.tunnels.hmm import hmm
from ppl_tunnels.verification.divergences import entropy_bits, entropy_error_bits, kl_bits
from ppl_tunnels.verification.encoding_properties import encoding_faults
from ppl_tunnels.verification.reference_agents import reference_agents

EPISODES = 4_000
# Published figures have three digits at most; theirs and ours are means over samples.
Z = 5.0


@pytest.fixture(scope="module")
def tunnel():
    return load_tunnel("hmm_in_context")


@pytest.fixture(scope="module")
def drawn(tunnel):
    return tunnel.sample(jax.random.key(20_251_222), EPISODES).without_latents().to_numpy()


def filtered(episodes, memory=None):
    """Beliefs by the textbook recursion over whole batches, flat before the last `memory` symbols if given."""
    moves, emits, symbols = episodes.context["transition"], episodes.context["emission"], episodes.stream["symbol"]
    likelihood = np.take_along_axis(emits.transpose(0, 2, 1), symbols[..., None], axis=1)
    belief, beliefs = np.full((len(symbols), moves.shape[1]), 1 / moves.shape[1]), []
    for step in range(symbols.shape[1]):
        if memory == 1:
            belief = np.full_like(belief, 1 / belief.shape[1])
        belief = belief * likelihood[:, step]
        belief = belief / belief.sum(axis=1, keepdims=True)
        beliefs.append(belief)
        belief = np.einsum("es,esk->ek", belief, moves)
    return np.stack(beliefs, axis=1)


def test_published_sizes_and_layout(tunnel):
    """Would catch another header, vocabulary or readout than the published one."""
    encoding = tunnel.encoding("published")
    assert (encoding.vocabulary_size, encoding.sequence_length) == (105, 53 + 2 * 20)
    assert encoding.readout.tolist() == list(range(54, 93, 2))
    words = [encoding.decode(int(token)) for token in encoding.encode(tunnel.probe).tokens[0, [0, 26, 52, 53]]]
    assert words == ["TRANS", "EMIT", "SEP", "OBS"]
    assert (tunnel.length, tunnel.predict, tunnel.oracle().engine) == (20, "state", "filtering")
    assert encoding_faults(encoding, tunnel) == []
    features = tunnel.encoding(features=("transition", "emission"))
    assert (features.features, features.sequence_length) == (10, 10 + 20)


def test_the_forward_recursion(tunnel, drawn):
    """Would catch one episode's tables used for another's symbols."""
    law = tunnel.oracle().predictive(drawn[:64]).to_numpy()
    np.testing.assert_allclose(law, filtered(drawn[:64]), rtol=1e-11)


def test_published_rungs(tunnel, drawn):
    """Known rungs: uniform .412 bits of entropy error, memoryless .161 (KL .115), window-2 .0248 (.0037), window-4 .0028.

    Five standard errors of our mean plus half a unit of the published last digit and its own sampling error (a sample as large
    as ours): false alarm below 1e-6 each.
    """
    exact = filtered(drawn)
    agents = {agent.name: agent for agent in reference_agents(tunnel, windows=(2, 4))}
    said = {name: agents[name](drawn) for name in ("uniform", "window-2", "window-4")}
    said["memoryless"] = filtered(drawn, memory=1)
    published = {
        ("uniform", entropy_error_bits): 0.412,
        ("memoryless", entropy_error_bits): 0.161,
        ("memoryless", kl_bits): 0.115,
        ("window-2", entropy_error_bits): 0.0248,
        ("window-2", kl_bits): 0.0037,
        ("window-4", entropy_error_bits): 0.0028,
        ("window-4", kl_bits): 0.0001,
    }
    for (name, measure), figure in published.items():
        of_episodes = measure(exact, said[name]).mean(axis=1)
        error = of_episodes.std() / np.sqrt(EPISODES)
        digit = 10.0 ** -(len(str(figure).partition(".")[2])) / 2
        assert abs(of_episodes.mean() - figure) < Z * np.sqrt(2) * error + digit, (name, of_episodes.mean(), error)


def test_the_next_symbol_is_nearly_constant(tunnel, drawn):
    """Known: for the next symbol a constant is .008 to .016 bits from Bayes, so nothing can be certified at .01 or .02."""
    law = tunnel.predicting("symbol").oracle().predictive(drawn).to_numpy()
    alone = law.mean(axis=1, keepdims=True)
    assert 0.004 < kl_bits(law, np.broadcast_to(alone, law.shape)).mean() < 0.02


@pytest.mark.slow
def test_persistence_makes_symbols_matter(tunnel):
    """Would catch a share of the identity that is used upside down, or not at all."""
    slow = tunnel.configure(persistence=0.8, length=8)
    fast = tunnel.configure(length=8)
    key = jax.random.key(1)
    bits = [
        entropy_bits(each.oracle().predictive(each.sample(key, 1_000)).to_numpy())[:, -1].mean()
        for each in (slow, fast)
    ]
    assert bits[0] < bits[1] - 0.1
    with pytest.raises(ValueError, match="persistence=1.0 was given"):
        tunnel.configure(persistence=1.0).reading  # noqa: B018


@pytest.mark.slow
def test_the_same_chain_as_the_fixed_one():
    """Would catch the two tunnels drifting apart: revealed rows equal to the fixed ones give the fixed one's law."""
    fixed = hmm.configure(states=3, symbols=3, length=4, stay=0.8, forward=0.1, emit=0.7, emit_next=0.2)
    drawn = load_tunnel("hmm_in_context").configure(states=3, symbols=3, length=4)
    rows = [np.array([np.roll([a, b, c], i) for i in range(3)]) for a, b, c in ((0.8, 0.1, 0.1), (0.7, 0.2, 0.1))]
    symbols = fixed.probe.stream["symbol"][:4]
    context = {"transition": np.stack([rows[0]] * 4), "emission": np.stack([rows[1]] * 4)}
    revealed = drawn.episodes(stream={"symbol": symbols}, context=context)
    np.testing.assert_allclose(
        drawn.oracle().predictive(revealed).to_numpy(),
        fixed.oracle().predictive(fixed.episodes(stream={"symbol": symbols})).to_numpy(),
        rtol=1e-12,
    )
