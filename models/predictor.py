"""A trained model as a predictor: episodes in, one law per step out.

    q(x_t = v | prefix) = softmax(logits at the readout position of step t)_v

Logits are float32; they are cast to float64 before the softmax, so that rows are normalised to double precision and the
predictor can be compared with an exact oracle to more digits than its weights have.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ppl_tunnels.models.architectures import logits as answers
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.program import require_x64

if TYPE_CHECKING:
    from ppl_tunnels.encoding import Encoding
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.models.architectures import SequenceModel


@dataclasses.dataclass(frozen=True, eq=False)
class ModelPredictor:
    """A Flax model and the encoding through which it reads episodes.

    Attributes:
        model: a Flax module that keeps the contract of `SequenceModel`.
        encoding: how episodes become tokens, and where each prediction is read.
        name: how reports call it.
        targets: which targets trained it, "sampled" or "oracle"; None if it was not trained here.
        training: facts about the training: steps, batch, seed, learning rate and so on.
        tunnel: facts about the tunnel that it was trained in: name, source, configuration, fingerprint.

    Example:
        >>> import jax, ppl_tunnels
        >>> from ppl_tunnels.models.architectures import build
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=5)
        >>> model = build("transformer", coin.encoding(), {}, key=jax.random.key(0))
        >>> predictor = ModelPredictor(model, coin.encoding(), name="untrained")
        >>> predictor(coin.sample(jax.random.key(1), 3)).probs.shape
        (3, 5, 2)
    """

    model: "SequenceModel"
    encoding: "Encoding"
    name: str = "model"
    targets: str | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tunnel: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        config = getattr(self.model, "config", None)
        if config is None:
            raise ValueError(
                f"{type(self.model).__name__} has no `.config`, the frozen dataclass it was built from; "
                "a predictor needs it to say what it is"
            )
        # A snapshot: training the caller's model further must not change what this predictor says or its fingerprint.
        object.__setattr__(self, "model", nnx.clone(self.model))
        for given, wanted, what in (
            (config.vocabulary, self.encoding.vocabulary_size, "tokens"),
            (config.outputs, self.encoding.outputs, "outputs"),
            (getattr(config, "features", 0), self.encoding.features, "features"),
        ):
            if given != wanted:
                raise ValueError(
                    f"the model has {given} {what} and the encoding {wanted}; "
                    "use the encoding that the model was built for"
                )

    def __call__(self, episodes: "Episodes") -> Finite:
        """The model's law of the predicted site at every step.

        Args:
            episodes: context and stream; latents are ignored.

        Returns:
            Batch shape `[episode, step]`, log-probabilities (nats) float64, in the order of the site's support.

        Raises:
            ValueError: the episodes have another number of steps than the encoding reads.
        """
        steps = {int(values.shape[1]) for values in episodes.stream.values()}
        if steps != {self.encoding.length}:
            raise ValueError(
                f"the episodes have {', '.join(map(str, sorted(steps)))} steps and this predictor reads "
                f"{self.encoding.length}; draw them from the tunnel that it was trained in, or give it the encoding of "
                "that length"
            )
        require_x64(f"predictor {self.name!r}", episodes)
        with jax.enable_x64(True):
            return Finite(self._log_probs(episodes.without_latents()), self.encoding.values)

    @functools.cached_property
    def _log_probs(self) -> Callable[["Episodes"], jax.Array]:
        graph, weights = nnx.split(self.model)
        encoding = self.encoding

        @jax.jit
        def log_probs(weights: Any, episodes: "Episodes") -> jax.Array:
            logits = answers(nnx.merge(graph, weights), encoding.encode(episodes), encoding.readout)
            return jax.nn.log_softmax(logits.astype(jnp.float64), axis=-1)

        return functools.partial(log_probs, weights)

    @functools.cached_property
    def weights_hash(self) -> str:
        """Hex SHA-256 of every parameter's path, type, shape and bytes, in the order of the paths."""
        return hash_weights(self.model)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of weights, configuration and encoding: what the predictions depend on, and nothing else."""
        return fingerprint_of(self.weights_hash, self.model.config, self.encoding)


def fingerprint_of(weights_hash: str, config: Any, encoding: "Encoding") -> str:
    """Hex SHA-256 of what decides a model's predictions."""
    shape = {"config": type(config).__name__, **dataclasses.asdict(config)}
    facts = json.dumps([weights_hash, shape, encoding.to_json()], sort_keys=True, allow_nan=False)
    return hashlib.sha256(facts.encode()).hexdigest()


def hash_weights(model: "SequenceModel") -> str:
    """Hex SHA-256 of a model's parameters; equal hashes mean bit-identical weights.

    Example:
        >>> from flax import nnx
        >>> model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        >>> hash_weights(model) == hash_weights(nnx.clone(model))
        True
    """
    digest = hashlib.sha256()
    for path, array in sorted(named_weights(model).items()):
        digest.update(f"{path} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def named_weights(model: "SequenceModel") -> dict[str, np.ndarray]:
    """Every parameter as a NumPy array, under its path, such as "blocks/0/attend/out_DxD"."""
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {"/".join(map(str, path)): np.asarray(parameter[...]) for path, parameter in flat}
