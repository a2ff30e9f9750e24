"""One random program: every engine that derives its oracle against a referee that shares no code with it.

A case is one episode under one mask; every stream site is compared at every step, every latent after every prefix, and the
evidence of every episode. Episodes are drawn from the program, half of them then disturbed, so that the unlikely and the
impossible occur. Sums over finite latents must agree to `verdict.RELATIVE`; where the referee integrates, within the error
that it states.
"""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import derive as deriving
from ppl_tunnels.oracles.gaussian_referee import GaussianReferee
from ppl_tunnels.oracles.oracle import Oracle
from ppl_tunnels.oracles.quadrature import Estimate, Quadrature
from ppl_tunnels.program import compile_time
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.random_programs import GAUSSIAN, Spec, build
from tests.fuzz.verdict import Verdict

CASES = 40
# What is run a few times is compiled quickly, not well.
_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Every one of the tunnel's own checks draws as many, so its sampler is compiled once.
_DRAWN = 64
# Points of a grid over all continuous latents.
_POINTS = 6_000


def compare(spec: Spec, *, every_engine: bool = True, cases: int = CASES, seed: int = 0) -> list[Verdict]:
    """Verdicts on the engine that is chosen for a program, and on one other that would take it, if any.

    Args:
        spec: the program.
        every_engine: whether another engine than the chosen one is judged, too.
        cases: at least so many, if there are so many different masks.
        seed: of episodes and masks.
    """
    tunnel = build(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # impossible evidence is meant to occur
        oracles: list[Oracle] = []
        try:
            oracles.append(deriving.derive(tunnel))
        except TunnelError as error:
            return [Verdict("none", programs=1, refused=_sentence(error))]
        if every_engine:
            oracles += _another(tunnel, oracles[0].engine, seed)
        trial = Trial(spec, tunnel, cases, seed)
        return [trial.judge(oracle) for oracle in oracles]


def _another(tunnel: WindTunnel, chosen: str, seed: int) -> list[Oracle]:
    names = [name for name in deriving.ENGINES if name not in (chosen, "closed form")]
    for name in np.random.default_rng(seed).permutation(names).tolist():
        with compile_time():
            built = deriving.ENGINES[name](tunnel)
        if not isinstance(built, str):
            return [Oracle(tunnel=tunnel, derived=built)]
    return []


class Trial:
    """Episodes, masks and a referee for one program."""

    def __init__(self, spec: Spec, tunnel: WindTunnel, cases: int, seed: int):
        self.spec, self.tunnel = spec, tunnel
        self.sites = tunnel.reading.sites
        self.random = np.random.default_rng(seed)
        continuous = any(self.sites[name].support is None for name in tunnel.reading.named("latent"))
        self.masks = self._masks(8 if continuous else 4)
        # No mask and the full one are one case twice.
        count = min(_DRAWN, max(4 if continuous else 10, -(-cases // max(len(self.masks) - 1, 1))))
        drawn = tunnel.sample(jax.random.key(seed), _DRAWN).to_numpy()[:count].without_latents()
        self.episodes = self._disturbed(drawn)
        self.values = {
            name: self._nearby(name) for name in tunnel.reading.named("stream") if self.sites[name].support is None
        }
        self.referee, self.no_referee = None, ""
        start = time.perf_counter()
        try:
            self.referee = self._referee()
        except TunnelError as error:
            self.no_referee = _sentence(error)
        self.seconds = time.perf_counter() - start

    def _referee(self) -> Quadrature:
        gaussian = tuple(draw.name for draw in self.spec.draws if draw.role == "latent" and draw.law in GAUSSIAN)
        if gaussian:
            try:
                return GaussianReferee(self.tunnel, self.episodes, self.values, _POINTS, gaussian=gaussian)
            except TunnelError:
                pass  # not Gaussian after all
        return Quadrature(self.tunnel, self.episodes, self.values, _POINTS)

    @property
    def programs(self) -> int:
        """How many programs there are: a shape with the numbers of its tables, which every episode draws anew."""
        tables = [np.asarray(self.episodes.context[draw.numbers]) for draw in self.spec.draws if draw.numbers]
        flat = [table.reshape(len(self.episodes), -1) for table in tables]
        return len(np.unique(np.concatenate(flat, axis=1), axis=0)) if flat else 1

    def judge(self, oracle: Oracle) -> Verdict:
        """Compare everything that an oracle says."""
        verdict = Verdict(oracle.engine, programs=self.programs)
        asked = Asked(oracle, self.values, alone=len(self.masks) == 1)
        try:
            for number, mask in enumerate(self.masks):
                answers = asked(self.episodes, mask)
                verdict.partly |= asked.refusals
                verdict.crashes |= asked.crashes
                if self.referee is None:
                    if any(what.startswith("predictive") for what in answers):
                        verdict.refused = f"no referee: {self.no_referee}"
                    continue
                for what, got in answers.items():
                    expected = self._expected(what, mask)
                    verdict.note(f"{what} under mask {number}", _probabilities(what, got), *expected)
                verdict.cases += len(self.episodes) if mask is None or number > 1 else 0
            if self.referee is not None and oracle.engine == "filtering" and self.spec.steps > 2:
                self._judge_band(asked, verdict)
        except TunnelError as error:
            verdict.refused = _sentence(error)
        main = [text for what, text in verdict.partly.items() if not what.startswith("posterior")]
        verdict.refused = verdict.refused or (main[0] if main else "")
        return verdict

    def _judge_band(self, asked: "Asked", verdict: Verdict) -> None:
        """Filtering has a path of its own for a finite memory, taken where the mask's numbers are known."""
        band = np.eye(self.spec.steps, k=-1, dtype=bool)
        for what, got in asked.outright(self.episodes, band).items():
            verdict.note(f"{what} under a band", _probabilities(what, got), *self._expected(what, band))
        verdict.partly |= asked.refusals
        verdict.crashes |= asked.crashes

    def _expected(self, what: str, mask: np.ndarray | None) -> Estimate:
        assert self.referee is not None
        kind, _, name = what.partition(" of ")
        if kind == "evidence":
            return self.referee.log_evidence()
        if kind == "predictive":
            return self.referee.predictive(name, mask)
        if self.sites[name].support is not None:
            return self.referee.posterior(name, mask)
        return self.referee.moments(name, mask)

    def _masks(self, most: int) -> list[np.ndarray | None]:
        """All earlier steps, none, the last one, and random ones; no two alike."""
        steps = self.spec.steps
        full = np.tril(np.ones((steps, steps), bool), -1)
        masks: list[np.ndarray] = [full]
        options = [~full & full, np.eye(steps, k=-1, dtype=bool)]
        options += [full & (self.random.random((steps, steps)) < 0.5) for _ in range(3 * most)]
        for mask in options:
            if len(masks) < most and not any((mask == other).all() for other in masks):
                masks.append(mask)
        return [None, *masks] if len(masks) > 1 else [None]

    def _disturbed(self, drawn: Episodes) -> Episodes:
        """The second half of the episodes with some stream values replaced by others that the program allows."""
        stream = {}
        for name, value in drawn.stream.items():
            site, other = self.sites[name], np.array(value)
            if site.support is not None:
                other = site.support[
                    self.random.integers(len(site.support), size=value.shape[: value.ndim - site.event_dim])
                ]
            elif site.constraint.is_discrete:
                other = value + self.random.integers(0, 3, value.shape)
            elif (value > 0).all() and site.event_dim == 0 and self.spec.draw(name).law == "exponential":
                other = value * self.random.uniform(0.3, 3, value.shape)
            else:
                other = value + self.random.normal(size=value.shape)
            swap = self.random.random(value.shape[:2]) < 0.5
            swap[: len(value) // 2] = False
            stream[name] = np.where(swap.reshape(*swap.shape, *[1] * (value.ndim - 2)), other, value).astype(
                value.dtype
            )
        return dataclasses.replace(drawn, stream=stream)

    def _nearby(self, name: str) -> np.ndarray:
        """Values at which a density is asked for: the realised one and two others, `[episode, step, value, *event]`."""
        value = np.asarray(self.episodes.stream[name])
        if self.sites[name].constraint.is_discrete:
            others = [value + 1, np.zeros_like(value)]
        elif self.spec.draw(name).law == "exponential":
            others = [value * 1.7, np.full_like(value, 0.1)]
        else:
            others = [value + 0.7, np.full_like(value, -0.3)]
        return np.stack([value, *others], axis=2)


class Asked:
    """Everything that an oracle can be asked, in one compiled function for masks and one for no mask.

    Args:
        oracle: whose laws.
        values: at which densities are wanted.
        alone: whether there are no masks, so that everything is asked without one.
    """

    def __init__(self, oracle: Oracle, values: dict[str, np.ndarray], alone: bool):
        self.oracle, self.values, self.alone = oracle, values, alone
        self.refusals: dict[str, str] = {}
        self.crashes: dict[str, str] = {}
        self.compiled = jax.jit(self._answers, compiler_options=dict(_QUICKLY))

    def __call__(self, episodes: Episodes, mask: np.ndarray | None) -> dict[str, np.ndarray]:
        answers = self.compiled(episodes, None if mask is None else jnp.asarray(mask))
        return {what: np.asarray(value) for what, value in answers.items()}

    def outright(self, episodes: Episodes, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Two answers, not as part of a compiled function, so that the engine sees the numbers of the mask."""
        reading, answers = self.oracle.tunnel.reading, {}
        stream, latents = reading.named("stream")[-1], reading.named("latent")[:1]
        self._ask(answers, f"predictive of {stream}", lambda: self._law(episodes, stream, mask))
        for name in latents:
            self._ask(answers, f"posterior of {name}", lambda name=name: self._posterior(episodes, name, mask))
        return {what: np.asarray(value) for what, value in answers.items()}

    def _ask(self, answers: dict[str, jax.Array], what: str, question: Callable[[], jax.Array]) -> None:
        try:
            answers[what] = question()
        except TunnelError as error:
            self.refusals[what] = _sentence(error)
        except Exception as error:  # anything else is a fault of the engine, and other questions may fare better
            self.crashes[what] = f"{type(error).__name__}: {_sentence(error)}"

    def _answers(self, episodes: Episodes, mask: Any) -> dict[str, jax.Array]:
        reading, answers = self.oracle.tunnel.reading, {}
        ask = functools.partial(self._ask, answers)
        # Compiling is what a shape costs, so without a mask only what is asked for most is asked again.
        whole = mask is not None or self.alone
        for name in reading.named("stream") if whole else reading.named("stream")[-1:]:
            ask(f"predictive of {name}", lambda name=name: self._law(episodes, name, mask))
        for name in reading.named("latent") if whole else ():
            ask(f"posterior of {name}", lambda name=name: self._posterior(episodes, name, mask))
        if mask is None:
            ask("evidence", lambda: self.oracle.log_evidence(episodes))
        return answers

    def _law(self, episodes: Episodes, name: str, mask: Any) -> jax.Array:
        law = self.oracle.predictive(episodes, name, mask)
        if name not in self.values:
            return law.log_probs
        at = jnp.moveaxis(jnp.asarray(self.values[name]), 2, 0)
        return jnp.stack([law.log_prob(value) for value in at], axis=2)

    def _posterior(self, episodes: Episodes, name: str, mask: Any) -> jax.Array:
        law = self.oracle.posterior(episodes, name, mask)
        if self.oracle.tunnel.reading.sites[name].support is not None:
            return law.log_probs
        mean, variance = jnp.asarray(law.mean), jnp.asarray(law.variance)
        flat = [part.reshape(*part.shape[:2], -1) for part in (mean, variance + mean**2)]
        return jnp.stack(flat, axis=2)


def _probabilities(what: str, got: np.ndarray) -> np.ndarray:
    """Log-probabilities and log-densities as they are summed; moments and evidence as they are."""
    is_moments = what.startswith("posterior") and got.ndim == 4
    return got if is_moments or what == "evidence" else np.exp(got)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
