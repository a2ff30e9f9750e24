r"""Oracles with one thing wrong, each with the property that must notice it.

Below is exact Bayes for the two simplest tunnels, written apart from the library: with hypotheses h, the law of step t is

    sum_h p(h) prod_{s visible at t} p(x_s | h) p(x_t = v | h), divided by its sum over v,

and a fault is one change to it. Every fault gives finite, normalised rows, unless being so is what it breaks.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

from ppl_tunnels.oracles.laws import Finite

COIN, BIJECTION, REPEATS = "coin", "bijection", "bijection with repeated keys"


@dataclasses.dataclass(frozen=True)
class Problem:
    """What exact inference needs.

    Attributes:
        prior: p(h), `[hypothesis]`.
        laws: p(x_t = v | h), `[episode, step, hypothesis, symbol]`.
        observed: the symbol that came, `[episode, step]`.
        visible: bool `[step, earlier step]`.
        masked: whether somebody asked for a mask.
    """

    prior: np.ndarray
    laws: np.ndarray
    observed: np.ndarray
    visible: np.ndarray
    masked: bool

    @property
    def steps(self):
        return len(self.visible)

    @property
    def likelihood(self):
        """p(x_t | h), `[episode, step, hypothesis]`."""
        return np.take_along_axis(self.laws, self.observed[:, :, None, None], axis=-1)[..., 0]


def posed(tunnel, episodes, visible):
    """The problem that a tunnel's episodes pose; coin or bijection only."""
    episodes, setting = episodes.to_numpy(), tunnel.configuration
    if tunnel.name == "coin":
        heads = np.arange(setting["points"]) / (setting["points"] - 1)
        observed = episodes.stream["flip"]
        laws = np.broadcast_to(np.stack([1 - heads, heads], axis=-1), (*observed.shape, len(heads), 2))
    else:
        mappings = np.array(list(itertools.permutations(range(setting["size"]))))
        observed = episodes.stream["value"]
        laws = np.eye(setting["size"])[np.moveaxis(mappings[:, episodes.stream["key"]], 0, -1)]
    hypotheses = laws.shape[2]
    full = np.tril(np.ones((tunnel.length, tunnel.length), dtype=bool), -1)
    return Problem(
        prior=np.full(hypotheses, 1 / hypotheses),
        laws=laws,
        observed=observed,
        visible=full if visible is None else np.asarray(visible),
        masked=visible is not None,
    )


def joint(problem, power=1.0):
    """p(visible evidence, x_t = v), `[episode, step, symbol]`, with each likelihood to a power."""
    likelihood = problem.likelihood[:, None] ** power  # [episode, 1, earlier step, hypothesis]
    evidence = np.where(problem.visible[..., None], likelihood, 1.0).prod(axis=2)
    return np.einsum("h,eth,ethv->etv", problem.prior, evidence, problem.laws)


def over_symbols(table):
    """Rows to laws; an impossible row becomes uniform, so that a fault cannot be noticed by a NaN it did not plant."""
    total = table.sum(axis=-1, keepdims=True)
    return np.where(total > 0, table / np.where(total > 0, total, 1.0), 1 / table.shape[-1])


def bayes(problem):
    """No fault."""
    return over_symbols(joint(problem))


def wrong_prior(problem):
    skewed = 1.0 + np.arange(len(problem.prior))
    return bayes(dataclasses.replace(problem, prior=skewed / skewed.sum()))


def answer_leaked(problem):
    return bayes(dataclasses.replace(problem, visible=problem.visible | np.eye(problem.steps, dtype=bool)))


def tempered_likelihood(problem):
    return over_symbols(joint(problem, power=0.5))


def evidence_counted_twice(problem):
    return over_symbols(joint(problem, power=2.0))


def labels_swapped(problem):
    return np.roll(bayes(problem), 1, axis=-1)


def mask_dropped(problem):
    return bayes(dataclasses.replace(problem, visible=np.tril(np.ones_like(problem.visible), -1)))


def mask_one_step_early(problem):
    if not problem.masked:
        return bayes(problem)
    return bayes(dataclasses.replace(problem, visible=np.tril(np.roll(problem.visible, -1, axis=1), -1)))


def last_step_forgotten(problem):
    return bayes(dataclasses.replace(problem, visible=np.tril(problem.visible, -2)))


def whole_episode_used(problem):
    return bayes(dataclasses.replace(problem, visible=problem.visible | np.triu(np.ones_like(problem.visible), 1)))


def later_steps_count_more(problem):
    age = np.arange(problem.steps)[:, None] - np.arange(problem.steps)
    likelihood = problem.likelihood[:, None] ** (0.8 ** np.maximum(age, 1))[None, :, :, None]
    evidence = np.where(problem.visible[..., None], likelihood, 1.0).prod(axis=2)
    return over_symbols(np.einsum("h,eth,ethv->etv", problem.prior, evidence, problem.laws))


def likeliest_hypothesis_only(problem):
    evidence = np.where(problem.visible[..., None], problem.likelihood[:, None], 1.0).prod(axis=2)
    best = np.eye(len(problem.prior))[evidence.argmax(axis=-1)]
    return np.einsum("eth,ethv->etv", best, problem.laws)


def repeats_forgotten(problem):
    seen = np.tril(problem.visible, -1).astype(float) @ np.eye(problem.laws.shape[-1])[problem.observed]
    return over_symbols(np.where(seen > 0, 0.0, 1.0))


def single_precision(problem):
    return bayes(problem).astype(np.float32).astype(np.float64)


def clipped_away_from_zero(problem):
    return over_symbols(np.maximum(bayes(problem), 1e-6))


def normalised_over_steps(problem):
    table = joint(problem)
    return table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)


def bits_read_as_nats(problem):
    return bayes(problem) ** np.log2(np.e)


def nan_in_one_row(problem):
    table = bayes(problem)
    table[len(table) // 2, -1] = np.nan
    return table


def keys_drawn_with_replacement(problem):
    return np.full_like(bayes(problem), 1 / problem.laws.shape[-1])


@dataclasses.dataclass(frozen=True)
class OracleFault:
    """One thing wrong with an oracle.

    Attributes:
        change: what it says instead, `Problem -> [episode, step, symbol]`.
        wrong: what is wrong, in words.
        caught_by: the property of `check_oracle` that must fail.
        where: the tunnels in which the fault means something.
        site: whose law is wrong; the predicted one's if None.
        lawful: whether its rows are finite and sum to one, so that looking at rows shows nothing.
    """

    change: Callable[[Problem], np.ndarray]
    wrong: str
    caught_by: str
    where: tuple[str, ...] = (COIN, BIJECTION)
    site: str | None = None
    lawful: bool = True

    @property
    def name(self):
        return self.change.__name__

    def oracle(self, tunnel):
        """The faulty oracle of a tunnel, as `check_oracle(tunnel, oracle=fault.oracle)` wants it."""
        return FaultyOracle(tunnel, self)


@dataclasses.dataclass(frozen=True)
class FaultyOracle:
    """Speaks like an `Oracle`."""

    tunnel: object
    fault: OracleFault

    def predictive(self, episodes, site=None, visible=None):
        asked = self.tunnel.predict if site is None else site
        if asked != (self.fault.site or self.tunnel.predict):
            return self.tunnel.oracle().predictive(episodes, site, visible)
        probs = self.fault.change(posed(self.tunnel, episodes, visible))
        with np.errstate(divide="ignore"):
            return Finite(np.log(probs), self.tunnel.reading.sites[asked].support)


NO_FAULT = OracleFault(bayes, "nothing", "no property", where=(COIN, BIJECTION, REPEATS))

ORACLE_FAULTS = (
    OracleFault(wrong_prior, "some hypotheses are likelier than the program says", "prior at zero evidence"),
    OracleFault(answer_leaked, "the step's own value counts as evidence for its prediction", "causality"),
    OracleFault(whole_episode_used, "later steps count as evidence (smoothing instead of filtering)", "causality"),
    OracleFault(tempered_likelihood, "likelihoods to the power 1/2", "chain rule", where=(COIN,)),
    OracleFault(evidence_counted_twice, "likelihoods squared", "chain rule", where=(COIN,)),
    OracleFault(labels_swapped, "each value has its neighbour's probability", "agreement"),
    OracleFault(last_step_forgotten, "off by one: the newest evidence comes a step late", "agreement"),
    OracleFault(later_steps_count_more, "old evidence fades, though order does not matter", "agreement", where=(COIN,)),
    OracleFault(single_precision, "computed in float32", "agreement", lawful=False),
    OracleFault(clipped_away_from_zero, "no probability below 1e-6", "agreement", where=(BIJECTION,)),
    OracleFault(mask_dropped, "visible= is ignored", "masking"),
    OracleFault(mask_one_step_early, "visible= hides the step before the one it names", "masking"),
    OracleFault(likeliest_hypothesis_only, "one hypothesis instead of a mixture", "support"),
    OracleFault(repeats_forgotten, "a key seen before is treated as new", "support", where=(REPEATS,)),
    OracleFault(normalised_over_steps, "divided by the sum over the wrong axis", "normalised", lawful=False),
    OracleFault(bits_read_as_nats, "log2 where log was meant", "normalised", lawful=False),
    OracleFault(nan_in_one_row, "NaN in one row of one episode", "normalised", lawful=False),
    OracleFault(
        keys_drawn_with_replacement,
        "the law of the site that is not predicted is wrong",
        "chain rule",
        where=(BIJECTION,),
        site="key",
    ),
)
