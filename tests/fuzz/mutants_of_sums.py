"""Faults planted in sums over finite latents: enumeration, latents summed within their step, and filtering. See `planting`."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ppl_tunnels.oracles import beliefs, enumeration, given_episodes, local
from ppl_tunnels.oracles.masks import evidence_before
from tests.fuzz.planting import (
    Mutant,
    anything,
    has_a_local_latent,
    has_static,
    has_two_sites_and_a_static,
    streams,
    without_mask,
)

_ENGINE = enumeration.EnumerationEngine


def _a_step_late(right: Callable) -> Callable:
    def before(log_likelihood, visible):
        late = jnp.concatenate([0 * log_likelihood[..., :1], log_likelihood[..., :-1]], axis=-1)
        return right(late, visible)

    return before


def _own_step(right: Callable) -> Callable:
    return lambda log_likelihood, visible: right(log_likelihood, visible) + log_likelihood


ENUMERATION = tuple(
    Mutant(f"enumeration: {name}", "enumeration", where, plant, ("static",), shows)
    for name, where, plant, shows in (
        ("prior dropped", (_ENGINE, "_always"), lambda f: lambda *a: 0 * f(*a), has_static),
        ("evidence a step late", (enumeration, "evidence_before"), _a_step_late, has_static),
        ("own step counted", (enumeration, "evidence_before"), _own_step, has_static),
        ("mask ignored", (enumeration, "evidence_before"), without_mask, has_static),
        (
            "later sites of the step counted",
            (_ENGINE, "_drawn"),
            lambda f: lambda self, log_probs, until=None: f(self, log_probs),
            has_two_sites_and_a_static,
        ),
    )
)


def _no_local_prior(right: Callable) -> Callable:
    def weigh(self, hypothesis, observed):
        laws, log_probs = right(self, hypothesis, observed)
        return laws, log_probs | {name: 0 * log_probs[name] for name in self.local.names}

    return weigh


def _in_reverse(right: Callable) -> Callable:
    def init(self, tunnel, **settings):
        right(self, tunnel, **settings)
        self.index = {name: np.asarray(index)[::-1] for name, index in self.index.items()}

    return init


def _one_value_less(right: Callable) -> Callable:
    def init(self, tunnel, **settings):
        right(self, tunnel, **settings)
        if self.names:
            self.values = {name: value[:-1] for name, value in self.values.items()}
            self.index = {name: index[:-1] for name, index in self.index.items()}
            self.count -= 1

    return init


def _site_by_site(right: Callable) -> Callable:
    """Every stream site's own average over the latents of its step, as if they were drawn anew for each."""

    def evidence(self, log_probs, visible, until):
        prior = sum(log_probs[name] for name in self.local.names)
        each = sum(logsumexp(prior + log_probs[name], axis=0) for name in self.streams)
        together = logsumexp(prior + sum(log_probs[name] for name in self.streams), axis=0)
        return right(self, log_probs, visible, until) + evidence_before(each - together, visible)

    return evidence


LOCAL = tuple(
    Mutant(f"local: {name}", "enumeration", where, plant, ("static",), shows)
    for name, where, plant, shows in (
        ("prior dropped", (_ENGINE, "_weigh"), _no_local_prior, has_a_local_latent),
        ("values in reverse", (local.LocalLatents, "__init__"), _in_reverse, has_a_local_latent),
        ("one value left out", (local.LocalLatents, "__init__"), _one_value_less, has_a_local_latent),
        ("mask ignored", (enumeration, "evidence_before"), without_mask, has_a_local_latent),
        (
            "each site averaged by itself",
            (_ENGINE, "_evidence"),
            _site_by_site,
            lambda spec: has_a_local_latent(spec) and len(streams(spec)) > 1,
        ),
    )
)


def _always_full(right: Callable) -> Callable:
    del right
    return classmethod(lambda cls, visible: cls())  # pyright: ignore[reportReturnType]


def _whole_step(right: Callable) -> Callable:
    return lambda self, belief, step, *, until=None, seen=True: right(self, belief, step, seen=seen)


def _unmoved(right: Callable) -> Callable:
    del right
    return lambda self, w, step, ring: ring.total(w, axis=tuple(range(1, w.ndim - 3)))


def _waiting(right: Callable) -> Callable:
    def push(self, belief, step, *, seen):
        return right(self, belief, step, seen=seen) if seen else (belief, jnp.zeros(belief.shape[1:]))

    return push


def _first_in_reverse(right: Callable) -> Callable:
    def hypotheses_of(self, given, *, merge):
        prior, first = right(self, given, merge=merge)
        return prior, first[::-1]

    return hypotheses_of


FILTERING = tuple(
    Mutant(f"filtering: {name}", "filtering", where, plant, ("chain",), anything)
    for name, where, plant in (
        ("mask ignored", (beliefs.Memory, "of"), _always_full),
        ("later sites of the step counted", (beliefs.Beliefs, "weigh"), _whole_step),
        ("states stay where they are", (beliefs.Moves, "__call__"), _unmoved),
        ("no move while a step is hidden", (beliefs.Beliefs, "_push"), _waiting),
        ("first belief in reverse", (given_episodes.Knowledge, "hypotheses_of"), _first_in_reverse),
    )
)
