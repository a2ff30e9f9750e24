"""A causal transformer, small enough to read: embed, attend, think, and answer at every position.

    x_0 = E[token] (+ features W) (+ P[position]);   x ← x + Attention(norm(x));   x ← x + MLP(norm(x));   logits = norm(x_last) W

Pre-norm residual blocks (Xiong et al. 2020), RMS normalisation (Zhang & Sennrich 2019), scaled dot-product attention
(Vaswani et al. 2017), GELU (Hendrycks & Gimpel 2016) or SwiGLU (Shazeer 2020), learned, rotary (Su et al. 2021) or no
positions. Without biases and without dropout: every episode is fresh, so there is nothing to overfit.

Shape suffixes: B episode, S position, L position whose answer is wanted (every position, except in the last block of a
forward pass with `at`), D width, H head, K width of a head, F width of the MLP, V token, O output. All is float32 in
either of JAX's modes.
"""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ppl_tunnels.models.parameters import matrix, ones, table

Activation = Literal["gelu", "swiglu"]
Position = Literal["learned", "rotary", "none"]


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The shape of a transformer; the first four come from the tunnel's encoding.

    Example:
        >>> TransformerConfig(vocabulary=40, positions=37, outputs=20).width
        32
    """

    vocabulary: int  # how many different tokens there are
    positions: int  # longest sequence, in tokens; a limit with learned positions only
    outputs: int  # how many values the predicted site can take
    features: int = 0  # how many real numbers come with each token
    layers: int = 1  # how many blocks of attention and MLP
    width: int = 32  # size of the residual stream; below the number of symbols it tends to fail
    heads: int = 2  # attention heads per layer; divides width
    mlp_ratio: int = 4  # hidden width of the MLP over width
    activation: Activation = "gelu"  # of the MLP; swiglu has a third matrix
    position: Position = "learned"  # how order enters: a learned table, rotated keys and queries, or the mask alone

    def __post_init__(self) -> None:
        for field in ("vocabulary", "positions", "outputs", "layers", "width", "heads", "mlp_ratio"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"transformer: {field} is {value!r}; expected an integer of at least 1")
        if not isinstance(self.features, int) or isinstance(self.features, bool) or self.features < 0:
            raise ValueError(f"transformer: features is {self.features!r}; expected an integer of at least 0")
        for field, known in (("activation", get_args(Activation)), ("position", get_args(Position))):
            if getattr(self, field) not in known:
                raise ValueError(
                    f"transformer: {field} is {getattr(self, field)!r}; expected one of {', '.join(known)}"
                )
        if self.width % self.heads:
            raise ValueError(
                f"transformer: width {self.width} is not a multiple of heads {self.heads}; change one of them"
            )
        if self.position == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"transformer: rotary positions turn pairs, and a head has width {self.width // self.heads}; "
                "choose width / heads even"
            )


class Transformer(nnx.Module):
    """Tokens to logits, position by position, never looking ahead.

    Args:
        config: the shape.
        rngs: Flax random streams; `params` initialises the weights.

    Queries, keys, values [episode, position, head, width of a head] and attention [episode, head, position, attended]
    are sown under those names and cost nothing unless asked for:

        logits, found = nnx.capture(model, nnx.Intermediate)(tokens);  found["blocks"][0]["attend"]["key"]

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> model = Transformer(TransformerConfig(vocabulary=40, positions=37, outputs=20), rngs=nnx.Rngs(0))
        >>> model(jnp.zeros((3, 37), jnp.int32)).shape
        (3, 37, 20)
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.tokens_VxD = table(rngs.params(), (config.vocabulary, config.width))
        if config.features:
            self.features_FxD = table(rngs.params(), (config.features, config.width))
        if config.position == "learned":
            self.positions_SxD = table(rngs.params(), (config.positions, config.width))
        self.blocks = nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])
        self.norm = RMSNorm(config.width)
        self.head_DxO = table(rngs.params(), (config.width, config.outputs))

    def __call__(self, tokens: jax.Array, at: np.ndarray | None = None, features: jax.Array | None = None) -> jax.Array:
        """Logits `[episode, position, output]`, float32.

        Args:
            tokens: `[episode, position]`, integers.
            at: the positions whose logits are wanted, all by default. The last block then works at those alone, which
                takes a third off the time of a one-layer model read at every other position.
            features: `[episode, position, feature]`, added to the tokens' embeddings through a learned matrix.

        Raises:
            ValueError: the sequence is longer than the table of learned positions, or `at` names no position of it.
        """
        if at is not None and not (np.min(at) >= 0 and np.max(at) < tokens.shape[1]):
            raise ValueError(
                f"at holds {np.min(at)} … {np.max(at)}; the positions of the sequence are 0 … {tokens.shape[1] - 1}"
            )
        return self.answer(self.embed(tokens, features), at)

    def embed(self, tokens_BxS: jax.Array, features_BxSxF: jax.Array | None = None) -> jax.Array:
        """The residual stream before the first block, `[episode, position, width]`."""
        length = tokens_BxS.shape[1]
        # A product with one-hot rows: a gather would clamp a token outside the vocabulary to the nearest one.
        x_BxSxD = jax.nn.one_hot(tokens_BxS, self.config.vocabulary, dtype=jnp.float32) @ self.tokens_VxD[...]
        given = 0 if features_BxSxF is None else features_BxSxF.shape[-1]
        if given != self.config.features:
            raise ValueError(f"the model reads {self.config.features} features a position and was given {given}")
        if features_BxSxF is not None:
            x_BxSxD = x_BxSxD + features_BxSxF @ self.features_FxD[...]
        if self.config.position != "learned":
            return x_BxSxD
        if length > self.config.positions:
            raise ValueError(
                f"the sequence has {length} positions and the model learned {self.config.positions}; "
                "train with more positions, or with rotary or no positions to run at other lengths"
            )
        return x_BxSxD + self.positions_SxD[...][None, :length]

    def answer(self, x_BxSxD: jax.Array, at: np.ndarray | None = None) -> jax.Array:
        """Logits from embedded tokens; the way in for gradients with respect to inputs."""
        *early, last = self.blocks
        for block in early:
            x_BxSxD = block(x_BxSxD)
        return self.norm(last(x_BxSxD, at)) @ self.head_DxO[...]


class Block(nnx.Module):
    """x + Attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.attend_norm = RMSNorm(config.width)
        self.attend = Attention(config, rngs=rngs)
        self.think_norm = RMSNorm(config.width)
        self.think = MLP(config, rngs=rngs)

    def __call__(self, x_BxSxD: jax.Array, at: np.ndarray | None = None) -> jax.Array:
        x_BxLxD = pick(x_BxSxD, at) + self.attend(self.attend_norm(x_BxSxD), at)
        return x_BxLxD + self.think(self.think_norm(x_BxLxD))


class Attention(nnx.Module):
    """softmax(q·k / √K) v over the present and the past, in each head."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.heads = config.heads
        self.rotary = config.position == "rotary"
        # One array for queries, keys and values: Muon orthogonalises the three in one batch.
        self.project_3xDxD = matrix(rngs.params(), (3, config.width, config.width), axes=(1, 2))
        self.out_DxD = matrix(rngs.params(), (config.width, config.width))

    def __call__(self, x_BxSxD: jax.Array, at: np.ndarray | None = None) -> jax.Array:
        q_DxD, k_DxD, v_DxD = self.project_3xDxD[...]
        q_BxLxHxK = self.split(pick(x_BxSxD, at) @ q_DxD)
        k_BxSxHxK, v_BxSxHxK = self.split(x_BxSxD @ k_DxD), self.split(x_BxSxD @ v_DxD)
        positions_S = np.arange(x_BxSxD.shape[1])
        positions_L = positions_S if at is None else at
        if self.rotary:
            q_BxLxHxK, k_BxSxHxK = rotate(q_BxLxHxK, positions_L), rotate(k_BxSxHxK, positions_S)

        scores_BxHxLxS = jnp.einsum("blhk,bshk->bhls", q_BxLxHxK, k_BxSxHxK) * q_BxLxHxK.shape[-1] ** -0.5
        past_LxS = positions_S[None, :] <= positions_L[:, None]
        attention_BxHxLxS = jax.nn.softmax(jnp.where(past_LxS[None, None], scores_BxHxLxS, -jnp.inf), axis=-1)
        mixed_BxLxHxK = jnp.einsum("bhls,bshk->blhk", attention_BxHxLxS, v_BxSxHxK)

        seen = {"query": q_BxLxHxK, "key": k_BxSxHxK, "value": v_BxSxHxK, "attention": attention_BxHxLxS}
        for name, array in seen.items():
            self.sow(
                nnx.Intermediate, name, array, capture_noop=True, reduce_fn=lambda _, new: new, init_fn=lambda: None
            )
        return mixed_BxLxHxK.reshape(*mixed_BxLxHxK.shape[:2], -1) @ self.out_DxD[...]

    def split(self, x_BxLxD: jax.Array) -> jax.Array:
        """Width into heads."""
        return x_BxLxD.reshape(*x_BxLxD.shape[:2], self.heads, -1)


class MLP(nnx.Module):
    """gelu(x U) V, or (silu(x G) * x U) V: the same at every position."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        hidden = config.mlp_ratio * config.width
        self.gated = config.activation == "swiglu"
        self.up_DxF = matrix(rngs.params(), (config.width, hidden))
        if self.gated:
            self.gate_DxF = matrix(rngs.params(), (config.width, hidden))
        self.down_FxD = matrix(rngs.params(), (hidden, config.width))

    def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
        h_BxLxF = x_BxLxD @ self.up_DxF[...]
        h_BxLxF = jax.nn.silu(x_BxLxD @ self.gate_DxF[...]) * h_BxLxF if self.gated else jax.nn.gelu(h_BxLxF)
        return h_BxLxF @ self.down_FxD[...]


class RMSNorm(nnx.Module):
    """x / √mean(x²), times a learned gain per channel."""

    def __init__(self, width: int):
        self.gain_D = ones((width,))

    def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
        mean_square_BxLx1 = jnp.mean(jnp.square(x_BxLxD), axis=-1, keepdims=True)
        return x_BxLxD * jax.lax.rsqrt(mean_square_BxLx1 + 1e-6) * self.gain_D[...][None, None]


def pick(x_BxSxD: jax.Array, at: np.ndarray | None) -> jax.Array:
    """The wanted positions."""
    return x_BxSxD if at is None else x_BxSxD[:, at]


def rotate(x_BxLxHxK: jax.Array, positions_L: np.ndarray, *, slowest: float = 10_000.0) -> jax.Array:
    """Turns pair i of each head by position * slowest^(-i / pairs): scores then depend on distances only."""
    pairs = x_BxLxHxK.shape[-1] // 2
    angle_LxP = positions_L[:, None] * slowest ** (-np.arange(pairs) / pairs)[None]
    cos_1xLx1xP, sin_1xLx1xP = (f(angle_LxP).astype(np.float32)[None, :, None] for f in (np.cos, np.sin))
    first, second = x_BxLxHxK[..., :pairs], x_BxLxHxK[..., pairs:]
    return jnp.concatenate(
        [first * cos_1xLx1xP - second * sin_1xLx1xP, first * sin_1xLx1xP + second * cos_1xLx1xP], axis=-1
    )
