"""Associative recall by content and by position: closed forms against brute force, and answers worked out by hand."""

import jax
import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.errors import ImpossibleEvidenceWarning
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.verification.encoding_properties import encoding_faults
from ppl_tunnels.verification.ladder import ladder
from ppl_tunnels.verification.properties import check_oracle


@pytest.fixture(scope="module")
def recall():
    return load_tunnel("recall")


@pytest.mark.parametrize("name", ["recall", pytest.param("recall_by_position", marks=pytest.mark.slow)])
def test_closed_forms_are_brute_force(name):
    """Would catch any rule that is wrong in any variant: slips, strangers, overwritten keys, masks of every shape."""
    for finding in check_oracle(load_tunnel(name), rounds=1):
        assert finding.passed and finding.cases > 0, (finding.name, finding.detail)


def test_defaults_and_presets(recall):
    """Would catch sizes that drift from the published ones, and predictions at storing steps that count."""
    assert (recall.length, recall.predict, recall.oracle().engine) == (20, "value", "closed form")
    assert recall.scored.tolist() == [False] * 16 + [True] * 4
    paper = recall.preset("paper")
    assert paper.length == 67 and [paper.reading.sites[name].support_size for name in paper.stream] == [256, 256]
    twin = load_tunnel("recall_by_position").preset("paper")
    assert twin.length == 67 and [twin.reading.sites[name].support_size for name in twin.stream] == [64, 256]


def test_published_layout(recall):
    """Would catch another length than the published 329 positions, an answer shown, and a readout off the blank."""
    paper = recall.preset("paper")
    encoding = paper.encoding("published")
    assert encoding.sequence_length == 329 and encoding.vocabulary_size == 5 + 256 + 256
    assert encoding.readout[-3:].tolist() == [290, 309, 328]
    tokens = np.asarray(encoding.encode(paper.probe).tokens)
    assert {encoding.decode(int(token)) for token in tokens[:, [290, 309, 328]].ravel()} == {"_"}
    small = recall.preset("small")
    assert encoding_faults(small.encoding("published"), small) == []


def stored(tunnel, key, value):
    return tunnel.episodes(stream={"key": [key], "value": [value]})


def test_answers_by_hand(recall):
    """Would catch an answer taken by position, the first of two pairs under a key, and a stranger's value called known."""
    plain = recall.configure(pairs=3, queries=2, keys=6, values=4)
    law = plain.oracle().predictive(stored(plain, [5, 0, 3, 0, 5], [1, 2, 3, 2, 1])).to_numpy()[0]
    np.testing.assert_array_equal(law[3:], np.eye(4)[[2, 1]])
    np.testing.assert_allclose(law[:3], 0.25, rtol=1e-12)

    again = plain.configure(overwrite=True)
    law = again.oracle().predictive(stored(again, [5, 0, 5, 5, 0], [1, 2, 3, 3, 2])).to_numpy()[0]
    np.testing.assert_array_equal(law[3:], np.eye(4)[[3, 2]])

    strange = plain.configure(unseen=0.5)
    law = strange.oracle().predictive(stored(strange, [5, 0, 3, 1, 5], [1, 2, 3, 0, 1])).to_numpy()[0]
    np.testing.assert_allclose(law[3], 0.25, rtol=1e-12)
    np.testing.assert_array_equal(law[4], np.eye(4)[1])


def test_slips_by_hand(recall):
    """Bayes on two readings of one cell, each right with .7 + .3 / 4: the second one confirms, or contradicts."""
    noisy = recall.configure(pairs=1, queries=2, keys=3, values=4, noise=0.3, overwrite=True, unseen=0.0)
    with pytest.raises(ValueError, match="queries=2 need as many stored pairs"):
        noisy.reading  # noqa: B018
    noisy = recall.configure(pairs=2, queries=2, keys=2, values=4, noise=0.3, overwrite=True)
    law = noisy.oracle().predictive(stored(noisy, [1, 1, 1, 1], [3, 0, 0, 2])).to_numpy()[0]
    right, wrong = 0.7 + 0.3 / 4, 0.3 / 4
    once = np.array([right, wrong, wrong, wrong])
    twice = once**2 / (once**2).sum()
    likelihood = np.full((4, 4), wrong) + (right - wrong) * np.eye(4)
    np.testing.assert_allclose(law[2], once @ likelihood, rtol=1e-12)
    np.testing.assert_allclose(law[3], twice @ likelihood, rtol=1e-12)


def test_impossible_evidence(recall):
    """Would catch a law handed out after a reading that contradicts what was stored."""
    plain = recall.configure(pairs=2, queries=2, keys=3, values=3)
    wrong = stored(plain, [0, 1, 0, 1], [1, 2, 0, 2])
    with pytest.warns(ImpossibleEvidenceWarning):
        law = plain.oracle().predictive(wrong).to_numpy()[0]
    assert law[:3].sum(axis=1).tolist() == pytest.approx([1, 1, 1]) and not law[3].any()


def test_forgetful_agents_do_not_remember(recall):
    """Would catch a memory that masks cannot hide, which makes every window agent Bayes and the tunnel vacuous."""
    rungs = {rung.agent: rung for rung in ladder(recall.preset("small"), jax.random.key(0), tolerance_bits=0.01)}
    assert rungs["prior"].kl_bits > 3 and rungs["memoryless"].kl_bits > 3
    assert rungs["window-8"].kl_bits > 0.5 and not any(rung.within_tolerance for rung in rungs.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pairs": 65}, "pairs=65 need as many distinct keys, but keys=64"),
        ({"noise": 1.5}, "noise=1.5 is no probability"),
        ({"queries": 17}, "queries=17 need as many stored pairs"),
        ({"keys": 16, "unseen": 0.1}, "unseen=0.1 needs a key that was never stored"),
        ({"values": 0}, "expected at least one of each"),
    ],
)
def test_refusals(recall, settings, words):
    """Would catch episodes that cannot be."""
    with pytest.raises(ValueError, match=words):
        recall.configure(**settings).reading  # noqa: B018


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppl_tunnels.errors.ImpossibleEvidenceWarning")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("recall", {"pairs": 3, "queries": 3, "keys": 3, "values": 2}),
        ("recall", {"pairs": 2, "queries": 2, "keys": 4, "values": 2, "unseen": 0.4, "noise": 0.2}),
        ("recall", {"pairs": 3, "queries": 3, "keys": 2, "values": 2, "overwrite": True}),
        ("recall_by_position", {"pairs": 3, "queries": 3, "values": 2}),
    ],
)
def test_any_evidence_under_any_mask_is_enumeration(name, settings):
    """Would catch what drawn episodes cannot show: contradictions, wrong keys, and either of them hidden by a mask."""
    tunnel = load_tunnel(name).configure(**settings)
    form, engine = tunnel.oracle(), derive(tunnel, engine="enumeration")
    drawn, generator = tunnel.sample(jax.random.key(3), 128), np.random.default_rng(1)
    stream = {}
    for site in tunnel.stream:
        symbols = tunnel.reading.sites[site].support_size
        stream[site] = np.concatenate(
            [np.asarray(drawn.stream[site]), generator.integers(symbols, size=(128, tunnel.length))]
        )
        wrong = np.arange(0, 128, 2)  # of the drawn ones, every other has one symbol replaced
        stream[site][wrong, generator.integers(tunnel.length, size=64)] = generator.integers(symbols, size=64)
    episodes = tunnel.episodes(stream=stream)
    full = np.tril(np.ones((tunnel.length,) * 2, bool), -1)
    impossible = []
    for mask in (full, np.zeros_like(full), *(full & (generator.random(full.shape) < 0.6) for _ in range(4))):
        for site in tunnel.stream:
            law, exact = (oracle.predictive(episodes, site, mask).to_numpy() for oracle in (form, engine))
            np.testing.assert_allclose(law, exact, rtol=0, atol=1e-12, err_msg=f"{site} {mask.astype(int).tolist()}")
            impossible.append(exact.sum(axis=-1) == 0)
    assert 0 < np.mean(impossible) < 1
    np.testing.assert_allclose(
        np.exp(form.log_evidence(episodes)), np.exp(engine.log_evidence(episodes)), rtol=0, atol=1e-15
    )
