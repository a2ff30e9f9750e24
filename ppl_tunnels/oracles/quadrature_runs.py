"""Runs of a tiny program at every point of a grid, for a whole batch of episodes: what `quadrature` adds up.

A run writes a value at every site and reads off the logarithm of every factor, under NumPyro's own handlers; the value of a
continuous latent is chosen within the run, from its coordinate and the law that the program states there. A *question* is a
run in which one stream value is replaced by another. One compiled function answers for any episode, point and question.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlog1py
from numpyro import handlers
from numpyro.primitives import Messenger

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.quadrature_grid import place, ranges
from ppl_tunnels.program import double_precision

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel

# Runs answered at once, at most: bounds memory.
_AT_ONCE = 1 << 13


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of the grid: a draw of a finite latent, or a coordinate of a continuous one.

    Attributes:
        site: whose.
        count: how many points lie on it.
        low: the first coordinate of a continuous one, which come every `spacing`; 0 for a finite one.
    """

    site: str
    count: int
    low: float = 0.0
    spacing: float = 0.0


class _Place(Messenger):
    """Gives continuous latents their values, from coordinates and the law at hand."""

    def __init__(self, coordinates: Mapping[str, jax.Array]):
        super().__init__(None)
        self.coordinates, self.log_slopes = coordinates, {}

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.coordinates:
            name = msg["name"]
            msg["value"], self.log_slopes[name] = place(msg["fn"], self.coordinates[name])


class Runs:
    """Factors of a program at every point of a grid.

    Args:
        tunnel: whose program.
        episodes: what happened; latents are ignored.
        points: grid points at most, over all continuous latents.
        held: real latents that are no axis of the grid (see `gaussian_referee`): their values, all of them in one flat vector,
            are chosen by a *probe*, a row of `probes`.

    Attributes:
        axes: of the grid; the last runs fastest.
        laws: the law of every site in some run.
        columns: which factor each column holds: (site, step or None), in program order, those drawn once first.
    """

    def __init__(self, tunnel: "WindTunnel", episodes: "Episodes", *, points: int, held: tuple[str, ...] = ()):
        self.tunnel, self.sites, self.held = tunnel, tunnel.reading.sites, held
        self.observed = {name: np.asarray(value) for name, value in {**episodes.context, **episodes.stream}.items()}
        self.episodes = len(episodes)
        self.laws = _some_laws(tunnel)
        self.grid = {}
        for name in tunnel.reading.named("latent"):
            site = self.sites[name]
            if site.support is None and name not in held:
                if site.per_step and tunnel.reading.axis == "the scan":
                    raise TunnelError(f"quadrature puts no grid on latent {name!r}, which a scan draws at every step")
                self.grid[name] = ranges(self.laws[name], site.shape)
        self.axes = tuple(self._axes(points))
        self.shape = tuple(axis.count for axis in self.axes)
        self.nodes = math.prod(self.shape)
        self.spacing = math.prod(axis.spacing or 1.0 for axis in self.axes)
        once = [(name, None) for name, site in self.sites.items() if not site.per_step]
        each = [(name, step) for step in range(tunnel.length) for name, site in self.sites.items() if site.per_step]
        self.columns: list[tuple[str, int | None]] = [*once, *each]
        size = sum(math.prod(self.sites[name].shape) for name in held)
        # Nothing, one unit vector after another, and a point by which linearity is checked.
        self.probes = np.concatenate([np.zeros((1, size)), np.eye(size), np.linspace(-1.3, 1.7, size)[None]])

    def _axes(self, points: int) -> Iterator[Axis]:
        dimensions = sum(len(each) for each in self.grid.values())
        along = min(201, max(5, int(points ** (1 / max(dimensions, 1))) // 2 * 2 + 1))
        for name in self.tunnel.reading.named("latent"):
            site = self.sites[name]
            if name in self.grid:
                for low, high in self.grid[name]:
                    yield Axis(name, along, low, (high - low) / (along - 1))
            elif name not in self.held:
                yield from [Axis(name, len(site.support))] * math.prod(site.batch_shape)

    def digits(self, name: str) -> np.ndarray:
        """Index along every axis of a site, `[node, axis]`."""
        index = np.indices(self.shape).reshape(len(self.shape), self.nodes)
        return index[[place for place, axis in enumerate(self.axes) if axis.site == name]].T

    def answers(
        self, questions: Mapping[str, np.ndarray], moments: Callable[[dict], dict[str, jax.Array]] | None = None
    ) -> dict[str, np.ndarray]:
        """Every run that is wanted.

        Args:
            questions: stream site to values that stand in for the realised one, `[episode, step, value, *event]`.
            moments: further quantities read off the trace of every run as it happened.

        Returns:
            Of runs as it happened, `[episode, node, probe, …]`: "factors" `[…, column]` in nats, "values" `[…, flat]` of the
            continuous latents on the grid, and the moments; of runs under a question, NAME `[episode, node, step, value]`:
            the factor of the site asked about (the first probe's).
        """
        asked = [(name, jnp.asarray(value)) for name, value in questions.items()]
        observed, probes = {name: jnp.asarray(value) for name, value in self.observed.items()}, jnp.asarray(self.probes)

        def run(episode, node, probe, site, step, choice):
            values = {name: value[episode] for name, value in observed.items()}
            answer = 0
            for place, (name, stands_in) in enumerate(asked):
                replaced = values[name].at[step].set(stands_in[episode, step, choice].astype(values[name].dtype))
                values[name] = jnp.where(site == place, replaced, values[name])
            trace, slopes = self._trace(values, node, probes[probe])
            factors = {name: self._log_prob(trace[name], self.sites[name], slopes.get(name)) for name in self.sites}
            for place, (name, _) in enumerate(asked):
                answer = jnp.where(site == place, factors[name][step], answer)
            columns = [factors[name] if at is None else factors[name][at] for name, at in self.columns]
            placed = [jnp.ravel(step_first(trace[name]["value"], self.sites[name])) for name in self.grid]
            values = jnp.concatenate([*placed, jnp.zeros(0)])
            return answer, {"factors": jnp.stack(columns), "values": values, **(moments(trace) if moments else {})}

        with double_precision():
            compiled = jax.jit(jax.vmap(run))
            base = self.episodes, self.nodes, len(self.probes) if self.held else 1
            asking = {name: (self.episodes, self.nodes, *values.shape[1:3]) for name, values in questions.items()}
            # One size of all chunks means one compilation.
            largest = max(math.prod(shape) for shape in (base, *asking.values()))
            size = min(_AT_ONCE, 1 << (largest - 1).bit_length())
            out = _over(compiled, size, base, lambda e, n, p: (e, n, p, -1, 0, 0))[1]
            for place, (name, shape) in enumerate(asking.items()):
                out[name] = _over(compiled, size, shape, lambda e, n, t, v, place=place: (e, n, 0, place, t, v))[0]
        return out

    def _trace(self, values: dict[str, jax.Array], node: jax.Array, held: jax.Array) -> tuple[dict, dict]:
        digits = []
        for axis in reversed(self.axes):
            digits.append(node % axis.count)
            node = node // axis.count
        coordinates, on_axes = {}, list(zip(self.axes, reversed(digits), strict=True))
        for name in {axis.site: None for axis in self.axes}:
            own = [(axis, digit) for axis, digit in on_axes if axis.site == name]
            if name in self.grid:
                coordinates[name] = jnp.stack([axis.low + axis.spacing * digit for axis, digit in own])
            else:
                site = self.sites[name]
                values[name] = jnp.asarray(site.support)[
                    jnp.stack([digit for _, digit in own]).reshape(site.batch_shape)
                ]
        for name in self.held:
            size = math.prod(self.sites[name].layout)
            values[name], held = held[:size].reshape(self.sites[name].layout), held[size:]
        own = {name: _own_layout(value, self.sites[name]) for name, value in values.items()}
        seeded = handlers.seed(self.tunnel.configured_program, jax.random.key(0))
        placed = _Place(coordinates)
        with placed:
            trace = handlers.trace(handlers.substitute(seeded, data=own)).get_trace()
        return trace, placed.log_slopes

    def _log_prob(self, entry: dict[str, Any], site: "Site", log_slope: jax.Array | None) -> jax.Array:
        log_prob = jnp.broadcast_to(
            _log_prob(entry["fn"], entry["value"]), site.shape[: len(site.shape) - site.event_dim]
        )
        slope = 0.0 if log_slope is None else log_slope
        if not site.per_step:
            return jnp.sum(log_prob) + slope
        log_prob = step_first(log_prob, site)
        # Latents of a plate count as a whole, so the slope may stand at any step.
        return log_prob.reshape(self.tunnel.length, -1).sum(axis=1).at[0].add(slope)


def _over(compiled: Callable, size: int, shape: tuple[int, ...], arguments: Callable) -> Any:
    """Answers for every index of a shape, in chunks of one size."""
    total, chunks = math.prod(shape), []
    for start in range(0, total, size):
        index = np.minimum(np.arange(start, start + size), total - 1)
        given = np.broadcast_arrays(*arguments(*np.unravel_index(index, shape)))
        chunks.append(jax.tree.map(np.asarray, compiled(*given)))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total].reshape(*shape, *parts[0].shape[1:]), *chunks)


def _some_laws(tunnel: "WindTunnel") -> dict[str, dist.Distribution]:
    with double_precision():
        trace = handlers.trace(handlers.seed(tunnel.configured_program, jax.random.key(0))).get_trace()
    return {name: entry["fn"] for name, entry in trace.items() if entry["type"] == "sample"}


def step_first(value: jax.Array, site: "Site") -> jax.Array:
    """The program's own value (or anything laid out like it) with the step axis first."""
    return value if site.step_axis is None else jnp.moveaxis(value, site.step_axis, 0)


def _own_layout(value: jax.Array, site: "Site") -> jax.Array:
    if site.step_axis is not None:
        return jnp.moveaxis(value, 0, site.step_axis)
    return value[0] if site.per_step else value


def _log_prob(fn: Any, value: jax.Array) -> jax.Array:
    """The law's own `log_prob`; the probabilities that NumPyro clamps are written out as products."""
    if isinstance(fn, dist.Independent):
        return _log_prob(fn.base_dist, value).sum(axis=tuple(range(-fn.reinterpreted_batch_ndims, 0)))
    if isinstance(fn, dist.ExpandedDistribution):
        return _log_prob(fn.base_dist, value)
    if isinstance(fn, dist.BernoulliProbs):
        return jnp.log(jnp.where(value == 1, fn.probs, 1 - jnp.asarray(fn.probs)))
    if isinstance(fn, dist.BinomialProbs):
        n, p = jnp.asarray(fn.total_count), jnp.asarray(fn.probs)
        ways = jnp.exp(gammaln(n + 1.0) - gammaln(value + 1.0) - gammaln(n - value + 1.0))
        return jnp.log(ways * p**value * (1 - p) ** (n - value))
    if isinstance(fn, dist.GeometricProbs):
        return jnp.log(fn.probs) + xlog1py(value, -jnp.asarray(fn.probs))
    return jnp.asarray(fn.log_prob(value))
