"""The oracle: exact conditional laws given each prefix, whichever engine computes them."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax.core import Tracer

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import ImpossibleEvidenceWarning, TunnelError, suggest
from ppl_tunnels.oracles.laws import Finite, rows_of
from ppl_tunnels.program import double_precision, require_x64

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


# A NumPyro distribution with `.impossible` and `.to_numpy()`: `laws.Finite`, one of `parametric`, or `mixtures.Mixture`.
Law = Any


class Engine(Protocol):
    """What an engine computes; every method is pure, traceable and in double precision."""

    name: str

    def explain(self) -> str:
        """Why this engine, and what it does, in a sentence or two."""
        ...

    def predictive(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Law:
        """Law of a stream site at every step, batch shape `[episode, step]`."""
        ...

    def posterior(self, episodes: Episodes, site: str, visible: jax.Array | None) -> Law:
        """Law of a latent, batch shape `[episode, step]`, or `[episode, step + 1]` for a static one."""
        ...

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Log-probability (nats) of the whole stream given the context, `[episode]`."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Oracle:
    """Exact conditional laws of a tunnel.

    `visible[t, s]` (bool `[step, step]`, s < t) says whether step s's evidence may be used at t: the full lower triangle
    (the default) is Bayes, a band is a finite memory, all false is no evidence. It drops step s's *likelihood factors*;
    values that the program itself uses as inputs, and the current step, stay visible.

    Attributes:
        tunnel: whose oracle it is.
        engine: which engine computes it.
    """

    tunnel: "WindTunnel"
    derived: Engine = dataclasses.field(repr=False)

    @property
    def engine(self) -> str:
        """Which engine computes the laws."""
        return self.derived.name

    def explain(self) -> str:
        """Which engine was chosen, why, and what a mask means for this program."""
        return self.derived.explain()

    def predictive(self, episodes: Episodes, site: str | None = None, visible: Any = None) -> Law:
        """The law of a stream site given context, earlier steps and earlier sites of its own step.

        Where `site` (by default the predicted one) is latent, it is the law of that site given everything up to and
        including the step.

        Args:
            episodes: what happened; latents are ignored.
            site: a stream or latent site; the tunnel's predicted one by default.
            visible: bool `[step, step]`, see the class.

        Returns:
            A law with batch shape `[episode, step]`, log-probabilities in nats, float64.

        Raises:
            TunnelError: no such site, or a mask of the wrong shape.

        Example:
            >>> import numpy as np, ppl_tunnels
            >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=3)
            >>> law = coin.oracle().predictive(coin.episodes(stream={"flip": np.array([[1, 1, 1]])}))
            >>> law.batch_shape
            (1, 3)
        """
        site = self.tunnel.predict if site is None else site
        role = self._role(site)
        if role == "context":
            raise TunnelError(f"site {site!r} is context, revealed up front; ask for a stream site")
        if role == "latent":
            law = self.posterior(episodes, site, visible)
            # The law after the empty prefix is no prediction of a step.
            return law if self.tunnel.reading.sites[site].per_step else rows_of(law, (slice(None), slice(1, None)))
        return self._run("predictive", self.derived.predictive, episodes, site, visible)

    def posterior(self, episodes: Episodes, site: str, visible: Any = None) -> Law:
        """The law of a latent site given context and stream.

        Returns:
            Batch shape `[episode, step + 1]` for a static latent (after each prefix, the empty one first), and
            `[episode, step]` for one drawn at every step (given everything up to and including its step).

        Raises:
            TunnelError: no such site, not a latent one, or a mask of the wrong shape.
        """
        if self._role(site) != "latent":
            raise TunnelError(
                f"site {site!r} is not latent, so it has no posterior; use predictive(episodes, site={site!r})"
            )
        return self._run("posterior", self.derived.posterior, episodes, site, visible)

    def log_evidence(self, episodes: Episodes) -> jax.Array:
        """Log-probability (nats) of the whole stream given the context, `[episode]`; -inf where it is impossible."""
        require_x64("log_evidence", episodes)
        with double_precision():
            return self.derived.log_evidence(episodes.without_latents())

    def _role(self, site: str) -> str:
        sites = self.tunnel.reading.sites
        if site not in sites:
            raise TunnelError(f"tunnel {self.tunnel.name!r} has no site {site!r}; {suggest(site, list(sites))}")
        return sites[site].role

    def _run(self, what: str, method: Callable[..., Law], episodes: Episodes, site: str, visible: Any) -> Law:
        require_x64(what, episodes, visible)
        with double_precision():
            law = method(episodes.without_latents(), site, self._mask(visible))
        self._warn_impossible(law, site)
        return law

    def _mask(self, visible: Any) -> jax.Array | None:
        if visible is None:
            return None
        steps = self.tunnel.length
        if np.shape(visible) != (steps, steps) or np.dtype(getattr(visible, "dtype", None) or type(visible)) != bool:
            raise TunnelError(
                f"visible was given as {getattr(visible, 'dtype', type(visible).__name__)} of shape {np.shape(visible)}; expected "
                f"booleans of shape ({steps}, {steps}), [step, earlier step]"
            )
        if not isinstance(visible, Tracer) and np.triu(np.asarray(visible)).any():
            step, other = (int(i) for i in np.argwhere(np.triu(np.asarray(visible)))[0])
            raise TunnelError(
                f"visible[{step}, {other}] is true, but step {other} is not before step {step}; set the upper triangle and "
                "the diagonal to false (np.tril(visible, -1))"
            )
        return jax.numpy.asarray(visible)

    def _warn_impossible(self, law: Law, site: str) -> None:
        leaves = jax.tree.leaves(law)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return
        undefined = _undefined(law)
        if undefined.any():
            episode, step = (int(i) for i in np.argwhere(undefined)[0])
            raise TunnelError(
                f"the law of {site!r} is undefined (NaN) in {int(undefined.any(axis=1).sum())} of {len(undefined)} episodes under "
                f"{self.tunnel.name!r} (first: episode {episode}, prediction {step}): either some law of the program has a parameter out "
                "of range there, such as a probability above 1, or what the oracle rests on (conjugacy, linear means) holds for other "
                "data but not for these"
            )
        impossible = np.asarray(law.impossible)
        if impossible.any():
            episode, step = (int(i) for i in np.argwhere(impossible)[0])
            warnings.warn(
                f"the evidence of {int(impossible.any(axis=1).sum())} of {len(impossible)} episodes has probability zero "
                f"under {self.tunnel.name!r} (first: episode {episode}, before prediction {step}); no law conditions on it, "
                "so its rows are zero",
                ImpossibleEvidenceWarning,
                stacklevel=4,
            )


def _undefined(law: Law) -> np.ndarray:
    """Where some number of a law is NaN, `[episode, row]`."""
    numbers = [law.log_probs] if isinstance(law, Finite) else jax.tree.leaves(law)
    rows = law.batch_shape
    return np.any(
        [np.isnan(np.asarray(leaf)).reshape(*rows, -1).any(axis=-1) for leaf in numbers if leaf.shape[:2] == rows],
        axis=0,
    )
