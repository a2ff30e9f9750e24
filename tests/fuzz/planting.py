"""Planting a fault in an engine, and looking for it by comparing random programs with a referee.

A mutant replaces one function of an engine's module by one with a typical mistake. Programs to find it with are those of a
family that could show it at all (two stream sites, where the mistake is about the second), small ones first.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import derive
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
    shows: Callable[[Spec], bool]

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


def anything(spec: Spec) -> bool:
    """Every program shows it."""
    return True


def has_probabilities(spec: Spec) -> bool:
    """Whether a Beta or Dirichlet prior is among the draws."""
    return any(draw.law in ("beta", "dirichlet") for draw in spec.draws)


def has_static(spec: Spec) -> bool:
    """Whether a finite latent is drawn once."""
    return any(draw.role == "latent" and draw.once and draw.values for draw in spec.draws)


def has_two_sites_and_a_static(spec: Spec) -> bool:
    """Whether besides a finite latent there is a second stream site, which the first must not know."""
    return has_static(spec) and len(streams(spec)) > 1


def has_a_local_latent(spec: Spec) -> bool:
    """Whether a latent is drawn at every step."""
    return any(draw.role == "latent" and not draw.once for draw in spec.draws)


def without_mask(right: Callable) -> Callable:
    """All earlier evidence, whatever the mask."""
    return lambda log_likelihood, visible: right(log_likelihood, None)
