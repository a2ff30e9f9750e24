"""How the values of one site are written: a token a value, a token an element of a vector, or real numbers."""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.errors import TunnelError

if TYPE_CHECKING:
    from ppl_tunnels.program import Site

# Vectors with more values than this are written element by element: a table of tokens that long is no vocabulary.
_MOST_VALUES = 1_024


@dataclasses.dataclass(frozen=True)
class SiteCode:
    """One site's part of the encoding.

    Attributes:
        name: the site.
        role: "context", "stream", "latent" or "static latent" (latents are only ever answers: they are not written).
        draws: how many draws an episode has (a step, for a stream site).
        event: the shape of one draw.
        kind: "value": a token stands for one draw's value; "element": for one element of it; "number": a draw is one
            token that says which site it is, and real features.
        first: the first token of the range; 0 for a latent.
        values: "value": the support, `[symbol][*event]` as nested tuples; "element": what an element can be; "number": ().
        column: "number": the first of its feature columns.
    """

    name: str
    role: str
    draws: int
    event: tuple[int, ...]
    kind: str
    first: int
    values: tuple
    column: int = 0

    @property
    def tokens(self) -> int:
        """Size of its range of tokens."""
        return len(self.values) if self.kind != "number" else 1

    @property
    def features(self) -> int:
        """How many feature columns it takes."""
        return math.prod(self.event) if self.kind == "number" else 0

    @property
    def width(self) -> int:
        """Positions that its draws take, in an episode or, for a stream site, in a step."""
        return self.draws * (math.prod(self.event) if self.kind == "element" else 1)

    def write(self, given: jax.Array) -> jax.Array:
        """Tokens of values `[episode, (step,) *batch, *event]`, int32 `[episode, position of its own]`."""
        return (self.first + self.index(given)).reshape(given.shape[0], -1)

    def index(self, given: Any) -> jax.Array:
        """Which of `values` is given: int32 `[...]` for `[..., *event]`, or for every element."""
        given = jnp.asarray(given)
        if self.kind == "number":
            return jnp.zeros(given.shape[: given.ndim - len(self.event)], jnp.int32)
        if self.kind == "value" and self.event:
            support = np.asarray(self.values).reshape(len(self.values), -1)
            flat = given.reshape(*given.shape[: given.ndim - len(self.event)], 1, support.shape[1])
            return jnp.argmax((flat == jnp.asarray(support)).all(axis=-1), axis=-1).astype(jnp.int32)
        if self.values == tuple(range(len(self.values))):
            return given.astype(jnp.int32)
        # The nearest, so that 0.1 + 0.2 is 0.3; what is not near was refused when the episodes were made.
        first, spacing = self._grid
        if spacing:
            return jnp.clip(jnp.rint((given - first) / spacing), 0, len(self.values) - 1).astype(jnp.int32)
        return jnp.argmin(jnp.abs(given[..., None] - jnp.asarray(self.values)), axis=-1).astype(jnp.int32)

    def write_features(self, given: jax.Array) -> jax.Array:
        """Real features of values, float32 `[episode, position of its own, feature of its own]`."""
        return given.astype(jnp.float32).reshape(given.shape[0], -1, self.features)

    def read(self, tokens: np.ndarray, features: np.ndarray | None) -> np.ndarray:
        """Values `[..., *event]` of tokens `[..., width]`, and of features `[..., width, feature]` for numbers."""
        if self.kind == "number":
            assert features is not None, self.name
            own = features[..., self.column : self.column + self.features]
            return own.reshape(*tokens.shape[:-1], self.draws, *self.event)
        values = np.asarray(self.values)[tokens - self.first]
        return values.reshape(*tokens.shape[:-1], self.draws, *self.event)

    def words(self, token: int) -> str:
        """What a token of the range says."""
        if self.kind == "number":
            return f"{self.name} = real features {self.column} … {self.column + self.features - 1}"
        value = self.values[token - self.first]
        return f"{self.name} = {value:g}" if isinstance(value, float) else f"{self.name} = {value}"

    @functools.cached_property
    def _grid(self) -> tuple[float, float]:
        """(first, spacing) of equally spaced numbers; a spacing of 0 says that they are not."""
        values = np.asarray(self.values, float)
        if len(values) < 2 or not np.allclose(np.diff(values), values[1] - values[0], rtol=1e-9, atol=0):
            return 0.0, 0.0
        return float(values[0]), float(values[-1] - values[0]) / (len(values) - 1)


def site_code(site: "Site", *, features: bool, first: int, column: int) -> SiteCode:
    """How a site is written.

    Args:
        site: of the program.
        features: write real numbers even where there are tokens.
        first: the first token that is free.
        column: the first feature column that is free.

    Raises:
        TunnelError: real numbers of a site without any, as a one-hot of labels would be.
    """
    by_step = site.per_step and site.role != "context"  # context is written up front, all its steps together
    batch = site.batch_shape[1:] if by_step else site.batch_shape
    role = "static latent" if site.role == "latent" and not site.per_step else site.role
    common = {"name": site.name, "role": role, "draws": math.prod(batch), "event": site.event_shape}
    elements = None if site.elements is None else tuples(np.asarray(site.elements).tolist())
    if not features and site.support is not None and (len(site.support) <= _MOST_VALUES or not site.event_shape):
        values = tuples(np.asarray(site.support).tolist())
        return SiteCode(**common, kind="value", first=first, values=values)
    if not features and elements is not None:
        return SiteCode(**common, kind="element", first=first, values=elements)
    if site.support is not None and not site.event_shape and features and site.role == "stream":
        raise TunnelError(
            f"features={site.name!r} is a finite stream site, whose values are labels, not amounts; leave it as tokens"
        )
    return SiteCode(**common, kind="number", first=first, values=(), column=column)


def tuples(nested: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(tuples(item) for item in nested) if isinstance(nested, list | tuple) else nested
