"""The closed form of the bijection is enumeration's answer, whatever the evidence and the mask."""

import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.errors import ImpossibleEvidenceWarning, NoEngineError
from ppl_tunnels.oracles.bruteforce import brute_force_predictive
from ppl_tunnels.oracles.closed_form import ClosedFormEngine
from ppl_tunnels.oracles.enumeration import EnumerationEngine


@functools.cache
def engines(size, length, distinct):
    tunnel = load_tunnel("bijection").configure(size=size, length=length, distinct=distinct)
    return tunnel, ClosedFormEngine.from_tunnel(tunnel), EnumerationEngine.from_tunnel(tunnel)


def pairs(size, length, seed, n=96):
    """A third each of: any pairs at all (mostly impossible), pairs of one bijection with keys repeated, and distinct keys."""
    rng = np.random.default_rng(seed)
    keys, values = rng.integers(size, size=(2, n, length))
    for episode in range(n // 3, n):
        if episode >= 2 * n // 3:
            keys[episode] = rng.permutation(size)[:length] if length <= size else keys[episode]
        values[episode] = rng.permutation(size)[keys[episode]]
    return {"key": keys, "value": values}


def masks(length, seed, n=3):
    rng = np.random.default_rng(seed)
    full = np.tril(np.ones((length, length), bool), -1)
    return [full, np.zeros_like(full), *(full & (rng.random(full.shape) < 0.6) for _ in range(n))]


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_closed_form_equals_enumeration(size, distinct):
    """Would catch any rule of elimination that is wrong: repeats, hidden pairs, contradictions, values hidden with keys."""
    length = min(size, 4) if distinct else 4
    tunnel, form, enumeration = engines(size, length, distinct)
    episodes = tunnel.episodes(stream=pairs(size, length, seed=size))
    sums = []
    for visible in masks(length, seed=size):
        for site in ("value", "key") if size == 3 else ("value",):
            exact = np.exp(enumeration.predictive(episodes, site, visible).log_probs)
            law = np.exp(form.predictive(episodes, site, visible).log_probs)
            np.testing.assert_allclose(law, exact, rtol=0, atol=1e-12, err_msg=f"{site} {visible.tolist()}")
            sums.append(exact.sum(axis=-1))
    impossible = np.concatenate(sums) == 0
    assert impossible.any() and not impossible.all(), "both kinds of evidence must occur for this test to mean anything"


@hypothesis.given(seed=st.integers(0, 2**32 - 1), bits=st.integers(0, 2**6 - 1))
def test_any_mask_and_any_evidence(seed, bits):
    """Would catch what the fixed masks above happen to miss; the full mask given explicitly must be the default."""
    visible = np.zeros((4, 4), bool)
    visible[np.tril_indices(4, -1)] = [bool(bits >> place & 1) for place in range(6)]
    tunnel, form, enumeration = engines(4, 4, False)
    episodes = tunnel.episodes(stream=pairs(4, 4, seed))
    law = np.exp(form.predictive(episodes, "value", visible).log_probs)
    np.testing.assert_allclose(
        law, np.exp(enumeration.predictive(episodes, "value", visible).log_probs), rtol=0, atol=1e-12
    )
    full = np.tril(np.ones((4, 4), bool), -1)
    np.testing.assert_array_equal(
        form.predictive(episodes, "value", None).log_probs, form.predictive(episodes, "value", full).log_probs
    )


def test_the_program_itself_by_brute_force():
    """Would catch a program that is not the bijection it says it is, which the two engines would share."""
    tunnel, _, _ = engines(3, 3, True)
    stream = {"key": np.array([[0, 2, 1], [1, 0, 0]]), "value": np.array([[1, 0, 2], [1, 1, 2]])}
    episodes = tunnel.episodes(stream=stream)
    law = brute_force_predictive(tunnel, episodes)
    np.testing.assert_allclose(law[0], [[1 / 3] * 3, [0.5, 0, 0.5], [0, 0, 1]], atol=1e-15)
    np.testing.assert_allclose(law[1], [[1 / 3] * 3, [0.5, 0, 0.5], [0, 0, 0]], atol=1e-15)
    with pytest.warns(ImpossibleEvidenceWarning, match="1 of 2 episodes.*episode 1, before prediction 2"):
        np.testing.assert_allclose(tunnel.oracle().predictive(episodes).to_numpy(), law, atol=1e-14)


def test_repeated_keys_are_answered_by_content():
    """Would catch elimination applied to a key that was seen: its value is known, wherever it stood."""
    tunnel = load_tunnel("bijection").configure(size=20, length=4, distinct=False)
    episodes = tunnel.episodes(stream={"key": [[7, 3, 7, 5]], "value": [[2, 9, 2, 0]]})
    entropy = np.asarray(tunnel.oracle().predictive(episodes).entropy())[0] / np.log(2)
    np.testing.assert_allclose(entropy, np.log2([20, 19, 1, 18]), atol=1e-12)
    assert tunnel.oracle().predictive(episodes).to_numpy()[0, 2, 2] == 1


def test_published_size():
    """Would catch sizes that drift, and an evidence at full size that is not the chain rule's."""
    tunnel = load_tunnel("bijection")
    assert (tunnel.configuration["size"], tunnel.length, tunnel.predict) == (20, 19, "value")
    assert tunnel.oracle().engine == "closed form"
    evidence = tunnel.oracle().log_evidence(tunnel.probe[:2])
    expected = -2 * np.log(np.arange(2, 21)).sum()  # 20 x 19 x … x 2 orders of keys, as many of values
    np.testing.assert_allclose(evidence, [expected] * 2, atol=1e-10)
    with pytest.raises(NoEngineError, match="'mapping'.*about 10\\^18"):
        tunnel.oracle().posterior(tunnel.probe[:2], "mapping")


def test_more_distinct_keys_than_there_are_is_refused():
    """Would catch 0 / 0 in the law of the keys once all are used."""
    with pytest.raises(ValueError, match="length=4 pairs need as many distinct keys, but size=3; use distinct=False"):
        load_tunnel("bijection").configure(size=3, length=4).oracle()
