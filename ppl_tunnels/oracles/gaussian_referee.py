r"""The second referee for programs with many Gaussian latents: those by dense linear algebra, the others on a grid.

At a point of the grid (every latent that is not Gaussian has a value there), let h be the Gaussian latents, all draws in one
vector, and let the means that the program states be M h + c and the covariances Q. Then

    h ~ N((I - M)^-1 c, (I - M)^-1 Q (I - M)^-T),     y_t | h ~ N(C_t h + d_t, R_t),

with stream values, wherever the program uses them as inputs, at what they were. M and C are found by running the program at
0 and at every unit vector; that means are affine, and that nothing else moves, is checked at another point, so a program that
is not Gaussian is refused. Nothing is recursive: one covariance, conditioned on what is known, by its definition. A grid over
the same latents (`quadrature`) must agree, which tests show.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.quadrature import Estimate, Quadrature
from ppl_tunnels.oracles.quadrature_runs import Runs, step_first

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel

_SAME = 1e-9


class GaussianReferee(Quadrature):
    """Like `Quadrature`, which see; its Gaussian latents cost nothing.

    Args:
        tunnel: the program.
        episodes: what happened.
        values: as in `Quadrature`.
        points: as in `Quadrature`.
        gaussian: latents that are jointly Gaussian given everything else.

    Raises:
        TunnelError: they are not.

    Example:
        >>> import jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist
        >>> from ppl_tunnels import wind_tunnel
        >>> @wind_tunnel(stream="y")
        ... def level(length=2):
        ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with numpyro.plate("times", length):
        ...         numpyro.sample("y", dist.Normal(mean, 1.0))
        >>> referee = GaussianReferee(level, level.episodes(stream={"y": np.array([[3.0, 0.0]])}), gaussian=("mean",))
        >>> referee.moments("mean").value[0, :, 0, 0].tolist()  # before, after the first, after both
        [0.0, 1.5, 1.0]
    """

    def __init__(
        self,
        tunnel: "WindTunnel",
        episodes: "Episodes",
        values: dict[str, np.ndarray] | None = None,
        points: int = 20_000,
        *,
        gaussian: tuple[str, ...],
    ):
        self.latents = gaussian
        self._known: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        super().__init__(tunnel, episodes, values, points)
        self._read_joint()

    def _prepared(self, episodes: "Episodes", points: int) -> Runs:
        return Runs(self.tunnel, episodes, points=points, held=self.latents)

    def _asked(self) -> dict[str, np.ndarray]:
        laws = self.runs.laws
        other = next((name for name in self.latents if not _is_gaussian(laws[name])), None)
        if other is not None:
            raise TunnelError(
                f"latent {other!r} has a {type(laws[other]).__name__} law, which is not Gaussian; leave it to the grid of Quadrature"
            )
        self.observed = tuple(name for name in self.tunnel.reading.named("stream") if _is_gaussian(laws[name]))
        others = {name: values for name, values in self.questions.items() if name not in self.observed}
        return self.runs.answers(others, self._moments_of)

    def _moments_of(self, trace: dict[str, Any]) -> dict[str, jax.Array]:
        """Means and covariances of the Gaussian sites, flat, step first."""
        means, covariances = [], []
        for name in (*self.latents, *self.observed):
            site = self.sites[name]
            mean, covariance = _mean_and_covariance(trace[name]["fn"], site.shape, site.event_dim)
            means.append(jnp.ravel(step_first(mean, site)))
            covariance = step_first(covariance, site)
            width = covariance.shape[-1]
            covariances.append(covariance.reshape(-1, width, width))
        blocks = [block[i] for block in covariances for i in range(len(block))]
        return {"means": jnp.concatenate(means), "covariance": jax.scipy.linalg.block_diag(*blocks)}

    def _read_joint(self) -> None:
        """M, c, Q, C, d and R of the module's docstring, `[episode, node, …]`, and where each site's elements lie."""
        means, covariance, probes = self.answers["means"], self.answers["covariance"], self.runs.probes
        offset, matrix = means[:, :, 0], np.moveaxis(means[:, :, 1:-1] - means[:, :, :1], 2, 3)
        affine = offset + np.einsum("enij,j->eni", matrix, probes[-1])
        others = [place for place, (name, _) in enumerate(self.runs.columns) if not self._by_algebra(name)]
        factors = self.answers["factors"][..., others]
        if not (
            np.allclose(means[:, :, -1], affine, rtol=_SAME, atol=_SAME)
            and np.allclose(covariance, covariance[:, :, :1], rtol=_SAME, atol=_SAME)
            and np.allclose(factors, factors[:, :, :1], rtol=_SAME, atol=_SAME, equal_nan=True)
        ):
            raise TunnelError(
                f"the latents {', '.join(map(repr, self.latents))} are not jointly Gaussian with the stream: a mean is not affine in "
                "them, or a covariance or another site's law depends on them; leave them to the grid of Quadrature"
            )
        size = probes.shape[1]
        self.of, place = {}, 0
        for name in (*self.latents, *self.observed):
            site = self.sites[name]
            count = int(np.prod(site.layout))
            self.of[name] = np.arange(place, place + count).reshape(site.layout[0] if site.per_step else 1, -1)
            place += count
        inverse = np.linalg.inv(np.eye(size) - matrix[:, :, :size])
        self.prior_mean = np.einsum("enij,enj->eni", inverse, offset[:, :, :size])
        self.prior_covariance = inverse @ covariance[:, :, 0, :size, :size] @ np.swapaxes(inverse, -1, -2)
        self.loading, self.shift = matrix[:, :, size:], offset[:, :, size:]
        self.noise = covariance[:, :, 0, size:, size:]
        self.seen = np.concatenate(
            [np.reshape(self.runs.observed[name], (self.runs.episodes, -1)) for name in self.observed]
            or [np.zeros((self.runs.episodes, 0))],
            axis=1,
        )

    def _by_algebra(self, name: str) -> bool:
        return name in self.latents or name in self.observed

    def _used(self, name: str, *place: Any) -> bool:
        return not self._by_algebra(name) and super()._used(name, *place)

    def weights(self, episode: int, step: int, until: str | None, visible: Any, *, streams: bool = True) -> np.ndarray:
        """As `Quadrature.weights`, with the Gaussian latents integrated out."""
        weights = super().weights(episode, step, until, visible, streams=streams)
        return weights + self._given(episode, step, until, visible, streams)[0]

    def _given(self, episode: int, step: int, until: str | None, visible: Any, streams: bool = True):
        """Log density of the Gaussian stream values known, and mean and covariance of h given them: `[node, …]`."""
        size = self.prior_mean.shape[-1]
        index = np.array(
            [
                place - size
                for name in self.observed
                for at, places in enumerate(self.of[name])
                for place in places
                if streams and super(GaussianReferee, self)._used(name, at, step, until, visible, True)
            ],
            int,
        )
        key = episode, index.tobytes()
        if key not in self._known:
            self._known[key] = _conditioned(
                self.prior_mean[episode],
                self.prior_covariance[episode],
                self.loading[episode][:, index],
                self.seen[episode][index] - self.shift[episode][:, index],
                self.noise[episode][:, index[:, None], index],
            )
        return self._known[key]

    def _density(self, episode: int, step: int, site: str, visible: Any) -> np.ndarray:
        if site not in self.observed:
            return super()._density(episode, step, site, visible)
        _, mean, covariance = self._given(episode, step, site, visible)
        index = self.of[site][step] - self.prior_mean.shape[-1]
        loading = self.loading[episode][:, index]
        values = self.questions[site][episode, step].reshape(-1, 1, len(index))
        off = values - np.einsum("nij,nj->ni", loading, mean) - self.shift[episode][:, index]
        spread = loading @ covariance @ np.swapaxes(loading, -1, -2) + self.noise[episode][:, index[:, None], index]
        return np.exp(_log_density(off, spread)).T

    def moments(self, site: str, visible: Any = None) -> Estimate:
        """As `Quadrature.moments`."""
        if site not in self.latents:
            return super().moments(site, visible)
        target = self._latent(site)

        def functions(episode, row):
            step, places = (row, self.of[site][row]) if target.per_step else (row - 1, self.of[site][0])
            _, mean, covariance = self._given(episode, step, None, visible)
            mean, variance = mean[:, places], covariance[:, places, places]
            return np.stack([mean, variance + mean**2], axis=1)

        return self._rows(target, visible, functions)


def _conditioned(mean, covariance, loading, off, noise) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log N(off; loading mean, loading covariance loading' + noise), and h given it; leading axis: the nodes."""
    across = covariance @ np.swapaxes(loading, -1, -2)
    spread, off = loading @ across + noise, off - np.einsum("nij,nj->ni", loading, mean)
    gain = np.swapaxes(np.linalg.solve(spread, np.swapaxes(across, -1, -2)), -1, -2)
    return (
        _log_density(off, spread),
        mean + np.einsum("nij,nj->ni", gain, off),
        covariance - gain @ np.swapaxes(across, -1, -2),
    )


def _log_density(off: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """log N(off; 0, spread), nats."""
    scaled = np.linalg.solve(spread, off[..., None])[..., 0]
    log_volume = np.linalg.slogdet(spread)[1] + off.shape[-1] * np.log(2 * np.pi)
    return -(np.sum(off * scaled, axis=-1) + log_volume) / 2


def _is_gaussian(fn: Any) -> bool:
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    if isinstance(fn, dist.TransformedDistribution):
        return isinstance(fn.base_dist, dist.Normal) and all(isinstance(t, AffineTransform) for t in fn.transforms)
    return isinstance(fn, dist.Normal | dist.MultivariateNormal)


def _mean_and_covariance(fn: Any, shape: tuple[int, ...], event_dim: int) -> tuple[jax.Array, jax.Array]:
    """`[*batch, *event]` and `[*batch, element, element]`, an event flattened."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    if isinstance(fn, dist.MultivariateNormal):
        covariance = jnp.broadcast_to(fn.covariance_matrix, (*shape, shape[-1]))
        return jnp.broadcast_to(fn.mean, shape), covariance
    transforms, fn = (fn.transforms, fn.base_dist) if isinstance(fn, dist.TransformedDistribution) else ([], fn)
    mean, scale = fn.loc, fn.scale
    transform: Any
    for transform in transforms:
        mean, scale = transform.loc + transform.scale * mean, transform.scale * scale
    batch = shape[: len(shape) - event_dim]
    variances = jnp.broadcast_to(scale**2, shape).reshape(*batch, -1)
    return jnp.broadcast_to(mean, shape), variances[..., None] * jnp.eye(variances.shape[-1])
