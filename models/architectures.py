"""The register of architectures: the one place where another one is added.

An architecture is a frozen configuration with fields `vocabulary`, `positions`, `outputs` and, if it can read real numbers,
`features` (all from the tunnel's encoding), and a Flax module `Model(config, rngs=...)` that is a `SequenceModel`. Its parameters are
float32 `nnx.Param`s, matrices marked for Muon where they are created (see `parameters`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from flax import nnx

from ppl_tunnels.errors import suggest
from ppl_tunnels.models.transformer import Transformer, TransformerConfig

if TYPE_CHECKING:
    from ppl_tunnels.encoding import Encoding, Inputs

FROM_ENCODING = ("vocabulary", "positions", "outputs", "features")


class SequenceModel(Protocol):
    """What training and predictors ask of a model.

    Attributes:
        config: the frozen dataclass that it was built from.
    """

    config: Any

    def __call__(self, tokens: jax.Array, at: np.ndarray | None = None, features: jax.Array | None = None) -> jax.Array:
        """Tokens `[episode, position]`, features `[episode, position, feature]`: logits `[episode, position, output]`.

        Each position sees only itself and the past. With `at`, only the logits at those positions are computed. All float32.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One row of the register.

    Attributes:
        config: the frozen configuration class.
        model: the Flax module class.
        small: options of a model that two CPU cores train in minutes.
    """

    config: type
    model: Callable[..., SequenceModel]
    small: Mapping[str, Any]


ARCHITECTURES: dict[str, Architecture] = {
    "transformer": Architecture(TransformerConfig, Transformer, small={"layers": 1, "width": 32, "heads": 2}),
}


def architecture(name: str) -> Architecture:
    """The architecture of that name.

    Raises:
        ValueError: there is none; lists those there are.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"there is no architecture {name!r}; {suggest(name, list(ARCHITECTURES))}")
    return ARCHITECTURES[name]


def architecture_name(model: SequenceModel) -> str:
    """The name under which the model's class is registered.

    Raises:
        ValueError: it is not registered.
    """
    for name, entry in ARCHITECTURES.items():
        if type(model) is entry.model:
            return name
    raise ValueError(
        f"{type(model).__name__} is not a registered architecture ({', '.join(ARCHITECTURES)}); "
        "add it to ppl_tunnels.models.architectures.ARCHITECTURES"
    )


def configure(name: str, fields: Mapping[str, Any]) -> Any:
    """The configuration of an architecture from plain fields.

    Raises:
        ValueError: an unknown or missing field, or a value that the configuration refuses.
    """
    config = architecture(name).config
    known = {field.name: field for field in dataclasses.fields(config)}
    for field in fields:
        if field not in known:
            raise ValueError(f"{name} has no option {field!r}; {suggest(str(field), list(known))}")
    missing = [key for key, field in known.items() if field.default is dataclasses.MISSING and key not in fields]
    if missing:
        raise ValueError(f"{name}: {', '.join(missing)} not given")
    return config(**fields)


def build(name: str, encoding: "Encoding", options: Mapping[str, Any], *, key: jax.Array) -> SequenceModel:
    """A new model for an encoding, its weights drawn with `key`.

    Args:
        name: of the architecture.
        encoding: gives vocabulary, positions, outputs and features.
        options: fields of the configuration that differ from the `small` preset.
        key: a JAX key.

    Raises:
        ValueError: no such architecture or option, or one that the encoding decides.

    Example:
        >>> import jax, ppl_tunnels
        >>> encoding = ppl_tunnels.load_tunnel("coin").encoding()
        >>> build("transformer", encoding, {"layers": 2}, key=jax.random.key(0)).config.layers
        2
    """
    for field in FROM_ENCODING:
        if field in options:
            raise ValueError(f"{name}: {field} follows from the tunnel's encoding; leave it out of the options")
    shape = {
        "vocabulary": encoding.vocabulary_size,
        "positions": encoding.sequence_length,
        "outputs": encoding.outputs,
    }
    if encoding.features:
        shape["features"] = encoding.features
    entry = architecture(name)
    return entry.model(configure(name, {**shape, **entry.small, **options}), rngs=nnx.Rngs(params=key))


def logits(model: SequenceModel, inputs: "Inputs", at: np.ndarray | None = None) -> jax.Array:
    """What a model answers, `[episode, position, output]`; features are handed over only where there are any."""
    return model(inputs.tokens, at) if inputs.features is None else model(inputs.tokens, at, inputs.features)
