"""Episodes as tokens for neural models, and where each prediction is read.

Every value of every site is a token of the site's own range. An episode is written

    [start] context… | step 1: site 1, site 2, … | step 2: …

and the prediction of a stream site is read at the position just before its own token, that of a latent one at the last
token of its step; so no position's input ever holds its own answer. Tokens after the last readout are left out. The
encoding is plain data: it can be rebuilt from a checkpoint with no tunnel in reach.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.errors import TunnelError

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel


@dataclasses.dataclass(frozen=True)
class SiteTokens:
    """One site's tokens: `first` … `first + len(values) - 1` stand for its values, in order.

    Attributes:
        name: the site.
        role: "context", "stream" or "latent" (a latent is only ever an answer; it has no tokens in the input).
        draws: how many tokens one episode (one step, for a stream site) takes.
        first: the first token of the range.
        values: the support, `[symbol][*event]` as nested tuples.
    """

    name: str
    role: str
    draws: int
    first: int
    values: tuple

    def index(self, given: Any) -> jax.Array:
        """Support indices of values `[..., *event]`, `[...]`."""
        support = jnp.asarray(np.asarray(self.values))
        given = jnp.asarray(given)
        if support.ndim == 1 and self.values == tuple(range(len(self.values))):
            return given.astype(jnp.int32)
        flat = given.reshape(*given.shape[: given.ndim - (support.ndim - 1)], 1, -1)
        return jnp.argmax((flat == support.reshape(len(self.values), -1)).all(axis=-1), axis=-1).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class TokenEncoding:
    """How a model reads episodes.

    Attributes:
        inputs: the sites whose values are written, context first, then stream, in program order.
        predicted: the site to be predicted, whose support is what a model's outputs stand for.
        length: steps.
        start: whether there is a start token (token 0).
    """

    inputs: tuple[SiteTokens, ...]
    predicted: SiteTokens
    length: int
    start: bool

    @property
    def vocabulary_size(self) -> int:
        """How many different tokens there are."""
        return int(self.start) + sum(len(site.values) for site in self.inputs)

    @property
    def outputs(self) -> int:
        """Size of the predicted site's support."""
        return len(self.predicted.values)

    @property
    def values(self) -> np.ndarray:
        """What the outputs stand for, `[symbol, *event]`."""
        return np.asarray(self.predicted.values)

    @functools.cached_property
    def readout(self) -> np.ndarray:
        """The position whose output predicts each step, int `[step]`."""
        before = int(self.start) + sum(site.draws for site in self.inputs if site.role == "context")
        widths = {site.name: site.draws for site in self.inputs if site.role == "stream"}
        width, offset = sum(widths.values()), 0
        for name, draws in widths.items():
            if name == self.predicted.name:
                break
            offset += draws
        return before + width * np.arange(self.length) + offset - 1

    @property
    def sequence_length(self) -> int:
        """Positions, up to the last readout."""
        return int(self.readout[-1]) + 1

    def encode(self, episodes: "Episodes") -> jax.Array:
        """Tokens, int32 `[episode, position]`; jittable.

        Example:
            >>> import numpy as np, ppl_tunnels
            >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=3)
            >>> coin.encoding().encode(coin.episodes(stream={"flip": np.array([[1, 0, 1]])})).tolist()
            [[0, 2, 1]]
        """
        count = len(episodes)
        header = [jnp.zeros((count, 1), jnp.int32)] if self.start else []
        steps = []
        for site in self.inputs:
            if site.role == "context":
                tokens = site.first + site.index(episodes.context[site.name])
                header.append(tokens.reshape(count, site.draws))
            else:
                tokens = site.first + site.index(episodes.stream[site.name])
                steps.append(tokens.reshape(count, self.length, site.draws))
        body = jnp.concatenate(steps, axis=2).reshape(count, -1)
        return jnp.concatenate([*header, body], axis=1)[:, : self.sequence_length]

    def targets(self, episodes: "Episodes") -> jax.Array:
        """The realised value of the predicted site as an index into its support, int32 `[episode, step]`."""
        if self.predicted.role == "stream":
            return self.predicted.index(episodes.stream[self.predicted.name])
        index = self.predicted.index(episodes.latent[self.predicted.name])
        if self.predicted.role == "latent":
            return index
        return jnp.broadcast_to(index.reshape(len(index), 1), (len(index), self.length))

    def decode(self, token: int) -> str:
        """A token in words.

        Example:
            >>> import ppl_tunnels
            >>> ppl_tunnels.load_tunnel("coin").encoding().decode(2)
            'flip = 1'
        """
        if self.start and token == 0:
            return "start"
        for site in self.inputs:
            if site.first <= token < site.first + len(site.values):
                return f"{site.name} = {site.values[token - site.first]}"
        raise TunnelError(f"token {token} is not in the vocabulary; tokens run from 0 to {self.vocabulary_size - 1}")

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same encoding back."""
        return {
            "inputs": [dataclasses.asdict(site) for site in self.inputs],
            "predicted": dataclasses.asdict(self.predicted),
            "length": self.length,
            "start": self.start,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TokenEncoding":
        """The encoding that `to_json` wrote.

        Raises:
            TunnelError: a field is missing or has the wrong type.
        """
        try:
            sites = [SiteTokens(**{**site, "values": _tuples(site["values"])}) for site in data["inputs"]]
            predicted = SiteTokens(**{**data["predicted"], "values": _tuples(data["predicted"]["values"])})
            return cls(inputs=tuple(sites), predicted=predicted, length=int(data["length"]), start=bool(data["start"]))
        except (KeyError, TypeError) as error:
            raise TunnelError(f"this is not an encoding written by TokenEncoding.to_json: {error!r}") from error


def token_encoding(tunnel: "WindTunnel", start: bool | None = None) -> TokenEncoding:
    """The encoding of a tunnel whose context and stream are finite.

    Args:
        tunnel: whose episodes.
        start: begin with a start token; by default only where the first prediction has no token before it.

    Raises:
        TunnelError: a site is continuous, or start=False leaves the first prediction without a position.
    """
    reading = tunnel.reading
    sites = reading.sites
    if reading.steps < 1:
        raise TunnelError(f"tunnel {tunnel.name!r} has no step, so there is nothing to predict; configure at least one")
    names = (*reading.named("context"), *reading.named("stream"))
    needs_start = tunnel.predict == names[0]
    if start is False and needs_start:
        raise TunnelError(
            f"start=False leaves no position from which {tunnel.predict!r} of the first step could be predicted; use a start token"
        )
    start = needs_start if start is None else start
    first = int(start)
    inputs = []
    for name in names:
        tokens = _site_tokens(sites[name], first)
        inputs.append(tokens)
        first += len(tokens.values)
    predicted = next((site for site in inputs if site.name == tunnel.predict), None)
    if predicted is None:
        predicted = _site_tokens(sites[tunnel.predict], 0)
        if not sites[tunnel.predict].per_step:
            predicted = dataclasses.replace(predicted, role="static latent")
        if predicted.draws != 1:
            raise TunnelError(
                f"predicted latent {tunnel.predict!r} is {predicted.draws} draws, whose joint law a softmax over one draw cannot "
                "express; predict a single draw"
            )
    return TokenEncoding(inputs=tuple(inputs), predicted=predicted, length=reading.steps, start=start)


def _site_tokens(site: "Site", first: int) -> SiteTokens:
    if site.support is None:
        raise TunnelError(
            f"site {site.name!r} is not finite ({site.constraint}), so it has no tokens; models that read or predict real numbers "
            "are not available yet: discretise it, or certify your own predictor with certify()"
        )
    by_step = site.per_step and site.role != "context"  # context is written up front, all its steps together
    batch = site.batch_shape[1:] if by_step else site.batch_shape
    return SiteTokens(site.name, site.role, int(np.prod(batch, dtype=int)), first, _tuples(site.support.tolist()))


def _tuples(nested: Any) -> Any:
    return tuple(_tuples(item) for item in nested) if isinstance(nested, list | tuple) else nested
