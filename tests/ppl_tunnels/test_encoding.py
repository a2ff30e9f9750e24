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
from ppl_tunnels.distributions import RandomPermutation
from ppl_tunnels.encoding import Encoding
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.site_codes import SiteCode
from ppl_tunnels.verification.encoding_properties import encoding_faults

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
    assert bijection.readout.tolist() == list(range(0, 37, 2)) and not bijection.markers
    coin = load_tunnel("coin").encoding()
    assert (coin.sequence_length, coin.vocabulary_size, coin.outputs) == (20, 3, 2)
    assert coin.readout.tolist() == list(range(20)) and coin.markers == ("start",)


def test_tokens_of_a_step_in_program_order():
    """Would catch sites interleaved in the wrong order, or steps and sites transposed."""
    panel = load("panel")
    episodes = panel.episodes(
        stream={"pixels": [[[0, 1], [1, 1]]], "label": [[1, 0]]},
        context={"hint": [2]},
    )
    encoding = panel.encoding()
    tokens = encoding.encode(episodes).tokens[0].tolist()
    words = [encoding.decode(token) for token in tokens]
    assert words == ["hint = 2", "pixels = 0", "pixels = 1", "label = 1", "pixels = 1", "pixels = 1"]
    assert encoding.readout.tolist() == [2, 5]
    assert encoding.targets(episodes).tolist() == [[1, 0]]


def test_plates_within_plates_and_values_that_are_not_counts():
    """Would catch an axis too many or too few, and a value written where its index belongs."""
    encoding = awkward.encoding()
    table = np.array([[[2, 3, 4], [4, 4, 2]]])
    tokens = encoding.encode(awkward.episodes(stream={"x": [[6, 5]]}, context={"table": table})).tokens
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
    tokens, targets = np.asarray(encoding.encode(episodes).tokens), np.asarray(encoding.targets(episodes))
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
    """Would catch labels placed at a position whose input holds the answer: that teaches copying."""
    assert encoding_faults(load(name).encoding(), load(name)) == []


def test_the_published_leak_is_found():
    """The readout one position later is where the published code took some of its labels: the input there is the answer."""
    tunnel = load_tunnel("bijection").preset("small")

    class Leaking(Encoding):
        @property
        def readout(self):
            return super().readout + 1

    class Withholding(Encoding):
        @property
        def readout(self):
            return np.maximum(super().readout - 1, 0)

    honest = tunnel.encoding()
    fields = {field.name: getattr(honest, field.name) for field in dataclasses.fields(honest)}
    assert encoding_faults(honest, tunnel) == []
    (leak, *_), (late, *_) = (encoding_faults(kind(**fields), tunnel) for kind in (Leaking, Withholding))
    assert leak == (
        "step 1: what position 1 and those before it hold changes with 'value' of that step, whose law is predicted there: the answer "
        "leaks"
    )
    assert late.startswith(
        "step 2: the positions up to 1 do not change with 'key' of that step, on which Bayes' answer rests"
    )


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
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert again == encoding
    np.testing.assert_array_equal(again.encode(tunnel.probe).tokens, encoding.encode(tunnel.probe).tokens)
    np.testing.assert_array_equal(again.targets(tunnel.probe), encoding.targets(tunnel.probe))
    with pytest.raises(TunnelError, match="not an encoding"):
        Encoding.from_json({"sites": []})


def test_encode_is_jittable():
    """Would catch an encoding that training would have to leave the device for."""
    tunnel = load("panel")
    encoding = tunnel.encoding()
    episodes = jax.tree.map(jnp.asarray, tunnel.probe)
    np.testing.assert_array_equal(jax.jit(encoding.encode)(episodes).tokens, encoding.encode(episodes).tokens)


def test_a_start_token_where_it_is_needed_or_asked_for():
    """Would catch a first prediction without a position to come from."""
    assert load("casino").encoding().encode(load("casino").probe).tokens[:, 0].tolist() == [0] * 64
    assert load("casino").encoding().decode(0) == "start"
    assert "start" not in load("echo").encoding().markers and load("echo").encoding(start=True).markers == ("start",)
    assert load("echo").encoding(start=True).readout.tolist() == [1, 3, 5]
    with pytest.raises(TunnelError, match="start=False leaves no position.*'face'"):
        load("casino").encoding(start=False)


def test_refusals_name_the_site():
    """Would catch real numbers cut to tokens, several draws read as one, and tokens that nothing stands for."""
    with pytest.raises(TunnelError, match="'y' is not finite.*discretise"):
        load("line").predicting("y").encoding().outputs  # noqa: B018

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


@wind_tunnel(stream=("x", "y"), context="rows")
def measured(length=3):
    """Real numbers everywhere but for the answer."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(0))
    with numpyro.plate("n", length):
        x = numpyro.sample("x", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        numpyro.sample("y", dist.Bernoulli(jax.nn.sigmoid(x[:, 0] + rows[0, 0])))


def test_real_numbers_are_features_beside_tokens():
    """Would catch columns of two sites that overlap, and numbers of one site at the position of another."""
    encoding, episodes = measured.encoding(), measured.probe[:4]
    inputs = encoding.encode(episodes)
    assert encoding.table() == ["rows = real features 0 … 1", "x = real features 2 … 4", "y = 0", "y = 1"]
    assert (encoding.vocabulary_size, encoding.features, encoding.sequence_length) == (4, 5, 7)
    assert inputs.tokens[:, 2::2].tolist() == [[1, 1, 1]] * 4 and inputs.features.dtype == jnp.float32
    np.testing.assert_array_equal(inputs.features[:, :2, :2], episodes.context["rows"].astype(np.float32))
    np.testing.assert_array_equal(inputs.features[:, 2::2, 2:], episodes.stream["x"].astype(np.float32))
    assert not np.asarray(inputs.features[:, :2, 2:]).any() and not np.asarray(inputs.features[:, 3::2]).any()
    assert encoding_faults(encoding, measured) == []


def written_again(tunnel, encoding):
    """Whether reading what was written gives the episodes back."""
    episodes = tunnel.probe
    for name, (values, written) in encoding.read(encoding.encode(episodes)).items():
        given = np.asarray({**episodes.context, **episodes.stream}[name])
        flat = given.reshape(len(episodes), *written.shape, *values.shape[written.ndim + 1 :])
        np.testing.assert_allclose(values[:, written], flat[:, written].astype(values.dtype), rtol=1e-6, atol=0)
        assert written.any(), name


@pytest.mark.parametrize("name", [*FINITE, "awkward", "measured"])
def test_round_trip(name):
    """Would catch two values written alike, and values read from their neighbour's position."""
    tunnel = {"awkward": awkward, "measured": measured}.get(name) or load(name)
    written_again(tunnel, tunnel.encoding())
    written_again(tunnel, tunnel.encoding(start=True))


def test_shared_tokens():
    """Would catch ranges shared by sites whose values differ, and a range counted twice."""
    tunnel = load_tunnel("bijection").preset("small")
    encoding = tunnel.encoding(shared=(("key", "value"),))
    assert encoding.vocabulary_size == 8 and encoding.decode(3) == "key = 3 or value = 3"
    episodes = tunnel.episodes(stream={"key": [[0, 1, 2, 3, 4, 5, 6]], "value": [[1, 0, 3, 2, 5, 4, 7]]})
    assert encoding.encode(episodes).tokens[0, :4].tolist() == [0, 1, 1, 0]
    written_again(tunnel, encoding)
    with pytest.raises(TunnelError, match="'label' and 'pixels' cannot share tokens|'pixels' and 'hint' cannot share"):
        load("panel").encoding(shared=(("hint", "pixels"),))
    with pytest.raises(TunnelError, match="'kye' is not written.*did you mean 'key'"):
        tunnel.encoding(shared=(("kye", "value"),))


@wind_tunnel(stream="x", context=("order", "dial"))
def relabelled(length=2):
    """Contexts whose elements have tokens: a permutation too long to list, and one real number a draw as well."""
    order = numpyro.sample("order", RandomPermutation(9))
    numpyro.sample("dial", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Categorical(jax.nn.one_hot(order[0], 9, dtype=float)))


def test_long_vectors_are_written_element_by_element():
    """Would catch a vocabulary of 9! tokens."""
    encoding = relabelled.encoding()
    assert (encoding.vocabulary_size, encoding.sequence_length) == (9 + 1 + 9, 9 + 1 + 1)
    tokens = np.asarray(encoding.encode(relabelled.probe).tokens)
    np.testing.assert_array_equal(tokens[:, :9], relabelled.probe.context["order"])
    written_again(relabelled, encoding)
    as_features = relabelled.encoding(features=("order",))
    assert (as_features.features, as_features.sequence_length) == (10, 3)
    written_again(relabelled, as_features)
    with pytest.raises(TunnelError, match="features='x' is a finite stream site, whose values are labels"):
        relabelled.encoding(features=("x",))


def test_probabilities_on_a_grid_have_tokens():
    """Would catch .1 + .2 written as a neighbour of .3."""
    code = SiteCode("p", "context", 1, (3,), "element", 4, tuple(k / 100 for k in range(5, 101)))
    assert code.write(jnp.array([[[0.1 + 0.2, 0.05, 0.65]]])).tolist() == [[29, 4, 64]]
    assert code.words(29) == "p = 0.3"
    odd = dataclasses.replace(code, values=(0.0, 1.0, 10.0))
    assert odd.write(jnp.array([[[10.0, 0.0, 1.0]]])).tolist() == [[6, 4, 5]]
