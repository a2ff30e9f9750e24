r"""A second referee: exact laws of a tiny tunnel whose latents may be continuous, by the definition of conditional probability.

With h ranging over the points of a grid, w(h) the volume around a point, c the context and x the stream,

    p(x_t = v | x_<t, c) = sum_h w(h) p(h, c) prod_{s<t} p(x_s | h, x_<s) p(x_t = v | h, x_<t) / the same without x_t.

Finite latents are exact: their values are points of volume one. Continuous ones lie on an equally spaced grid in a coordinate
in which the sum converges faster than any power of the spacing (`quadrature_grid`). Priors, likelihoods and the volume's
Jacobian are the program's own, run under NumPyro's handlers (`quadrature_runs`). No code is shared with the engines.

Every answer comes with a bound on its error, found by leaving out every other point of every continuous axis: doubling the
spacing of a converging sum costs at least the square root of its error, and a power 3/2 is claimed. What lies beyond the faces
of the grid cannot be seen: it is taken to decay from point to point no slower than between the last two, which in these
coordinates it does the faster the farther out, and all of that is added.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.oracles.quadrature_runs import Runs

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel

# Sums of products of a few dozen factors, in double precision.
ROUNDING = 2e-13
# From point to point beyond the grid; where even the last two decay more slowly, a hundred times the last counts.
_SLOWEST_DECAY = 0.99


class Estimate(NamedTuple):
    """A quantity and a bound on its error, arrays of one shape.

    Attributes:
        value: the quantity.
        error: what the value may be off by.
    """

    value: np.ndarray
    error: np.ndarray


class Quadrature:
    """Laws of a tunnel's sites for some episodes; every run is made once, whatever masks are asked about.

    Args:
        tunnel: with few latents: every finite one multiplies the grid by its values, every continuous coordinate by dozens.
        episodes: what happened; latents are ignored.
        values: for a stream site without finite support, the values at which its density is wanted,
            `[episode, step, value, *event]`; the realised ones by default.
        points: grid points at most, over all continuous latents.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=2, points=3)
        >>> referee = Quadrature(coin, coin.episodes(stream={"flip": np.array([[1, 0]])}))
        >>> referee.predictive("flip").value[0, 1].round(4).tolist()
        [0.1667, 0.8333]
    """

    def __init__(
        self,
        tunnel: "WindTunnel",
        episodes: "Episodes",
        values: dict[str, np.ndarray] | None = None,
        points: int = 20_000,
    ):
        self.tunnel, self.sites = tunnel, tunnel.reading.sites
        self.runs = self._prepared(episodes, points)
        self.questions = {}
        for name in tunnel.reading.named("stream"):
            site, realised = self.sites[name], np.asarray(episodes.stream[name])
            if site.batch_shape[1:]:
                continue  # several values at each step: evidence, but nothing to be asked about
            if site.support is not None:
                support = np.asarray(site.support)
                self.questions[name] = np.broadcast_to(support, (*realised.shape[:2], *support.shape))
            else:
                self.questions[name] = (values or {}).get(name, realised[:, :, None])
        self.answers = self._asked()
        self.factors = self.answers["factors"][:, :, 0]
        self.log_volume = np.log(self.runs.spacing)

    def _prepared(self, episodes: "Episodes", points: int) -> Runs:
        return Runs(self.tunnel, episodes, points=points)

    def _asked(self) -> dict[str, np.ndarray]:
        return self.runs.answers(self.questions)

    def predictive(self, site: str, visible: Any = None) -> Estimate:
        """The law of a stream site at every step, as `Oracle.predictive` defines it.

        Returns:
            Probabilities `[episode, step, symbol]` of a finite site, else densities `[episode, step, value]` at the values
            asked for (not their logarithms); zeros where the evidence is impossible.

        Raises:
            TunnelError: not a stream site with one value at each step, or a factor is NaN.
        """
        if site not in self.questions:
            raise TunnelError(f"{site!r} is no stream site to ask about; {suggest(site, list(self.questions))}")
        shape = self.questions[site].shape[:3]
        value, error = np.zeros(shape), np.zeros(shape)
        for episode, step in np.ndindex(*shape[:2]):
            weights = self.weights(episode, step, site, visible)
            value[episode, step], error[episode, step] = self._averages(
                weights, self._density(episode, step, site, visible)
            )
        return Estimate(value, error)

    def posterior(self, site: str, visible: Any = None) -> Estimate:
        """The law of a finite latent, as `Oracle.posterior` defines it: `[episode, row, symbol]`, the first draw fastest."""
        target = self._latent(site)
        digits = self.runs.digits(site).reshape(self.runs.nodes, self.tunnel.length if target.per_step else 1, -1)
        place = len(target.support) ** np.arange(digits.shape[2])
        own = (digits * place).sum(axis=2)
        symbols = np.arange(len(target.support) ** digits.shape[2])
        return self._rows(target, visible, lambda e, row: own[:, row if target.per_step else 0, None] == symbols)

    def moments(self, site: str, visible: Any = None) -> Estimate:
        """Mean and mean square of every element of a continuous latent: `[episode, row, 2, element]`."""
        target, start = self._latent(site), 0
        for name in self.runs.grid:
            if name == site:
                break
            start += math.prod(self.sites[name].shape)
        values = self.answers["values"][:, :, 0, start : start + math.prod(target.shape)]
        values = values.reshape(*values.shape[:2], self.tunnel.length if target.per_step else 1, -1)

        def functions(episode, row):
            of_row = values[episode, :, row if target.per_step else 0]
            return np.stack([of_row, of_row**2], axis=1)

        return self._rows(target, visible, functions)

    def log_evidence(self) -> Estimate:
        """Log-probability (nats) of the whole stream given the context, `[episode]`; -inf where it is impossible."""
        value, error = np.full(self.runs.episodes, -np.inf), np.zeros(self.runs.episodes)
        for episode in range(self.runs.episodes):
            joint = self._total(self.weights(episode, self.tunnel.length - 1, None, None))
            context = self._total(self.weights(episode, self.tunnel.length - 1, None, None, streams=False))
            if joint[0] > -np.inf:
                value[episode], error[episode] = joint[0] - context[0], joint[1] + context[1]
        return Estimate(value, error)

    def weights(self, episode: int, step: int, until: str | None, visible: Any, *, streams: bool = True) -> np.ndarray:
        """Log of the joint density of a point and of what is known before a site of a step (-1: before any), `[node]`.

        Args:
            episode: which.
            step: of the prediction.
            until: the site before which the step's own draws count; all of them by default.
            visible: bool `[step, step]`: whether step s's likelihood factors are used at t; all earlier steps by default.
            streams: whether stream factors count.
        """
        used = [self._used(name, at, step, until, visible, streams) for name, at in self.runs.columns]
        factors = self.factors[episode][:, used]
        dead = np.logical_or.accumulate(np.isneginf(factors), axis=1)
        discrete = [
            self.sites[name].constraint.is_discrete
            for (name, _), use in zip(self.runs.columns, used, strict=True)
            if use
        ]
        lawless = ~dead & (np.isnan(factors) | (np.array(discrete, bool) & (factors > 1e-9)))
        if lawless.any():
            node, column = np.argwhere(lawless)[0]
            name, at = self.runs.columns[np.flatnonzero(used)[column]]
            raise TunnelError(
                f"the program gives site {name!r} the probability {np.exp(factors[node, column])} (episode {episode}, step {at}): "
                "either a parameter of its law is out of range, or visible= hides a step that rules the hypothesis out and the "
                "program states no law after it"
            )
        total = np.where(dead, 0.0, factors).sum(axis=1)
        return np.where(dead.any(axis=1), -np.inf, total)

    def _used(self, name: str, at: int | None, step: int, until: str | None, visible: Any, streams: bool) -> bool:
        role, order = self.sites[name].role, list(self.sites)
        if role == "stream" and not streams:
            return False
        if at is None or role == "context" or (role == "latent" and self.tunnel.reading.axis != "the scan"):
            return True
        if at == step:
            return until is None or order.index(name) < order.index(until)
        return at < step and (role == "latent" or visible is None or bool(visible[step, at]))

    def _density(self, episode: int, step: int, site: str, visible: Any) -> np.ndarray:
        """Of every value asked about at every point, `[node, value]`."""
        return np.exp(self.answers[site][episode, :, step])

    def _rows(self, target: Any, visible: Any, functions: Any) -> Estimate:
        """Expectations of `functions(episode, row) -> [node, …]` after every row of a latent's posterior."""
        rows = self.tunnel.length if target.per_step else self.tunnel.length + 1
        cells = {}
        for episode, row in np.ndindex(self.runs.episodes, rows):
            step = row if target.per_step else row - 1
            cells[episode, row] = self._averages(self.weights(episode, step, None, visible), functions(episode, row))
        shape = self.runs.episodes, rows, *cells[0, 0][0].shape
        return Estimate(*(np.stack([cell[part] for cell in cells.values()]).reshape(shape) for part in (0, 1)))

    def _latent(self, site: str) -> Any:
        if site not in self.sites or self.sites[site].role != "latent":
            raise TunnelError(f"{site!r} is no latent; {suggest(site, list(self.tunnel.reading.named('latent')))}")
        return self.sites[site]

    def _averages(self, weights: np.ndarray, functions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted averages over the points, with their error: `[…]` each; zeros where no point has weight."""
        shape = functions.shape[1:]
        if np.isneginf(weights).all():
            return np.zeros(shape), np.zeros(shape)
        mass = np.exp(weights - weights.max())
        flat = np.where(mass[:, None] > 0, functions.reshape(len(mass), -1), 0.0).T * mass
        value, scale = flat.sum(axis=1) / mass.sum(), np.abs(flat).sum(axis=1) / mass.sum()
        error = ROUNDING * scale
        if self.runs.grid:
            kept = self._halved
            coarse = flat[:, kept].sum(axis=1) / mass[kept].sum()
            # The greatest of all: the difference of one of them may be small by chance, where it changes its sign.
            relative = max((np.abs(coarse - value) / np.where(scale > 0, scale, 1.0)).max(), self._doubling(mass))
            beyond = (self._beyond(mass[None]) * scale + self._beyond(np.abs(flat))) / mass.sum()
            error = error + scale * relative**1.5 + beyond
        return value.reshape(shape), error.reshape(shape)

    def _total(self, weights: np.ndarray) -> tuple[float, float]:
        """Log of the sum over the points times their volume, and its error."""
        if np.isneginf(weights).all():
            return -np.inf, 0.0
        mass = np.exp(weights - weights.max())
        value, error = weights.max() + np.log(mass.sum()) + self.log_volume, ROUNDING
        if self.runs.grid:
            error += self._doubling(mass) ** 1.5 + self._beyond(mass[None])[0] / mass.sum()
        return float(value), float(error)

    def _doubling(self, mass: np.ndarray) -> float:
        """What doubling the spacing changes in the sum of the weights, relatively."""
        doubled = 2 ** sum(axis.spacing > 0 for axis in self.runs.axes)
        return float(abs(doubled * mass[self._halved].sum() / mass.sum() - 1))

    @property
    def _halved(self) -> np.ndarray:
        """Points with even indices on every continuous axis."""
        return self._where(lambda index, axis: index % 2 == 0, np.logical_and)

    def _beyond(self, terms: np.ndarray) -> np.ndarray:
        """What lies on the faces of the grid and beyond them, of sums of terms `[sum, point]`."""
        last, before = (terms[:, self._in_from_the_faces(points)].sum(axis=1) for points in (0, 1))
        decay = np.minimum(last / np.where(before > 0, before, 1.0), _SLOWEST_DECAY)
        return last / (1 - decay)

    def _in_from_the_faces(self, points: int) -> np.ndarray:
        """Points that come so many after the first or before the last on a continuous axis."""
        return self._where(lambda index, axis: (index == points) | (index == axis.count - 1 - points), np.logical_or)

    def _where(self, holds: Any, combine: Any) -> np.ndarray:
        index = np.indices(self.runs.shape).reshape(len(self.runs.shape), self.runs.nodes)
        rows = [holds(index[place], axis) for place, axis in enumerate(self.runs.axes) if axis.spacing]
        return combine.reduce(rows)
