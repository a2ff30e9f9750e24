"""Episodes as what neural models read: tokens, real features beside them, and where each prediction is read.

By default every site has tokens of its own, and an episode is written

    [start] context… | step 1: site 1, site 2, … | step 2: …

Another arrangement, with markers and filler, is a `Layout`. No position up to a prediction holds its answer. What comes
after the last readout is left out. The encoding is plain data: it can be rebuilt from a checkpoint with no tunnel in reach.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.layouts import Item, Layout, items, read_after
from ppl_tunnels.site_codes import SiteCode, tuples

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes


class Inputs(NamedTuple):
    """What a model reads.

    Attributes:
        tokens: int32 `[episode, position]`.
        features: float32 `[episode, position, feature]`, zero where a position has none; None where no site has any.
    """

    tokens: jax.Array
    features: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How a model reads episodes. Made by `WindTunnel.encoding`.

    Attributes:
        sites: the sites that are written, context first, then stream, in program order.
        predicted: the site to be predicted, whose support is what a model's outputs stand for.
        layout: what stands where. Its markers are the first tokens.
    """

    sites: tuple[SiteCode, ...]
    predicted: SiteCode
    layout: Layout

    @property
    def length(self) -> int:
        """Steps."""
        return len(self.layout.steps)

    @functools.cached_property
    def markers(self) -> tuple[str, ...]:
        """The words that are no site; marker i is token i."""
        return self.layout.markers

    @property
    def vocabulary_size(self) -> int:
        """How many different tokens there are."""
        return max([len(self.markers), *(site.first + site.tokens for site in self.sites)])

    @property
    def features(self) -> int:
        """How many real features a position has."""
        return sum(site.features for site in self.sites)

    @property
    def outputs(self) -> int:
        """Size of the predicted site's support.

        Raises:
            TunnelError: it is not finite.
        """
        if self.predicted.kind != "value":
            raise TunnelError(
                f"predicted site {self.predicted.name!r} is not finite, so a model's outputs cannot stand for its values; discretise "
                "it, predict a finite site, or certify your own predictor with certify()"
            )
        return len(self.predicted.values)

    @property
    def values(self) -> np.ndarray:
        """What the outputs stand for, `[symbol, *event]`."""
        return np.asarray(self.predicted.values)

    @property
    def readout(self) -> np.ndarray:
        """The position whose output predicts each step, int `[step]`."""
        return self._plan[1]

    @property
    def sequence_length(self) -> int:
        """Positions, up to the last readout."""
        return int(self.readout.max()) + 1

    def encode(self, episodes: "Episodes") -> Inputs:
        """What a model reads of the episodes; jittable.

        Example:
            >>> import numpy as np, ppl_tunnels
            >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=3)
            >>> coin.encoding().encode(coin.episodes(stream={"flip": np.array([[1, 0, 1]])})).tokens.tolist()
            [[0, 2, 1]]
        """
        count, source = len(episodes), self._plan[0][: self.sequence_length]
        pool = [jnp.broadcast_to(jnp.arange(len(self.markers), dtype=jnp.int32)[None], (count, len(self.markers)))]
        columns = [jnp.zeros((count, len(self.markers), self.features), jnp.float32)]
        for site in self.sites:
            given = jnp.asarray((episodes.context if site.role == "context" else episodes.stream)[site.name])
            pool.append(site.write(given))
            if self.features:
                own = jnp.zeros((count, pool[-1].shape[1], self.features), jnp.float32)
                if site.features:
                    own = own.at[..., site.column : site.column + site.features].set(site.write_features(given))
                columns.append(own)
        tokens = jnp.concatenate(pool, axis=1)[:, source]
        return Inputs(tokens, jnp.concatenate(columns, axis=1)[:, source] if self.features else None)

    def targets(self, episodes: "Episodes") -> jax.Array:
        """The realised value of the predicted site, `[episode, step]`: an index into its support, int32.

        For a site that is not finite the value itself, float32 `[episode, step, *event]`.
        """
        name, role = self.predicted.name, self.predicted.role
        given = jnp.asarray((episodes.stream if role == "stream" else episodes.latent)[name])
        value = given.astype(jnp.float32) if self.predicted.kind == "number" else self.predicted.index(given)
        if role != "static latent":
            return value
        event = value.shape[1:] if self.predicted.kind == "number" else ()
        return jnp.broadcast_to(value.reshape(len(value), 1, *event), (len(value), self.length, *event))

    def decode(self, token: int) -> str:
        """A token in words.

        Example:
            >>> import ppl_tunnels
            >>> ppl_tunnels.load_tunnel("coin").encoding().decode(2)
            'flip = 1'
        """
        if 0 <= token < len(self.markers):
            return self.markers[token]
        said = [site.words(token) for site in self.sites if site.first <= token < site.first + site.tokens]
        if not said:
            raise TunnelError(
                f"token {token} is not in the vocabulary; tokens run from 0 to {self.vocabulary_size - 1}"
            )
        return " or ".join(said)

    def table(self) -> list[str]:
        """Every token in words, in order."""
        return [self.decode(token) for token in range(self.vocabulary_size)]

    def read(self, inputs: Inputs) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The episodes that were written: `encode` undone.

        Returns:
            Site to its values `[episode, (step,) draw, *event]`, and which of them are written at all, bool
            `[(step,) draw]`: what comes after the last readout, and answers left blank, are not.
        """
        tokens = np.asarray(inputs.tokens)
        features = None if inputs.features is None else np.asarray(inputs.features)
        source = self._plan[0][: self.sequence_length]
        position = np.full(len(self.markers) + sum(places.size for places in self._places.values()), -1)
        position[source] = np.arange(len(source))
        found = {}
        for site in self.sites:
            at = position[self._places[site.name]]
            own = np.where(at < 0, site.first, tokens[:, at])
            values = site.read(own, None if features is None else features[:, at])
            written = (at >= 0).reshape(*at.shape[:-1], site.draws, -1).all(axis=-1)
            found[site.name] = values, written
        return found

    @functools.cached_property
    def _places(self) -> dict[str, np.ndarray]:
        """Where a site's tokens stand in the row of markers and all sites' tokens, `[step, width]` or `[width]`."""
        places, free = {}, len(self.markers)
        for site in self.sites:
            shape = (self.length, site.width) if site.role == "stream" else (site.width,)
            places[site.name] = free + np.arange(math.prod(shape)).reshape(shape)
            free += math.prod(shape)
        return places

    @functools.cached_property
    def _plan(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each position's token stands in the row of markers and all sites' tokens, and the readouts."""
        source: list[np.ndarray] = []

        def write(parts: Sequence[Item], step: int | None = None) -> None:
            for item in parts:
                if item.site is None:
                    source.append(np.array([self.markers.index(item.marker or "")]))
                else:
                    places = self._places[item.site]
                    source.append(places if step is None else places[step])

        write(items(self.layout.header))
        readout = []
        for step, line in enumerate(self.layout.steps):
            parts = items(line)
            shown = read_after(parts, self.predicted.name)
            write(parts[:shown], step)
            readout.append(sum(map(len, source)) - 1)
            write(parts[shown:], step)
        return np.concatenate(source), np.array(readout)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same encoding back."""
        return {
            "sites": [dataclasses.asdict(site) for site in self.sites],
            "predicted": dataclasses.asdict(self.predicted),
            "layout": self.layout.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Encoding":
        """The encoding that `to_json` wrote.

        Raises:
            TunnelError: a field is missing or has the wrong type.
        """
        try:
            sites = [_site_from_json(site) for site in data["sites"]]
            return cls(tuple(sites), _site_from_json(data["predicted"]), Layout.from_json(data["layout"]))
        except (KeyError, TypeError, ValueError) as error:
            raise TunnelError(f"this is not an encoding written by Encoding.to_json: {error!r}") from error


def _site_from_json(data: dict[str, Any]) -> SiteCode:
    return SiteCode(**{**data, "event": tuple(data["event"]), "values": tuples(data["values"])})
