"""The predictor: exact rows, a fingerprint of what decides them, and no look ahead."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ppl_tunnels.encoding import Encoding
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.layouts import Layout
from ppl_tunnels.models import ModelPredictor, build
from ppl_tunnels.oracles.laws import Finite


@pytest.fixture(scope="module")
def predictor(coin) -> ModelPredictor:
    return ModelPredictor(build("transformer", coin.encoding(), {"width": 16}, key=jax.random.key(0)), coin.encoding())


@pytest.fixture(scope="module")
def episodes(coin):
    return coin.sample(stream_key(0, Purpose.CHECK), 8)


def test_rows_are_normalised_in_double_precision(predictor, episodes):
    law = predictor(episodes)
    assert isinstance(law, Finite)
    assert law.log_probs.shape == (8, 5, 2) and law.log_probs.dtype == np.float64
    np.testing.assert_allclose(jax.nn.logsumexp(law.log_probs, axis=-1), 0, atol=1e-15)
    np.testing.assert_array_equal(law.values, [0, 1])


def test_rows_are_the_logits_at_the_readout_positions(predictor, episodes):
    tokens = predictor.encoding.encode(episodes).tokens
    logits = np.asarray(predictor.model(tokens), np.float64)[:, predictor.encoding.readout]
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(predictor(episodes).log_probs, expected, atol=1e-6)


@pytest.mark.parametrize("step", range(1, 5))
def test_later_flips_leave_earlier_rows_bit_identical(predictor, episodes, step):
    flips = episodes.stream["flip"]
    changed = dataclasses.replace(episodes, stream={"flip": flips.at[:, step:].set(1 - flips[:, step:])})
    before, after = predictor(episodes).log_probs, predictor(changed).log_probs
    np.testing.assert_array_equal(before[:, : step + 1], after[:, : step + 1])
    if step < 4:
        assert not (before[:, step + 1 :] == after[:, step + 1 :]).all()


def test_latents_are_not_read(predictor, episodes):
    np.testing.assert_array_equal(
        predictor(episodes).log_probs, predictor(dataclasses.replace(episodes, latent={"bias": None})).log_probs
    )


def test_one_compilation_per_batch_shape(coin, predictor, episodes, monkeypatch):
    traces = []
    encode = Encoding.encode
    monkeypatch.setattr(Encoding, "encode", lambda self, e: (traces.append(len(e)), encode(self, e))[1])
    fresh = dataclasses.replace(predictor)
    for size in (8, 8, 3, 8, 3):
        fresh(episodes[:size])
    assert traces == [8, 3]


def test_it_can_be_traced_in_double_precision_and_in_no_other(predictor, episodes):
    def log_probs(episodes):
        return predictor(episodes).log_probs

    episodes = episodes.without_latents()
    np.testing.assert_allclose(jax.jit(log_probs)(episodes), log_probs(episodes), atol=1e-6)
    with jax.enable_x64(False), pytest.raises(ValueError, match="double precision"):
        jax.jit(log_probs)(episodes)


def test_global_precision_does_not_change_a_bit(predictor, episodes):
    with jax.enable_x64(False):
        found = predictor(episodes).log_probs
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, predictor(episodes).log_probs)


def test_fingerprint_covers_weights_configuration_and_encoding_and_nothing_else(coin, predictor):
    same = dataclasses.replace(predictor, name="other", targets="oracle", training={"seed": 3})
    assert same.fingerprint == predictor.fingerprint
    assert len(predictor.fingerprint) == 64 and int(predictor.fingerprint, 16)

    weights = nnx.clone(predictor.model)
    weights.head_DxO[...] = weights.head_DxO[...].at[0, 0].add(1e-7)
    heads = build("transformer", coin.encoding(), {"width": 16, "heads": 4}, key=jax.random.key(0))
    longer = coin.configure(length=6).encoding()
    others = [
        ModelPredictor(weights, predictor.encoding),
        ModelPredictor(heads, predictor.encoding),
        dataclasses.replace(predictor, encoding=longer),
    ]
    assert others[1].weights_hash == others[2].weights_hash == predictor.weights_hash != others[0].weights_hash
    assert len({predictor.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_training_the_model_further_changes_neither_predictions_nor_fingerprint(coin, episodes):
    model = build("transformer", coin.encoding(), {"width": 16}, key=jax.random.key(0))
    predictor = ModelPredictor(model, coin.encoding())
    model.head_DxO[...] = jnp.zeros_like(model.head_DxO[...])
    untouched = ModelPredictor(
        build("transformer", coin.encoding(), {"width": 16}, key=jax.random.key(0)), coin.encoding()
    )
    assert predictor.fingerprint == untouched.fingerprint
    np.testing.assert_array_equal(predictor(episodes).log_probs, untouched(episodes).log_probs)


def test_episodes_of_another_length_are_refused(coin, predictor):
    longer = coin.configure(length=6).sample(jax.random.key(0), 2)
    with pytest.raises(ValueError, match="the episodes have 6 steps and this predictor reads 5"):
        predictor(longer)


def test_a_model_for_another_encoding_is_refused(coin, predictor):
    other = build("transformer", coin.encoding(), {}, key=jax.random.key(0))
    encoding = dataclasses.replace(coin.encoding(), layout=Layout("start GO", ("{flip}",) * 5))
    encoding = dataclasses.replace(encoding, sites=(dataclasses.replace(encoding.sites[0], first=2),))
    with pytest.raises(ValueError, match="the model has 3 tokens and the encoding 4"):
        ModelPredictor(other, encoding)
    with pytest.raises(ValueError, match=r"Linear has no `\.config`, the frozen dataclass"):
        ModelPredictor(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), coin.encoding())
