r"""The referee: exact laws of a tiny tunnel, by the definition of conditional probability and plain loops.

With h ranging over every joint value of the latents, c the context and x the stream,

    p(x_t = v | x_<t, c)  is proportional to  sum_h p(h, c) prod_{s<t} p(x_s | h, x_<s) p(x_t = v | h, x_<t),

and every term of every sum is one run of the program, under NumPyro's own handlers, with a value written at every site.
Factors are multiplied as probabilities and sums are exactly rounded (`math.fsum`). No code is shared with the engines, which
are judged by it: no support index, no log-space sum, no reuse of a run for another symbol.

The factors of latents that a scan draws after the step in question sum to one and are left out; so is everything after a
factor of zero, since the program need not state any law there (an urn with minus one black balls).
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from numpyro import handlers

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.program import double_precision

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel

# A run takes about 0.1 ms, and a predictive takes one for every hypothesis, step and symbol.
MOST_HYPOTHESES = 5_000

Factors = dict[str, np.ndarray]


def brute_force_predictive(
    tunnel: "WindTunnel", episodes: "Episodes", site: str | None = None, visible: Any = None
) -> np.ndarray:
    """The law of a site at every step, as `Oracle.predictive` defines it.

    Args:
        tunnel: with at most `MOST_HYPOTHESES` joint values of its latents.
        episodes: what happened; latents are ignored.
        site: a finite stream site, or a latent one; the predicted one by default. Of several draws at a step, the symbols are
            their joint values, the first draw running fastest.
        visible: bool `[step, step]`: whether step s's likelihood factors are used at t; all earlier steps by default.

    Returns:
        Probabilities, float64 `[episode, step, symbol]`; rows of zeros where the evidence is impossible.

    Raises:
        TunnelError: too many hypotheses, a site without a finite support, or a law that is NaN.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=2, points=3)
        >>> brute_force_predictive(coin, coin.episodes(stream={"flip": np.array([[1, 0]])}))[0, 1].round(4).tolist()
        [0.1667, 0.8333]
    """
    site = tunnel.predict if site is None else site
    target = _finite_site(tunnel, site)
    if target.role == "latent":
        posterior = brute_force_posterior(tunnel, episodes, site, visible)
        return posterior if target.per_step else posterior[:, 1:]
    referee, steps, episodes = Referee(tunnel, visible), tunnel.length, episodes.to_numpy()
    batch = target.batch_shape[1:]
    # Of several draws at a step, their joint values; the last place of a product runs fastest, the first draw should.
    values_at_once = [
        target.support[np.array(places[::-1], int).reshape(batch)]
        for places in itertools.product(range(len(target.support)), repeat=math.prod(batch))
    ]
    table = np.zeros((len(episodes), steps, len(values_at_once)))
    for episode, step, symbol in np.ndindex(*table.shape):
        observed = referee.observed(episodes, episode)
        observed[site][step] = values_at_once[symbol]
        table[episode, step, symbol] = math.fsum(
            referee.weight(referee.factors({**values, **observed}), step, site) for values, _ in referee.hypotheses()
        )
    return _normalised(table)


def brute_force_posterior(tunnel: "WindTunnel", episodes: "Episodes", site: str, visible: Any = None) -> np.ndarray:
    """The law of a latent site, as `Oracle.posterior` defines it.

    Args:
        tunnel: with at most `MOST_HYPOTHESES` joint values of its latents.
        episodes: what happened.
        site: a latent site; its symbols are the joint values of its draws, the first draw running fastest.
        visible: bool `[step, step]`, see `brute_force_predictive`.

    Returns:
        Probabilities, float64 `[episode, step, symbol]` for a latent of every step, `[episode, step + 1, symbol]` for a
        static one (the empty prefix first); rows of zeros where the evidence is impossible.

    Raises:
        TunnelError: as `brute_force_predictive`, or the site is not latent.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=1, points=3)
        >>> brute_force_posterior(coin, coin.episodes(stream={"flip": np.array([[1]])}), "bias")[0, 1].round(4).tolist()
        [0.0, 0.3333, 0.6667]
    """
    target = _finite_site(tunnel, site)
    if target.role != "latent":
        raise TunnelError(f"site {site!r} is not latent, so it has no posterior; use brute_force_predictive")
    referee, steps = Referee(tunnel, visible), tunnel.length
    draws = math.prod(target.batch_shape[1:] if target.per_step else target.batch_shape)
    terms: dict[tuple[int, int, int], list[float]] = {}
    rows, episodes = steps if target.per_step else steps + 1, episodes.to_numpy()
    for episode, (values, digits) in itertools.product(range(len(episodes)), list(referee.hypotheses())):
        factors = referee.factors({**values, **referee.observed(episodes, episode)})
        for row in range(rows):
            own = digits[site][row] if target.per_step else digits[site]
            symbol = sum(int(digit) * len(target.support) ** place for place, digit in enumerate(np.ravel(own)))
            weight = referee.weight(factors, row if target.per_step else row - 1)
            terms.setdefault((episode, row, symbol), []).append(weight)
    table = np.zeros((len(episodes), rows, len(target.support) ** draws))
    for place, weights in terms.items():
        table[place] = math.fsum(weights)
    return _normalised(table)


def brute_force_log_evidence(tunnel: "WindTunnel", episodes: "Episodes") -> np.ndarray:
    """Log-probability (nats) of the whole stream given the context, float64 `[episode]`; -inf where it is impossible.

    Raises:
        TunnelError: as `brute_force_predictive`.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=2, points=3)
        >>> np.exp(brute_force_log_evidence(coin, coin.episodes(stream={"flip": np.array([[1, 0]])}))).round(6).tolist()
        [0.083333]
    """
    referee = Referee(tunnel, None)
    out = np.full(len(episodes), -np.inf)
    for episode in range(len(episodes)):
        observed = referee.observed(episodes, episode)
        runs = [referee.factors({**values, **observed}) for values, _ in referee.hypotheses()]
        joint = math.fsum(referee.weight(factors, tunnel.length - 1) for factors in runs)
        context = 1.0
        if tunnel.reading.named("context"):
            certain = {name: np.ones(tunnel.length) for name in tunnel.reading.named("stream")}
            context = math.fsum(referee.weight({**factors, **certain}, tunnel.length - 1) for factors in runs)
        if joint > 0:
            out[episode] = math.log(joint) - math.log(context)
    return out


class Referee:
    """Runs of one program and the products of their factors.

    Args:
        tunnel: whose program.
        visible: which earlier steps' likelihood factors are multiplied, bool `[step, step]` or None for all.
    """

    def __init__(self, tunnel: "WindTunnel", visible: Any):
        self.tunnel, self.sites = tunnel, tunnel.reading.sites
        self.visible = np.tril(np.ones((tunnel.length,) * 2, bool), -1) if visible is None else np.asarray(visible)
        self.latents = {name: _finite_site(tunnel, name) for name in tunnel.reading.named("latent")}
        self.count = math.prod(len(site.support) ** math.prod(site.batch_shape) for site in self.latents.values())
        if self.count > MOST_HYPOTHESES:
            raise TunnelError(
                f"the latents {', '.join(map(repr, self.latents))} of {tunnel.name!r} have {self.count:,} joint values; brute force "
                f"takes at most {MOST_HYPOTHESES:,}: use a smaller configuration"
            )
        self.order = sorted(
            self.sites, key=lambda name: self.sites[name].per_step
        )  # drawn once first, then step by step
        self._factors = _compiled_factors(tunnel)

    def observed(self, episodes: "Episodes", episode: int) -> dict[str, np.ndarray]:
        """Context and stream of one episode, step axis first, free to be written on."""
        return {name: np.array(value[episode]) for name, value in {**episodes.context, **episodes.stream}.items()}

    def hypotheses(self) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """Every joint value of the latents, and the support index of every draw, step axis first."""
        shapes = {name: site.batch_shape for name, site in self.latents.items()}
        draws = [range(len(self.latents[name].support)) for name in shapes for _ in range(math.prod(shapes[name]))]
        for flat in itertools.product(*draws):
            rest, digits = list(flat), {}
            for name, shape in shapes.items():
                count = math.prod(shape)
                digits[name], rest = np.array(rest[:count], int).reshape(shape), rest[count:]
            yield {name: self.latents[name].support[index] for name, index in digits.items()}, digits

    def factors(self, values: dict[str, np.ndarray]) -> Factors:
        """One run: the probability (or density) of every site's value given the others, `[step]` or a scalar each."""
        own = {name: _in_own_layout(value, self.sites[name]) for name, value in values.items()}
        with double_precision():
            log_probs = self._factors(own)
        factors = {}
        for name, site in self.sites.items():
            log_prob = np.asarray(log_probs[name])
            if site.step_axis is not None:
                log_prob = np.moveaxis(log_prob, site.step_axis, 0)
            shape = (self.tunnel.length, -1) if site.per_step else (-1,)
            factors[name] = np.exp(log_prob).reshape(shape).prod(axis=-1)
        return factors

    def weight(self, factors: Factors, step: int, site: str | None = None) -> float:
        """Product of the factors of what is known at `step` (-1: before the first), multiplied in program order.

        Args:
            factors: of one run.
            step: the step of the prediction.
            site: the last site of the step that counts; all of them by default.
        """
        last = len(self.order) if site is None else self.order.index(site)
        product = 1.0
        for s in (None, *range(self.tunnel.length)):
            for name in self.order:
                if self.sites[name].per_step == (s is not None) and self._used(name, s, step, last):
                    product = _times(product, factors[name] if s is None else factors[name][s], self.sites[name])
        return product

    def _used(self, name: str, s: int | None, step: int, last: int) -> bool:
        role = self.sites[name].role
        if s is None or role == "context" or (role == "latent" and self.tunnel.reading.axis != "the scan"):
            return True
        if s == step:
            return self.order.index(name) <= last
        return s < step and (role == "latent" or bool(self.visible[step, s]))


def _in_own_layout(value: np.ndarray, site: "Site") -> np.ndarray:
    if site.step_axis is not None:
        return np.moveaxis(value, 0, site.step_axis)
    return value[0] if site.per_step else value


def _times(product: float, factor: np.ndarray, site: "Site") -> float:
    if product == 0:
        return 0.0
    if np.isnan(factor) or (site.constraint.is_discrete and factor > 1 + 1e-9):
        raise TunnelError(
            f"the program gives site {site.name!r} the probability {factor} where none is due: either a parameter of its law is out "
            "of range, or visible= hides a step that rules the hypothesis out and the program states no law after it"
        )
    return product * float(factor)


@functools.lru_cache(maxsize=64)
def _compiled_factors(tunnel: "WindTunnel") -> Callable[[dict[str, jax.Array]], dict[str, jax.Array]]:
    """Log-probabilities of every draw of every site, in the program's own layout."""

    def factors(values):
        seeded = handlers.seed(tunnel.configured_program, jax.random.key(0))
        trace = handlers.trace(handlers.substitute(seeded, data=values)).get_trace()
        out = {}
        for name, site in tunnel.reading.sites.items():
            log_prob = _log_prob(trace[name]["fn"], values[name])
            out[name] = jnp.broadcast_to(log_prob, site.shape[: len(site.shape) - site.event_dim])
        return out

    return jax.jit(factors)


def _log_prob(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    """The law's own `log_prob`; NumPyro clamps the probabilities of some laws, and those are written out as powers."""
    if isinstance(fn, dist.Independent):
        return _log_prob(fn.base_dist, value).sum(axis=tuple(range(-fn.reinterpreted_batch_ndims, 0)))
    if isinstance(fn, dist.ExpandedDistribution):
        return _log_prob(fn.base_dist, value)
    if isinstance(fn, dist.BernoulliProbs):
        return jnp.log(jnp.asarray(fn.probs) ** value * (1 - jnp.asarray(fn.probs)) ** (1 - value))
    if isinstance(fn, dist.BinomialProbs):
        n, p = jnp.asarray(fn.total_count), jnp.asarray(fn.probs)
        ways = jnp.exp(gammaln(n + 1.0) - gammaln(value + 1.0) - gammaln(n - value + 1.0))
        return jnp.where(fn.support(value), jnp.log(ways * p**value * (1 - p) ** (n - value)), -jnp.inf)
    return jnp.where(fn.support(value), fn.log_prob(value), -jnp.inf)


def _finite_site(tunnel: "WindTunnel", name: str) -> "Site":
    sites = tunnel.reading.sites
    if name not in sites:
        raise TunnelError(f"tunnel {tunnel.name!r} has no site {name!r}; {suggest(name, list(sites))}")
    if sites[name].support is None:
        raise TunnelError(f"site {name!r} has no finite support ({sites[name].constraint}); brute force lists values")
    return sites[name]


def _normalised(table: np.ndarray) -> np.ndarray:
    total = table.sum(axis=-1, keepdims=True)
    return np.divide(table, total, out=np.zeros_like(table), where=total > 0)
