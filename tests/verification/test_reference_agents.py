r"""The reference agents against hand computation.

Bijection of n, distinct keys: Bayes is uniform over the n - t values not taken by the t pairs seen, an agent with a memory of
w pairs uniform over n - min(t, w), so its divergence and its entropy error are both log2((n - min(t, w)) / (n - t)), whatever
came. Coin with biases i / m, i = 0 … m: after one head, E[heads^2] / E[heads] = (2m + 1) / (3m).
"""

import numpy as np
import pytest

from ppl_tunnels.oracles.bruteforce import brute_force_predictive
from ppl_tunnels.verification.divergences import entropy_bits, entropy_error_bits, kl_bits
from ppl_tunnels.verification.reference_agents import reference_agents, window_mask

MEMORIES = {"prior": 0, "memoryless": 1, **{f"window-{w}": w for w in (2, 3, 4, 6, 8, 12, 16)}}


@pytest.fixture(scope="module")
def of_bijection(bijection):
    """(Bayes, what each agent says) on the probe episodes of the published size."""
    episodes = bijection.probe
    agents = {agent.name: agent(episodes) for agent in reference_agents(bijection)}
    return bijection.oracle().predictive(episodes).to_numpy(), agents


def test_the_ladder_of_the_bijection(bijection):
    agents = reference_agents(bijection)
    assert [agent.name for agent in agents] == ["uniform", *MEMORIES, "label-permuted"]
    assert {agent.name for agent in agents if agent.trivial} == {"uniform", "prior", "memoryless"}
    assert all(agent.description for agent in agents)


def test_uniform_is_1_1073_bits_from_bayes(of_bijection):
    exact, agents = of_bijection
    by_hand = np.mean([np.log2(20 / (20 - t)) for t in range(19)])
    assert by_hand == pytest.approx(1.1073, abs=5e-5)
    assert kl_bits(exact, agents["uniform"]).mean() == pytest.approx(by_hand, rel=1e-12)
    assert entropy_error_bits(exact, agents["uniform"]).mean() == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_of_w_pairs_in_the_bijection(of_bijection, name):
    exact, agents = of_bijection
    seen = np.arange(19)
    by_hand = np.log2((20 - np.minimum(seen, MEMORIES[name])) / (20 - seen))
    assert kl_bits(exact, agents[name]) == pytest.approx(np.tile(by_hand, (len(exact), 1)), abs=1e-12)
    assert entropy_error_bits(exact, agents[name]) == pytest.approx(np.tile(by_hand, (len(exact), 1)), abs=1e-12)


def test_labels_moved_have_the_exact_entropy_and_nothing_else(of_bijection):
    exact, agents = of_bijection
    permuted = agents["label-permuted"]
    assert entropy_bits(permuted) == pytest.approx(entropy_bits(exact), abs=1e-12)
    assert np.isinf(kl_bits(exact, permuted)[:, 1:]).mean() > 0.9  # it rules out values that can come
    assert permuted[0, 5].tolist() == np.roll(exact[0, 5], 1).tolist()


def test_agents_of_the_coin_by_hand(coin):
    agents = {agent.name: agent for agent in reference_agents(coin)}
    flips = np.zeros((2, 20), dtype=int)
    flips[1] = 1
    episodes = coin.episodes(stream={"flip": flips})
    after_a_head = (2 * 100 + 1) / (3 * 100)
    assert agents["uniform"](episodes) == pytest.approx(0.5)
    assert agents["prior"](episodes) == pytest.approx(0.5)
    last = agents["memoryless"](episodes)
    assert last[:, 0] == pytest.approx(0.5)
    assert last[1, 1:, 1] == pytest.approx(after_a_head, rel=1e-12)
    assert last[0, 1:, 0] == pytest.approx(after_a_head, rel=1e-12)
    exact = coin.oracle().predictive(episodes).to_numpy()
    for name, width in MEMORIES.items():
        said = agents[name](episodes)[1, :, 1]
        assert said == pytest.approx(
            exact[1, np.minimum(np.arange(20), width), 1], rel=1e-12
        )  # all heads: only the number counts
    assert agents["label-permuted"](episodes)[0] == pytest.approx(exact[0, :, ::-1], rel=1e-12)


def test_a_memory_is_the_mask_that_brute_force_understands(small_tunnels):
    tunnel = small_tunnels["bijection with repeated keys"]
    episodes = tunnel.probe[:6].without_latents()
    agents = {agent.name: agent for agent in reference_agents(tunnel, windows=(2, 3))}
    for name, width in (("prior", 0), ("memoryless", 1), ("window-2", 2), ("window-3", 3)):
        exact = brute_force_predictive(tunnel, episodes, visible=window_mask(4, width))
        assert agents[name](episodes) == pytest.approx(exact, abs=1e-12)
    everything = tunnel.oracle().predictive(episodes).to_numpy()
    assert agents["window-3"](episodes) == pytest.approx(everything, abs=1e-12)


def test_a_predicted_latent_is_never_asked_without_its_own_step(programs):
    tunnel = programs.umbrella
    agents = {agent.name: agent for agent in reference_agents(tunnel)}
    assert list(agents) == ["uniform", "prior", "window-2", "window-3", "label-permuted"]
    seen = tunnel.episodes(stream={"seen": np.array([[1, 1, 1, 1]])})
    # Filtering each day on its own umbrella: rain is as likely as not beforehand, and then .8 against .3.
    assert agents["prior"](seen)[0, :, 1] == pytest.approx(0.8 / 1.1, rel=1e-12)
    exact = tunnel.oracle().predictive(seen).to_numpy()
    assert agents["window-2"](seen)[0, :2] == pytest.approx(exact[0, :2], abs=1e-12)
    assert abs(agents["window-2"](seen)[0, 2:] - exact[0, 2:]).min() > 1e-3


def test_one_symbol_has_no_labels_to_move(programs):
    assert "label-permuted" not in [agent.name for agent in reference_agents(programs.one_symbol)]


def test_window_masks():
    assert window_mask(4, 0).sum() == 0
    assert window_mask(4, 3).tolist() == np.tril(np.ones((4, 4), bool), -1).tolist()
    assert window_mask(4, 2).astype(int).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]


def test_no_window_covers_everything(small_tunnels, coin):
    def windows(tunnel):
        return [agent.name for agent in reference_agents(tunnel) if agent.name.startswith("window")]

    assert windows(small_tunnels["bijection"]) == []  # three steps: with a memory of two nothing is forgotten
    assert windows(small_tunnels["coin"]) == ["window-2"]
    assert windows(coin) == ["window-2", "window-3", "window-4", "window-6", "window-8", "window-12", "window-16"]
