"""The register: options on top of the preset, helpful refusals, and a newcomer that trains, saves and loads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.models import ARCHITECTURES, Architecture, FitConfig, build, fit, load_model
from ppl_tunnels.models.parameters import matrix, table


@dataclasses.dataclass(frozen=True)
class CounterConfig:
    vocabulary: int
    positions: int
    outputs: int
    width: int = 8


class Counter(nnx.Module):
    """A mean over the past of embedded tokens, through one matrix: not a transformer, and enough for a coin."""

    def __init__(self, config: CounterConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.tokens_VxD = table(rngs.params(), (config.vocabulary, config.width))
        self.mix_DxD = matrix(rngs.params(), (config.width, config.width))
        self.head_DxO = table(rngs.params(), (config.width, config.outputs))

    def __call__(self, tokens: jax.Array, at: np.ndarray | None = None) -> jax.Array:
        x = jnp.cumsum(jax.nn.one_hot(tokens, self.config.vocabulary, dtype=jnp.float32), axis=1) @ self.tokens_VxD[...]
        logits = (x + jax.nn.gelu(x @ self.mix_DxD[...])) @ self.head_DxO[...]
        return logits if at is None else logits[:, at]


def test_options_come_on_top_of_the_small_preset(coin):
    config = nnx.eval_shape(lambda: build("transformer", coin.encoding(), {"layers": 2}, key=jax.random.key(0))).config
    assert (config.vocabulary, config.positions, config.outputs) == (3, 5, 2)
    assert (config.layers, config.width, config.heads) == (2, 32, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lstn", {}, "there is no architecture 'lstn'"),
        ("transformer", {"layer": 2}, "transformer has no option 'layer'; did you mean 'layers'"),
        ("transformer", {"outputs": 2}, "outputs follows from the tunnel's encoding"),
        ("transformer", {"heads": 3}, "width 32 is not a multiple of heads 3"),
    ],
)
def test_what_cannot_be_built_is_refused(coin, name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, coin.encoding(), options, key=jax.random.key(0))


def test_a_registered_newcomer_trains_saves_and_loads(coin, monkeypatch, tmp_path):
    monkeypatch.setitem(ARCHITECTURES, "counter", Architecture(CounterConfig, Counter, small={"width": 4}))
    config = FitConfig(architecture="counter", steps=60, batch=16, optimizer="adamw", steps_per_call=30)
    result = fit(coin, config, directory=tmp_path, progress=False)
    assert result.metrics[-1].kl_bits < result.metrics[0].kl_bits / 2
    again, episodes = load_model(tmp_path), coin.sample(stream_key(0, Purpose.CHECK), 4)
    assert isinstance(again.model, Counter)
    np.testing.assert_array_equal(again(episodes).log_probs, result.predictor(episodes).log_probs)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_keeps_the_contract(coin, name):
    model = build(name, coin.encoding(), {}, key=jax.random.key(0))
    assert type(model) is ARCHITECTURES[name].model
    graph, state = nnx.split(model)
    run = jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens))
    chosen = jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens, np.array([1, 4])))
    tokens = jax.random.randint(jax.random.key(0), (2, 5), 0, 3)
    before = run(state, tokens)
    assert before.shape == (2, 5, 2) and before.dtype == np.float32
    np.testing.assert_allclose(chosen(state, tokens), before[:, [1, 4]], atol=1e-6)
    for step in range(1, 5):
        after = run(state, tokens.at[:, step:].set((tokens[:, step:] + 1) % 3))
        np.testing.assert_array_equal(before[:, :step], after[:, :step])
        assert not (before[:, step] == after[:, step]).all()
