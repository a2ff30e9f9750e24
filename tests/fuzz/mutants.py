"""Faults planted in the engines, each of which comparing random programs with a referee must find.

A mutant replaces one function of an engine's module by one with a typical mistake. Programs to find it with are those of a
family that could show it at all (two stream sites, where the mistake is about the second), small ones first.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import conjugacy, derive, families, gaussian, gaussian_part, kalman, mixture, terms
from ppl_tunnels.verification.random_programs import Spec, build
from ppl_tunnels.verification.strategies import seeded_spec
from tests.fuzz.comparison import Trial

MOST_CASES = 500
# Of one program; smaller than a campaign's, so that several programs come within the limit.
_CASES = 60
_SEEDS = 120

Plant = Callable[[Callable], Callable]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A planted fault.

    Attributes:
        name: what is wrong.
        engine: the engine whose oracle shows it, one of `derive.ENGINES`.
        where: the class or module, and the name of the function, that is replaced.
        plant: makes the faulty function from the right one.
        families: of the programs that could show it.
        shows: whether a program could.
    """

    name: str
    engine: str
    where: tuple[Any, str]
    plant: Plant
    families: tuple[str, ...]
    shows: Callable[[Spec], bool] = lambda spec: True

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is there within the context."""
        owner, attribute = self.where
        right = owner.__dict__[attribute]
        setattr(owner, attribute, self.plant(right))
        try:
            yield
        finally:
            setattr(owner, attribute, right)

    def specs(self) -> list[Spec]:
        """Programs that could show it, the shortest first."""
        drawn = [seeded_spec(seed, (family,)) for family in self.families for seed in range(_SEEDS)]
        return sorted(
            (spec for spec in drawn if spec.steps > 1 and self.shows(spec)), key=lambda spec: len(spec.to_json())
        )


@dataclasses.dataclass
class Hunt:
    """What it took to find a mutant.

    Attributes:
        cases: episodes times masks compared until then (or in vain).
        programs: specs tried.
        refused: of them, how many the faulty engine itself refused.
        found: the disagreement, "" if none.
    """

    cases: int = 0
    programs: int = 0
    refused: int = 0
    found: str = ""


def hunt(mutants: tuple[Mutant, ...], *, most: int = MOST_CASES, programs: int = 12) -> dict[str, Hunt]:
    """Look for every mutant until it is found, or there were too many cases or programs.

    Mutants that the same programs could show share the referee's answers.
    """
    hunts, trials = {mutant.name: Hunt() for mutant in mutants}, {}
    for mutant in mutants:
        of = hunts[mutant.name]
        for spec in mutant.specs()[:programs]:
            if of.found or of.cases >= most:
                break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # impossible evidence is meant to occur
                _try(mutant, spec, of, trials)
    return hunts


def _try(mutant: Mutant, spec: Spec, of: Hunt, trials: dict[Spec, Trial]) -> None:
    tunnel = build(spec)
    of.programs += 1
    with mutant.planted():
        try:
            oracle = derive.derive(tunnel, mutant.engine)
        except TunnelError:
            of.refused += 1
            return
        if spec not in trials:
            trials[spec] = Trial(spec, tunnel, _CASES, seed=0)
        verdict = trials[spec].judge(oracle)
    of.cases += verdict.cases
    of.refused += bool(verdict.refused)
    of.found = verdict.disagreement


def streams(spec: Spec) -> list:
    """Draws of the stream."""
    return [draw for draw in spec.draws if draw.role == "stream"]


def has_static(spec: Spec) -> bool:
    """Whether a finite latent is drawn once."""
    return any(draw.role == "latent" and draw.once and draw.values for draw in spec.draws)


def _has_two_sites_and_a_static(spec: Spec) -> bool:
    # The last site is what the first must not know.
    return has_static(spec) and len(streams(spec)) > 1


def has_a_local_latent(spec: Spec) -> bool:
    """Whether a latent is drawn at every step."""
    return any(draw.role == "latent" and not draw.once for draw in spec.draws)


def without_mask(right: Callable) -> Callable:
    """All earlier evidence, whatever the mask."""
    return lambda log_likelihood, visible: right(log_likelihood, None)


# Conjugacy.


def _own_evidence(right: Callable) -> Callable:
    def before(self, visible):
        s, c = right(self, visible)
        return s + self.of["step"].s, c + self.of["step"].c

    return before


def _no_constant(right: Callable) -> Callable:
    def before(self, visible):
        s, c = right(self, visible)
        return s, jnp.where(jnp.isneginf(c), c, 0.0)

    return before


CONJUGACY = tuple(
    Mutant(f"conjugacy: {name}", "conjugacy", where, plant, ("conjugate",))
    for name, where, plant in (
        ("a step's own evidence counts as earlier", (conjugacy.Solved, "before"), _own_evidence),
        ("the constant of a likelihood dropped", (conjugacy.Solved, "before"), _no_constant),
        ("one more count in the prior", (conjugacy.ConjugatePart, "_natural"), lambda f: lambda *a: f(*a) + 1),
        ("mask ignored", (conjugacy, "evidence_before"), without_mask),
        ("normaliser forgotten", (families, "log_gamma_ratio"), lambda f: lambda x, n: f(x, n) + gammaln(x)),
    )
)


# Gaussian latents.


def _noiseless(right: Callable) -> Callable:
    return lambda belief, of: right(belief, dataclasses.replace(of, noise=0 * of.noise))


def _all_shown(right: Callable) -> Callable:
    return lambda self, model, visible, until, site: right(self, model, None, until, site)


def _scale_as_variance(right: Callable) -> Callable:
    def moments(*arguments):
        mean, noise = right(*arguments)
        return mean, jnp.sqrt(jnp.abs(noise))

    return moments


def _whole_degrees(right: Callable) -> Callable:
    return lambda belief, factor: (right(belief, factor)[0] + belief.seen / 2, right(belief, factor)[1])


_CHAINS = ("gaussian chain",)
GAUSSIAN = (
    Mutant("Kalman: noise left out of what is predicted", "Kalman", (gaussian_part, "predicted"), _noiseless, _CHAINS),
    Mutant("Kalman: mask ignored", "Kalman", (gaussian_part.GaussianPart, "_beliefs"), _all_shown, _CHAINS),
    Mutant(
        "Kalman: move to the next step skipped",
        "Kalman",
        (gaussian_part, "mapped"),
        lambda _: lambda belief, matrix, offset: gaussian.kept(belief, offset.shape[0]),
        _CHAINS,
    ),
    Mutant("Kalman: scale taken for variance", "Kalman", (kalman, "moments"), _scale_as_variance, _CHAINS),
    Mutant(
        "joint Gaussian: degrees of freedom not halved",
        "joint Gaussian",
        (gaussian_part, "factor_after"),
        _whole_degrees,
        ("regression",),
        lambda spec: any(draw.law == "gamma" for draw in spec.draws),
    ),
)


# Mixtures over finite static latents.


def _prior_weights(right: Callable) -> Callable:
    def of(self, values, site, visible, what):
        weights, run = right(self, values, site, visible, what)
        return jnp.broadcast_to(weights[:, :1], weights.shape), run

    return of


def _one_part_only(right: Callable) -> Callable:
    def of(self, values, site, visible, what):
        owner, parts = self._owner(site), self.parts
        self.parts = (owner,)
        try:
            return right(self, values, site, visible, what)
        finally:
            self.parts = parts

    return of


def _to_the_end_of_the_step(right: Callable) -> Callable:
    def of(self, values, site, visible, what):
        owner, parts = self._owner(site), self.parts
        self.parts = tuple(part if part is owner else _WholeSteps(part) for part in parts)
        try:
            return right(self, values, site, visible, what)
        finally:
            self.parts = parts

    return of


class _WholeSteps:
    """A part whose evidence is always that of whole steps."""

    def __init__(self, part: Any):
        self.part, self.latents, self.streams = part, part.latents, part.streams
        self.prior_evidence = part.prior_evidence

    def evidence(self, values, visible, until):
        return self.part.evidence(values, visible, None)


def _no_fixed(right: Callable) -> Callable:
    def run(self, values):
        found = right(self, values)
        return dataclasses.replace(found, fixed=0 * found.fixed)

    return run


MIXTURE = tuple(
    Mutant(f"mixture: {name}", "conjugacy", where, plant, ("conjugate",), shows)
    for name, where, plant, shows in (
        ("weights of the prior only", (mixture.PartsEngine, "_of"), _prior_weights, has_static),
        (
            "the other part's evidence ignored",
            (mixture.PartsEngine, "_of"),
            _one_part_only,
            _has_two_sites_and_a_static,
        ),
        (
            "later sites of the step counted",
            (mixture.PartsEngine, "_of"),
            _to_the_end_of_the_step,
            _has_two_sites_and_a_static,
        ),
        ("prior of the finite latent dropped", (terms.TermsOf, "run"), _no_fixed, has_static),
        ("mask ignored", (conjugacy, "evidence_before"), without_mask, has_static),
    )
)
