r"""A third referee, with no rounding at all: brute force in `fractions.Fraction`.

Where every site is Categorical or Bernoulli, its probabilities are read off the program as binary fractions, which they are
exactly, and divided by their exact sum. From there on

    p(x_t = v | x_<t, c) = sum_h p(h, c) prod_{s<t} p(x_s | h, x_<s) p(x_t = v | h, x_<t) / the same summed over v

is computed in rational arithmetic, so that whatever an oracle is off by is the oracle's own. One run of the program for every
joint value of the latents. No code is shared with the engines.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.program import double_precision

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of the latents: each takes about a millisecond of fractions.
MOST_HYPOTHESES = 2_000

Row = tuple[Fraction, ...]


class Rationals:
    """Exact laws of a tunnel's sites for some episodes.

    Args:
        tunnel: whose latent and stream sites are Categorical or Bernoulli. Finite context counts as evidence; other context is
            read only, so its law must not depend on the latents.
        episodes: what happened; latents are ignored.

    Raises:
        TunnelError: another law, or too many hypotheses.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=2, points=3)
        >>> Rationals(coin, coin.episodes(stream={"flip": np.array([[1, 0]])})).predictive("flip")[0, 1].tolist()
        [Fraction(1, 6), Fraction(5, 6)]
    """

    def __init__(self, tunnel: "WindTunnel", episodes: "Episodes"):
        self.tunnel, self.sites, self.steps = tunnel, tunnel.reading.sites, tunnel.length
        self.latents, self.count = tunnel.reading.named("latent"), len(episodes)
        self.counted = [name for name, site in self.sites.items() if site.support is not None or site.role != "context"]
        for name in self.counted:
            site = self.sites[name]
            if site.support is None or site.event_dim or not np.array_equal(site.support, np.arange(len(site.support))):
                raise TunnelError(
                    f"site {name!r} has the support {site.constraint}; fractions need Categorical or Bernoulli"
                )
        radix = [len(self.sites[n].support) for n in self.latents for _ in range(math.prod(self.sites[n].batch_shape))]
        if math.prod(radix) > MOST_HYPOTHESES:
            raise TunnelError(
                f"{tunnel.name!r} has {math.prod(radix):,} hypotheses; fractions take at most {MOST_HYPOTHESES:,}: use a smaller "
                "configuration"
            )
        self.hypotheses = [dict(self._split(flat)) for flat in itertools.product(*map(range, radix))]
        self.observed = {name: np.asarray(value) for name, value in {**episodes.context, **episodes.stream}.items()}
        self.probs = self._run()

    def predictive(self, site: str, visible: Any = None) -> np.ndarray:
        """The law of a stream site at every step: fractions, an object array `[episode, step, symbol]`.

        Rows of zeros where the evidence is impossible. See `Oracle.predictive`.

        Raises:
            TunnelError: not a stream site with one value at each step.
        """
        target = self.sites.get(site)
        if target is None or target.role != "stream" or target.batch_shape[1:]:
            raise TunnelError(f"{site!r} is no stream site to predict; {suggest(site, list(self.tunnel.stream))}")
        table = self._zeros(self.steps, len(target.support))
        for episode, step, number in self._cells(self.steps):
            weight = self._weight(episode, number, step, site, visible)
            if weight:
                table[episode, step] += weight * np.array(self._row(site, episode, number, step, 0), dtype=object)
        return _normalised(table)

    def posterior(self, site: str, visible: Any = None) -> np.ndarray:
        """The law of a latent site, as `Oracle.posterior` defines it: fractions `[episode, row, symbol]`.

        Raises:
            TunnelError: not a latent site.
        """
        if site not in self.latents:
            raise TunnelError(f"{site!r} is no latent; {suggest(site, list(self.latents))}")
        target = self.sites[site]
        draws = math.prod(target.batch_shape[1:] if target.per_step else target.batch_shape)
        rows = self.steps if target.per_step else self.steps + 1
        table = self._zeros(rows, len(target.support) ** draws)
        for episode, row, number in self._cells(rows):
            digits = self.hypotheses[number][site]
            own = np.ravel(digits[row] if target.per_step else digits)
            symbol = sum(int(digit) * len(target.support) ** place for place, digit in enumerate(own))
            step = row if target.per_step else row - 1
            table[episode, row, symbol] += self._weight(episode, number, step, None, visible)
        return _normalised(table)

    def _cells(self, rows: int) -> Iterator[tuple[int, int, int]]:
        return itertools.product(range(self.count), range(rows), range(len(self.hypotheses)))

    def _zeros(self, rows: int, symbols: int) -> np.ndarray:
        table = np.empty((self.count, rows, symbols), dtype=object)
        table[...] = Fraction(0)
        return table

    def _weight(self, episode: int, number: int, step: int, until: str | None, visible: Any) -> Fraction:
        """Product of the factors of what is known before a site of a step, in program order."""
        weight = Fraction(1)
        for at in (None, *range(self.steps)):
            for name in self.counted:
                if self.sites[name].per_step == (at is not None) and self._used(name, at, step, until, visible):
                    weight *= self._factor(name, episode, number, at)
                    if not weight:
                        return weight
        return weight

    def _used(self, name: str, at: int | None, step: int, until: str | None, visible: Any) -> bool:
        role, order = self.sites[name].role, list(self.sites)
        if at is None or role == "context" or (role == "latent" and self.tunnel.reading.axis != "the scan"):
            return True
        if at == step:
            return until is None or order.index(name) < order.index(until)
        return at < step and (role == "latent" or visible is None or bool(visible[step, at]))

    def _factor(self, name: str, episode: int, number: int, at: int | None) -> Fraction:
        """Probability of a site's own values in a run, all its draws of a step together."""
        values = self.hypotheses[number][name] if name in self.latents else self.observed[name][episode]
        product = Fraction(1)
        for draw, value in enumerate(np.ravel(values if at is None else values[at])):
            product *= self._row(name, episode, number, at or 0, draw)[int(value)]
        return product

    def _row(self, name: str, *place: int) -> Row:
        return _exact(tuple(self.probs[name][place].tolist()))

    def _split(self, flat: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
        for name in self.latents:
            shape = self.sites[name].batch_shape
            yield name, np.array(flat[: math.prod(shape)], int).reshape(shape)
            flat = flat[math.prod(shape) :]

    def _run(self) -> dict[str, np.ndarray]:
        """Probabilities as the program states them, `[episode, hypothesis, step or 1, draw, symbol]` (a coin's: of 1 alone)."""
        latents = {name: np.stack([each[name] for each in self.hypotheses]) for name in self.latents}

        def run(episode, number):
            values = {name: jnp.asarray(value)[episode] for name, value in self.observed.items()}
            values |= {
                name: jnp.asarray(self.sites[name].support)[jnp.asarray(latents[name])[number]] for name in latents
            }
            own = {name: _own_layout(value, self.sites[name]) for name, value in values.items()}
            seeded = handlers.seed(self.tunnel.configured_program, jax.random.key(0))
            trace = handlers.trace(handlers.substitute(seeded, data=own)).get_trace()
            return {name: _probabilities(trace[name]["fn"], self.sites[name]) for name in self.counted}

        with double_precision():
            over = jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(0, None))
            table = jax.jit(over)(jnp.arange(self.count), jnp.arange(len(self.hypotheses)))
            return {name: np.asarray(value) for name, value in table.items()}


def _own_layout(value: jax.Array, site: "Site") -> jax.Array:
    if site.step_axis is not None:
        return jnp.moveaxis(value, 0, site.step_axis)
    return value[0] if site.per_step else value


def _probabilities(fn: Any, site: "Site") -> jax.Array:
    """`[step or 1, draw, symbol]`."""
    while isinstance(fn, dist.ExpandedDistribution):
        fn = fn.base_dist
    if not isinstance(fn, dist.CategoricalProbs | dist.BernoulliProbs):
        raise TunnelError(
            f"site {site.name!r} has the law {type(fn).__name__}; fractions read the probs of Categorical or Bernoulli"
        )
    probs = jnp.asarray(fn.probs, float)
    probs = probs[..., None] if isinstance(fn, dist.BernoulliProbs) else probs
    probs = jnp.broadcast_to(probs, (*site.shape, probs.shape[-1]))
    if site.step_axis is not None:
        probs = jnp.moveaxis(probs, site.step_axis, 0)
    return probs.reshape(site.layout[0] if site.per_step else 1, -1, probs.shape[-1])


@functools.lru_cache(maxsize=100_000)
def _exact(probs: tuple[float, ...]) -> Row:
    """The same numbers as fractions that sum to one; a single one is that of 1."""
    given = [Fraction(each) for each in probs]
    own = given if len(given) > 1 else [1 - given[0], given[0]]
    return tuple(each / sum(own) for each in own)


def _normalised(table: np.ndarray) -> np.ndarray:
    totals = table.sum(axis=-1, keepdims=True)
    # Of objects: NumPy's types know none that are fractions.
    ones: Any = np.full(totals.shape, Fraction(1), dtype=object)
    return table / np.where(totals == 0, ones, totals)


def as_floats(table: np.ndarray) -> np.ndarray:
    """Fractions, each rounded once: float64 of the same shape.

    Example:
        >>> as_floats(np.array([Fraction(1, 3), Fraction(1)])).tolist()
        [0.3333333333333333, 1.0]
    """
    return np.vectorize(float, otypes=[float])(table)
