"""Episodes as tokens, and where each prediction is read."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.encoding import TokenEncoding
from ppl_tunnels.errors import TunnelError

PROGRAMS = Path(__file__).with_name("programs.py")
FINITE = ["casino", "umbrella", "echo", "panel", "survey", "driven", "sprinkler"]


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


@wind_tunnel(stream="x", context="table", predict="pair")
def awkward(length=2):
    """A context in two plates with values that do not start at 0, and a static vector to predict."""
    with numpyro.plate("a", 2, dim=-2), numpyro.plate("b", 3, dim=-1):
        numpyro.sample("table", dist.DiscreteUniform(2, 4))
    numpyro.sample("pair", dist.Bernoulli(0.5).expand([2]).to_event(1))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.DiscreteUniform(5, 6))


def test_published_layouts():
    """Would catch a shift of the readout, and a token range shared by two sites."""
    bijection = load_tunnel("bijection").encoding()
    assert (bijection.sequence_length, bijection.vocabulary_size, bijection.outputs) == (37, 40, 20)
    assert bijection.readout.tolist() == list(range(0, 37, 2)) and not bijection.start
    coin = load_tunnel("coin").encoding()
    assert (coin.sequence_length, coin.vocabulary_size, coin.outputs) == (20, 3, 2)
    assert coin.readout.tolist() == list(range(20)) and coin.start


def test_tokens_of_a_step_in_program_order():
    """Would catch sites interleaved in the wrong order, or steps and sites transposed."""
    panel = load("panel")
    episodes = panel.episodes(
        stream={"pixels": [[[0, 1], [1, 1]]], "label": [[1, 0]]},
        context={"hint": [2]},
    )
    encoding = panel.encoding()
    tokens = encoding.encode(episodes)[0].tolist()
    words = [encoding.decode(token) for token in tokens]
    assert words == ["hint = 2", "pixels = 0", "pixels = 1", "label = 1", "pixels = 1", "pixels = 1"]
    assert encoding.readout.tolist() == [2, 5]
    assert encoding.targets(episodes).tolist() == [[1, 0]]


def test_plates_within_plates_and_values_that_are_not_counts():
    """Would catch an axis too many or too few, and a value written where its index belongs."""
    encoding = awkward.encoding()
    table = np.array([[[2, 3, 4], [4, 4, 2]]])
    tokens = encoding.encode(awkward.episodes(stream={"x": [[6, 5]]}, context={"table": table}))
    assert tokens.tolist() == [[0, 1, 2, 2, 2, 0, 4, 3]]
    assert encoding.decode(4) == "x = 6"
    assert encoding.values.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    targets = encoding.targets(awkward.probe[:5])
    assert targets.tolist() == [[2 * a + b] * 2 for a, b in awkward.probe.latent["pair"][:5].tolist()]


@pytest.mark.parametrize("name", FINITE)
def test_every_token_is_in_the_vocabulary_and_every_target_a_symbol(name):
    """Would catch tokens out of range, which an embedding clamps silently."""
    tunnel = load(name)
    encoding, episodes = tunnel.encoding(), tunnel.probe
    tokens, targets = np.asarray(encoding.encode(episodes)), np.asarray(encoding.targets(episodes))
    assert tokens.shape == (len(episodes), encoding.sequence_length) and tokens.dtype == np.int32
    assert tokens.min() >= 0 and tokens.max() < encoding.vocabulary_size
    assert targets.shape == (len(episodes), tunnel.length) and targets.dtype == np.int32
    assert targets.min() >= 0 and targets.max() < encoding.outputs
    assert encoding.readout.shape == (tunnel.length,) and encoding.readout[-1] == encoding.sequence_length - 1
    realised = {**episodes.stream, **episodes.latent}[tunnel.predict]
    per_step = tunnel.reading.sites[tunnel.predict].per_step
    expected = realised if per_step else np.repeat(realised[:, None], tunnel.length, axis=1)
    np.testing.assert_array_equal(encoding.values[targets], expected)


@pytest.mark.parametrize("name", FINITE)
def test_no_position_up_to_a_readout_holds_its_answer(name):
    """Would catch labels placed at a position whose input holds the answer: that teaches copying.

    For a stream site, the answer and all that follows may change and no token up to the readout does; for a latent, all
    steps after its own. The readout's own step must be in reach, or the evidence of a step would be withheld.
    """
    tunnel = load(name)
    encoding, episodes = tunnel.encoding(), tunnel.probe
    streams, predict = tunnel.reading.named("stream"), tunnel.predict
    own = np.asarray(encoding.encode(episodes))
    for step in range(tunnel.length):
        hidden = {site: np.array(value) for site, value in episodes.stream.items()}
        shown = {site: np.array(value) for site, value in episodes.stream.items()}
        for site in streams:
            from_own_step = predict in streams and streams.index(site) >= streams.index(predict)
            start = step if from_own_step else step + 1
            hidden[site][:, start:] = np.roll(hidden[site][:, start:], 1, axis=0)
            shown[site][:, :start] = np.roll(shown[site][:, :start], 1, axis=0)
        upto = encoding.readout[step] + 1
        changed = np.asarray(encoding.encode(dataclasses.replace(episodes, stream=hidden)))
        np.testing.assert_array_equal(changed[:, :upto], own[:, :upto])
        first_prediction = step == 0 and predict == streams[0]
        if not first_prediction:
            visible = np.asarray(encoding.encode(dataclasses.replace(episodes, stream=shown)))
            assert (visible[:, :upto] != own[:, :upto]).any(), step


def test_latents_are_read_at_the_last_token_of_their_step():
    """Would catch a filtering posterior asked for before its evidence was shown."""
    assert load("umbrella").encoding().readout.tolist() == [0, 1, 2]
    assert load("sprinkler").encoding().readout.tolist() == [1]
    assert awkward.encoding().readout.tolist() == [6, 7]


@pytest.mark.parametrize("name", [*FINITE, "awkward"])
def test_json_gives_the_same_encoding_back(name):
    """Would catch a checkpoint that reads its episodes otherwise than they were written in training."""
    tunnel = awkward if name == "awkward" else load(name)
    encoding = tunnel.encoding()
    again = TokenEncoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert again == encoding
    np.testing.assert_array_equal(again.encode(tunnel.probe), encoding.encode(tunnel.probe))
    np.testing.assert_array_equal(again.targets(tunnel.probe), encoding.targets(tunnel.probe))
    with pytest.raises(TunnelError, match="not an encoding"):
        TokenEncoding.from_json({"inputs": []})


def test_encode_is_jittable():
    """Would catch an encoding that training would have to leave the device for."""
    tunnel = load("panel")
    encoding = tunnel.encoding()
    episodes = jax.tree.map(jnp.asarray, tunnel.probe)
    np.testing.assert_array_equal(jax.jit(encoding.encode)(episodes), encoding.encode(episodes))


def test_a_start_token_where_it_is_needed_or_asked_for():
    """Would catch a first prediction without a position to come from."""
    assert load("casino").encoding().encode(load("casino").probe)[:, 0].tolist() == [0] * 64
    assert load("casino").encoding().decode(0) == "start"
    assert not load("echo").encoding().start and load("echo").encoding(start=True).start
    assert load("echo").encoding(start=True).readout.tolist() == [1, 3, 5]
    with pytest.raises(TunnelError, match="start=False leaves no position.*'face'"):
        load("casino").encoding(start=False)


def test_refusals_name_the_site():
    """Would catch real numbers cut to tokens, several draws read as one, and tokens that nothing stands for."""
    with pytest.raises(TunnelError, match="site 'x' is not finite.*discretise"):
        load("line").encoding()

    @wind_tunnel(stream="x", predict="z")
    def several(length=2):
        with numpyro.plate("a", 2):
            numpyro.sample("z", dist.Bernoulli(0.5))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(0.5))

    with pytest.raises(TunnelError, match="'z' is 2 draws"):
        several.encoding()
    with pytest.raises(TunnelError, match="token 99 is not in the vocabulary; tokens run from 0 to"):
        load("casino").encoding().decode(99)
