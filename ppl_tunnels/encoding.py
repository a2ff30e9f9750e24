"""Episodes as what neural models read: tokens, real features beside them, and where each prediction is read.

By default every site has tokens of its own, and an episode is written

    [start] context… | step 1: site 1, site 2, … | step 2: …

Another arrangement, with markers and filler, is a `Layout`. No position up to a prediction holds its answer. What comes
after the last readout is left out. The encoding is plain data: it can be rebuilt from a checkpoint with no tunnel in reach.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.layouts import Layout, check_layout, items, read_after
from ppl_tunnels.site_codes import SiteCode, site_code

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel

START = "start"


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
        position = np.full(self._pool_size, -1)
        source = self._plan[0][: self.sequence_length]
        position[source] = np.arange(len(source))
        found, start = {}, len(self.markers)
        for site in self.sites:
            steps = (self.length,) if site.role == "stream" else ()
            size = site.width * self.length if steps else site.width
            at = position[start : start + size].reshape(*steps, site.width)
            start += size
            own = np.where(at < 0, site.first, tokens[:, at])
            values = site.read(own, None if features is None else features[:, at])
            written = (at >= 0).reshape(*steps, site.draws, -1).all(axis=-1)
            found[site.name] = values, written
        return found

    @functools.cached_property
    def _pool_size(self) -> int:
        return len(self.markers) + sum(
            site.width * (self.length if site.role == "stream" else 1) for site in self.sites
        )

    @functools.cached_property
    def _plan(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each position's token comes from (markers, then every site's tokens, in one row), and the readouts."""
        starts, sites, free = {}, {site.name: site for site in self.sites}, len(self.markers)
        for site in self.sites:
            starts[site.name] = free
            free += site.width * (self.length if site.role == "stream" else 1)
        source: list[np.ndarray] = []

        def write(parts: Sequence[Any], step: int) -> None:
            for item in parts:
                if item.marker is not None:
                    source.append(np.array([self.markers.index(item.marker)]))
                else:
                    site = sites[item.site]
                    source.append(starts[item.site] + step * site.width + np.arange(site.width))

        write(items(self.layout.header), 0)
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


def make_encoding(
    tunnel: "WindTunnel",
    layout: Layout | str | None = None,
    *,
    start: bool | None = None,
    shared: Sequence[Sequence[str]] = (),
    features: Sequence[str] = (),
) -> Encoding:
    """See `WindTunnel.encoding`."""
    reading = tunnel.reading
    context, stream = reading.named("context"), reading.named("stream")
    names = (*context, *stream)
    arranged = _layout(tunnel, layout, start)
    shared = shared or arranged.shared
    for name in (*features, *(name for group in shared for name in group)):
        if name not in names:
            raise TunnelError(f"{name!r} is not written, so it has no tokens; {suggest(name, list(names))}")
    check_layout(arranged, context=context, stream=stream, predict=tunnel.predict, scored=tunnel.scored.tolist())
    first, column, codes = len(arranged.markers), 0, {}
    for name in names:
        code = site_code(reading.sites[name], features=name in features, first=first, column=column)
        partner = next((codes[other] for group in shared if name in group for other in group if other in codes), None)
        if partner is not None:
            if (code.kind, code.values) != (partner.kind, partner.values) or code.kind == "number":
                raise TunnelError(
                    f"shared={name!r} and {partner.name!r} cannot share tokens: their values differ; give each its own range"
                )
            code = dataclasses.replace(code, first=partner.first)
        else:
            first += code.tokens
        column += code.features
        codes[name] = code
    predicted = codes.get(tunnel.predict)
    if predicted is None or predicted.kind == "element":
        predicted = site_code(reading.sites[tunnel.predict], features=False, first=0, column=0)
        if predicted.kind == "element":
            predicted = dataclasses.replace(predicted, kind="number", values=())
        if predicted.draws != 1:
            raise TunnelError(
                f"predicted latent {tunnel.predict!r} is {predicted.draws} draws, whose joint law a softmax over one draw cannot "
                "express; predict a single draw"
            )
    encoding = Encoding(tuple(codes.values()), predicted, arranged)
    if encoding.readout.min() < 0:
        raise TunnelError(
            f"start=False leaves no position from which {tunnel.predict!r} of the first step could be predicted; use a start token"
        )
    return encoding


def _layout(tunnel: "WindTunnel", layout: Layout | str | None, start: bool | None) -> Layout:
    reading = tunnel.reading
    if isinstance(layout, str):
        if layout not in tunnel.layouts:
            known = suggest(layout, list(tunnel.layouts)) if tunnel.layouts else "it names none; give a Layout"
            raise TunnelError(f"tunnel {tunnel.name!r} has no layout {layout!r}; {known}")
        layout = tunnel.layouts[layout](**tunnel.configuration)
    if layout is None:
        header = " ".join(f"{{{name}}}" for name in reading.named("context"))
        line = " ".join(f"{{{name}}}" for name in reading.named("stream"))
        layout = Layout(header, (line,) * reading.steps)
        first = (*reading.named("context"), *reading.named("stream"))[0]
        start = tunnel.predict == first if start is None else start
    return dataclasses.replace(layout, header=f"{START} {layout.header}".strip()) if start else layout


def _site_from_json(data: dict[str, Any]) -> SiteCode:
    return SiteCode(**{**data, "event": tuple(data["event"]), "values": _tuples(data["values"])})


def _tuples(nested: Any) -> Any:
    return tuple(_tuples(item) for item in nested) if isinstance(nested, list | tuple) else nested
