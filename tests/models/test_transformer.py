"""The transformer: causal, independent across the batch, float32 in every mode, and equal to its formula."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ppl_tunnels.models import transformer
from ppl_tunnels.models.parameters import count_parameters
from ppl_tunnels.models.predictor import hash_weights, named_weights
from ppl_tunnels.models.transformer import Transformer, TransformerConfig, rotate

LENGTH = 6
VARIANTS = {
    "learned-gelu": {},
    "rotary-swiglu": {"position": "rotary", "activation": "swiglu"},
    "no-position": {"position": "none"},
    "two-layers": {"layers": 2},
}


@functools.cache
def small(module=transformer, **options) -> Transformer:
    """A model that the tests only read, so one of each kind is enough."""
    config = module.TransformerConfig(vocabulary=5, positions=LENGTH, outputs=3, width=8, **options)
    return module.Transformer(config, rngs=nnx.Rngs(0))


def some_tokens(seed: int, batch: int = 2) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (batch, LENGTH), 0, 5)


def run(model: Transformer, tokens: jax.Array, at: np.ndarray | None = None) -> np.ndarray:
    return np.asarray(jax.jit(lambda tokens: model(tokens, at))(tokens))


def influence(model: Transformer, x: jax.Array) -> np.ndarray:
    """The largest gradient of any output at one position with respect to the input at another, `[position, source]`."""
    jacobian = jax.jit(jax.jacrev(lambda x: model.answer(x)[0]))(x)[:, :, 0]
    return np.asarray(jnp.abs(jacobian).max(axis=(1, 3)))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_gradient_from_the_future_is_exactly_zero(options):
    x = jax.random.normal(jax.random.key(0), (1, LENGTH, 8), jnp.float32)
    found = influence(small(**options), x)
    assert (np.triu(found, 1) == 0).all(), found
    # Without this half a model that ignores its input would pass.
    assert (found[np.tril_indices(LENGTH)] > 0).all(), found


@pytest.mark.parametrize(
    "new", ["<= positions_L[:, None] + 1", ">= 0 * positions_L[:, None]"], ids=["peeks", "unmasked"]
)
def test_causality_check_catches_attention_that_looks_ahead(mutate, new):
    faulty = mutate(transformer, "<= positions_L[:, None]", new)
    x = jax.random.normal(jax.random.key(0), (1, LENGTH, 8), jnp.float32)
    assert (np.triu(influence(small(faulty), x), 1) > 0).any()


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_chosen_positions_agree_with_all_positions(options):
    model, tokens, at = small(**options), some_tokens(0), np.array([0, 2, 5])
    # Products of other shapes round differently; logits here are of order 0.1.
    np.testing.assert_allclose(run(model, tokens, at), run(model, tokens)[:, at], atol=1e-6)


def test_episodes_do_not_see_each_other():
    model, tokens = small(), some_tokens(0)
    other = tokens.at[1].set((tokens[1] + 1) % 5)
    before, after = run(model, tokens), run(model, other)
    np.testing.assert_array_equal(before[0], after[0])
    assert not (before[1] == after[1]).all()


def test_forward_equals_the_formula_in_double_precision(seed):
    model, tokens = nnx.clone(small(layers=2)), np.asarray(some_tokens(seed))
    weights = {name: array.astype(np.float64) for name, array in named_weights(model).items()}
    # Weights this small leave attention nearly uniform and would hide a wrong scale.
    weights = {name: array if "gain" in name else 10 * array for name, array in weights.items()}
    state = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda leaf: leaf if leaf.ndim == 1 else 10 * leaf, state))
    expected = by_formula(weights, tokens, layers=2, heads=2)
    # Float32 against float64: about 1e-6 of logits of order 10, through two softmaxes.
    np.testing.assert_allclose(run(model, jnp.asarray(tokens)), expected, rtol=2e-4, atol=2e-4)


def by_formula(w: dict[str, np.ndarray], tokens: np.ndarray, *, layers: int, heads: int) -> np.ndarray:
    """The same network in loops, for one position and one head at a time."""

    def norm(x, gain):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    out = []
    for row in tokens:
        x = w["tokens_VxD"][row] + w["positions_SxD"][: len(row)]
        for layer in range(layers):
            block = f"blocks/{layer}/"
            y = norm(x, w[block + "attend_norm/gain_D"])
            q, k, v = (y @ matrix for matrix in w[block + "attend/project_3xDxD"])
            mixed, size = np.zeros_like(x), x.shape[1] // heads
            for t in range(len(row)):
                for h in range(heads):
                    part = slice(h * size, (h + 1) * size)
                    weight = np.exp(k[: t + 1, part] @ q[t, part] / math.sqrt(size))
                    mixed[t, part] = weight @ v[: t + 1, part] / weight.sum()
            x = x + mixed @ w[block + "attend/out_DxD"]
            y = norm(x, w[block + "think_norm/gain_D"])
            x = x + gelu(y @ w[block + "think/up_DxF"]) @ w[block + "think/down_FxD"]
        out.append(norm(x, w["norm/gain_D"]) @ w["head_DxO"])
    return np.array(out)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_everything_is_float32_in_either_mode(options, x64):
    def build_and_run(key):
        model = Transformer(small(**options).config, rngs=nnx.Rngs(key))
        return nnx.state(model), model(jnp.zeros((2, LENGTH), jnp.int32), np.array([1, 3]))

    with jax.enable_x64(x64):
        program, shapes = jax.make_jaxpr(build_and_run, return_shape=True)(jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {np.dtype("float32")}
    # Scalars may be written in double precision (a Python number is one); arrays may not.
    assert not re.search(r"f64\[\d", str(program))
    assert re.search(r"f32\[\d", str(program))


def test_weights_depend_on_the_key_alone():
    with jax.enable_x64(False):
        assert hash_weights(small.__wrapped__()) == hash_weights(small())
    other = Transformer(small().config, rngs=nnx.Rngs(1))
    assert hash_weights(other) != hash_weights(small())


def test_parameter_count_of_the_small_bijection_model():
    config = TransformerConfig(vocabulary=40, positions=37, outputs=20)
    model = nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    # Tokens, positions and head; queries, keys, values, output; MLP; three gains.
    assert count_parameters(model) == 32 * (40 + 37 + 20) + 4 * 32**2 + 8 * 32**2 + 3 * 32 == 15_488


def test_intermediates_are_captured_without_touching_the_logits():
    model, tokens = small(layers=2), some_tokens(0)
    graph, state = nnx.split(model)
    logits, found = jax.jit(lambda state: nnx.capture(nnx.merge(graph, state), nnx.Intermediate)(tokens))(state)
    np.testing.assert_array_equal(logits, run(model, tokens))
    for layer in range(2):
        seen = nnx.to_pure_dict(found)["blocks"][layer]["attend"]
        assert {name: seen[name].shape for name in ("query", "key", "value")} == dict.fromkeys(
            ("query", "key", "value"), (2, LENGTH, 2, 4)
        )
        np.testing.assert_allclose(seen["attention"].sum(axis=-1), 1, rtol=1e-6)
        assert (np.triu(seen["attention"], 1) == 0).all()
    nnx.capture(model, nnx.Intermediate)(tokens)
    assert jax.tree.structure(nnx.state(model)) == jax.tree.structure(state)  # nothing is left behind


def test_capturing_costs_nothing_when_off(monkeypatch):
    model = small()
    before = str(jax.make_jaxpr(model)(some_tokens(0)))
    monkeypatch.setattr(nnx.Module, "sow", lambda *_, **__: False)
    assert str(jax.make_jaxpr(model)(some_tokens(0))) == before


def test_rotary_scores_depend_on_distance_alone():
    q, k = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 8), jnp.float32)

    def score(i: int, j: int) -> float:
        return float(jnp.sum(rotate(q, np.array([i])) * rotate(k, np.array([j]))))

    assert score(5, 2) == pytest.approx(score(13, 10), rel=1e-5)
    assert score(5, 2) != pytest.approx(score(5, 3), rel=1e-3)


def test_without_positions_the_order_of_the_past_does_not_matter_to_one_layer():
    tokens = jnp.array([[0, 1, 2, 3, 4, 0]])
    shuffled = jnp.array([[3, 1, 4, 2, 0, 0]])
    for model, same in ((small(position="none"), True), (small(), False)):
        one, two = run(model, jnp.concatenate([tokens, shuffled]))[:, -1]
        assert np.allclose(one, two, atol=1e-6) == same


def test_a_token_outside_the_vocabulary_is_not_the_nearest_token():
    embedded = small(position="none").embed(jnp.array([[4, 5, -1]]))
    assert (embedded[0, 0] != 0).any() and (embedded[0, 1:] == 0).all()


def test_longer_sequences_need_positions_that_were_not_learned():
    tokens = jnp.zeros((1, LENGTH + 1), jnp.int32)
    with pytest.raises(ValueError, match=r"7 positions and the model learned 6; .*rotary"):
        small()(tokens)
    assert run(small(position="rotary"), tokens).shape == (1, LENGTH + 1, 3)


@pytest.mark.parametrize("at", [[-1, 2], [0, LENGTH]])
def test_positions_outside_the_sequence_are_refused(at):
    with pytest.raises(ValueError, match="the positions of the sequence are 0 … 5"):
        small()(jnp.zeros((1, LENGTH), jnp.int32), np.array(at))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": 0}, "layers is 0; expected an integer of at least 1"),
        ({"width": 8.0}, r"width is 8\.0; expected an integer"),
        ({"heads": True}, "heads is True; expected an integer"),
        ({"width": 10, "heads": 4}, "width 10 is not a multiple of heads 4"),
        ({"activation": "relu"}, "activation is 'relu'; expected one of gelu, swiglu"),
        ({"position": "sin"}, "position is 'sin'; expected one of learned, rotary, none"),
        ({"position": "rotary", "width": 6}, "a head has width 3; choose width / heads even"),
    ],
)
def test_configurations_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**{"vocabulary": 5, "positions": 6, "outputs": 3, **fields})


def test_features_come_with_tokens():
    """Would catch features that are dropped, or added at another position than their token's."""
    config = TransformerConfig(vocabulary=5, positions=4, outputs=3, width=8, features=2)
    model = Transformer(config, rngs=nnx.Rngs(0))
    tokens, features = jnp.zeros((2, 4), jnp.int32), jnp.zeros((2, 4, 2)).at[1, 2].set(1.0)
    plain, marked = model(tokens, features=features.astype(jnp.float32))
    changed = np.abs(np.asarray(plain - marked)).max(axis=-1) > 1e-6
    assert changed.tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match="reads 2 features a position and was given 0"):
        model(tokens)
    with pytest.raises(ValueError, match="features is -1; expected an integer of at least 0"):
        TransformerConfig(vocabulary=5, positions=4, outputs=3, features=-1)
