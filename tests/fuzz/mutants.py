"""Faults planted in the engines of continuous latents, and in mixtures of them. See `planting`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ppl_tunnels.oracles import conjugacy, gaussian, gaussian_part, kalman, mixture, terms
from ppl_tunnels.oracles.log_gamma import log_gamma_ratio
from tests.fuzz.planting import (
    Mutant,
    anything,
    has_probabilities,
    has_static,
    has_two_sites_and_a_static,
    without_mask,
)

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


def _no_total(right: Callable) -> Callable:
    """Without the normaliser's gamma function of the total (that of the prior alone would cancel)."""

    def log_evidence(self, eta, s):
        found = right(self, eta, s)
        for block in self.blocks.values():
            if block.family.name in ("Beta", "Dirichlet"):
                own, more = jnp.broadcast_arrays(block.of(eta), block.of(s))
                total = log_gamma_ratio(own.sum(axis=-1), more.sum(axis=-1))
                found = found + total.sum(axis=tuple(range(-len(block.elements), 0)))
        return found

    return log_evidence


CONJUGACY = tuple(
    Mutant(f"conjugacy: {name}", "conjugacy", where, plant, ("conjugate",), shows)
    for name, where, plant, shows in (
        ("a step's own evidence counts as earlier", (conjugacy.Solved, "before"), _own_evidence, anything),
        ("the constant of a likelihood dropped", (conjugacy.Solved, "before"), _no_constant, anything),
        (
            "one more count in the prior",
            (conjugacy.ConjugatePart, "_natural"),
            lambda f: lambda *a: f(*a) + 1,
            anything,
        ),
        ("mask ignored", (conjugacy, "evidence_before"), without_mask, anything),
        ("normaliser forgotten", (conjugacy.ConjugatePart, "_log_evidence"), _no_total, has_probabilities),
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


def _unmoved(right: Callable) -> Callable:
    return lambda belief, matrix, offset: gaussian.kept(belief, offset.shape[0])


def _whole_degrees(right: Callable) -> Callable:
    return lambda belief, factor: (right(belief, factor)[0] + belief.seen / 2, right(belief, factor)[1])


_CHAINS = ("gaussian chain",)
GAUSSIAN = (
    *(
        Mutant(f"Kalman: {name}", "Kalman", where, plant, _CHAINS, anything)
        for name, where, plant in (
            ("noise left out of what is predicted", (gaussian_part, "predicted"), _noiseless),
            ("mask ignored", (gaussian_part.GaussianPart, "_beliefs"), _all_shown),
            ("move to the next step skipped", (gaussian_part, "mapped"), _unmoved),
            ("scale taken for variance", (kalman, "moments"), _scale_as_variance),
        )
    ),
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
            has_two_sites_and_a_static,
        ),
        (
            "later sites of the step counted",
            (mixture.PartsEngine, "_of"),
            _to_the_end_of_the_step,
            has_two_sites_and_a_static,
        ),
        ("prior of the finite latent dropped", (terms.TermsOf, "run"), _no_fixed, has_static),
        ("mask ignored", (conjugacy, "evidence_before"), without_mask, has_static),
    )
)
