"""Predictors with one thing wrong, each with what must refuse them: they are exact Bayes but for that.

A fault is made for a tunnel (`fault.make(tunnel)` is the predictor). It must end in a `PredictorError`, in a failed
invariant, or in a failed claim; never in a certificate, and never in a traceback from inside.
"""

import dataclasses
import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.verification.evaluation import BATCH

COIN, BIJECTION = "coin", "bijection"
BOTH = (COIN, BIJECTION)
UNREADABLE = "PredictorError"


@dataclasses.dataclass(frozen=True)
class PredictorFault:
    """One thing wrong with a predictor.

    Attributes:
        make: from a tunnel to the predictor.
        caught_by: the invariant or the claim that fails, or `UNREADABLE`.
        says: what the error, or the invariant's place, must say (a regular expression).
        where: the tunnels in which the fault means something.
        name: short; that of `make` by default.
    """

    make: Callable
    caught_by: str
    says: str
    where: tuple[str, ...] = BOTH
    name: str = ""

    def __str__(self):
        return self.name or self.make.__name__.removeprefix("_")


def exact(tunnel):
    """Bayes, as probabilities that may be written on."""
    return lambda episodes: tunnel.oracle().predictive(episodes).to_numpy().copy()


def edited(edit):
    """Makes a predictor that edits the exact probabilities `[episode, step, symbol]`, in place or not."""

    def make(tunnel):
        def predictor(episodes):
            probs = exact(tunnel)(episodes)
            returned = edit(probs)
            return probs if returned is None else returned

        return predictor

    return make


def values_of(tunnel, episodes):
    """One-hot of what came, `[episode, step, symbol]`."""
    return np.eye(len(tunnel.reading.sites[tunnel.predict].support))[np.asarray(episodes.stream[tunnel.predict])]


# --- what cannot be read at all


def wrong(output, says, name):
    return PredictorFault(edited(output), UNREADABLE, says, name=name)


def _drawn_at_random(probs):
    return dist.Categorical(jnp.asarray(probs)).to_event(1)


class Unwilling:
    """An array of a foreign library, of the kind that must be detached before NumPy may see it."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("call detach() first")


def raises(tunnel):
    def predictor(episodes):
        raise KeyError("no such site")

    return predictor


def not_a_function(tunnel):
    return np.full((tunnel.length, 2), 0.5)


UNREADABLE_FAULTS = (
    wrong(lambda probs: probs[:, 0], "returned shape .*expected .*episode, step, symbol", "no step axis"),
    wrong(lambda probs: probs[:, 1:], "returned shape", "one step too few"),
    wrong(lambda probs: np.concatenate([probs, probs[:, :1]], axis=1), "returned shape", "one step too many"),
    wrong(lambda probs: probs[..., 1:], "returned shape", "one symbol too few"),
    wrong(lambda probs: np.pad(probs, ((0, 0), (0, 0), (0, 1))), "returned shape", "one symbol too many"),
    wrong(lambda probs: probs.swapaxes(0, 1), "returned shape", "steps before episodes"),
    wrong(lambda probs: probs[None], "returned shape", "an axis more"),
    wrong(lambda probs: probs.mean(axis=0), "returned shape", "one law for all episodes"),
    wrong(lambda probs: probs[1:], "returned shape", "one episode too few"),
    wrong(lambda probs: probs.max(axis=-1), "returned shape", "only the largest probability"),
    wrong(lambda probs: 0.5, "returned a float", "a number"),
    wrong(lambda probs: probs.astype(str), "type <U", "strings"),
    wrong(lambda probs: probs > 0.5, "type bool", "booleans"),
    wrong(lambda probs: probs.astype(complex), "type complex128", "complex numbers"),
    wrong(lambda probs: probs.astype(object), "type object", "objects"),
    wrong(lambda probs: probs.astype(np.float16), "float16.*return float32", "float16"),
    wrong(lambda probs: jnp.asarray(probs, jnp.bfloat16), "bfloat16.*return float32", "bfloat16"),
    wrong(lambda probs: [row.tolist()[: 1 + i % 2] for i, row in enumerate(probs)], "no array", "ragged lists"),
    wrong(lambda probs: (probs, None), "no array", "a pair"),
    wrong(lambda probs: {"law": probs}, "returned a dict", "a dictionary"),
    wrong(lambda probs: object(), "returned a object", "an object"),
    wrong(lambda probs: iter(probs), "returned a .*iterator", "an iterator"),
    wrong(lambda probs: Unwilling(), r"no array \(call detach\(\) first\)", "an array that will not be read"),
    PredictorFault(lambda tunnel: lambda episodes: None, UNREADABLE, "returned a NoneType", name="nothing"),
    wrong(
        lambda probs: Finite(jnp.log(jnp.asarray(probs)), 1 + np.arange(probs.shape[-1])),
        "values that are not those",
        "a law over 1 … K",
    ),
    wrong(
        lambda probs: Finite(jnp.log(jnp.asarray(probs)), np.arange(probs.shape[-1])[::-1].copy()),
        "values that are not those",
        "a law in reverse order",
    ),
    wrong(
        lambda probs: dist.Binomial(probs.shape[-1], jnp.asarray(probs[..., 0])),
        "values that are not those",
        "a binomial",
    ),
    wrong(lambda probs: dist.Poisson(jnp.asarray(probs[..., 0])), "Poisson.*cannot be listed", "a Poisson law"),
    wrong(lambda probs: dist.Normal(jnp.asarray(probs[..., 0]), 1.0), "Normal.*cannot be listed", "a normal law"),
    wrong(_drawn_at_random, "Independent.*cannot be listed", "a law of whole episodes"),
    PredictorFault(raises, UNREADABLE, "raised KeyError.*no such site"),
    PredictorFault(not_a_function, UNREADABLE, "the predictor is a ndarray"),
)

# --- rows that are no laws


def at(episode, step, change):
    def edit(probs):
        probs[episode, step] = change(probs[episode, step])

    return edit


def one_bad_row(name, change, caught_by, says):
    return PredictorFault(edited(at(3, 1, change)), caught_by, rf"episode 3, step 2 of \d+: {says}", name=name)


def only_in_the_last_batch(value):
    """Fine until its second full batch; for 2 batches of episodes."""

    def make(tunnel):
        batches = itertools.count()

        def predictor(episodes):
            probs = exact(tunnel)(episodes)
            if len(episodes) == BATCH and next(batches) == 1:
                probs[5, 2, 0] = value
            return probs

        return predictor

    return make


def first(row, value):
    return np.concatenate([[value], row[1:]])


def zero_where_the_oracle_has_mass(tunnel):
    def predictor(episodes):
        probs = exact(tunnel)(episodes)
        likeliest = np.arange(probs.shape[-1]) == probs[3, 1].argmax()
        probs[3, 1] = np.where(likeliest, 0.0, 1 / (len(likeliest) - 1))
        return probs

    return predictor


def log_probabilities(tunnel):
    return lambda episodes: tunnel.oracle().predictive(episodes).log_probs


ROW_FAULTS = (
    one_bad_row("NaN at one place", lambda row: first(row, np.nan), "finite", "it returned nan"),
    one_bad_row("a row of NaN", lambda row: row * np.nan, "finite", "it returned nan"),
    one_bad_row("an infinity", lambda row: first(row, np.inf), "finite", "it returned inf"),
    one_bad_row("a negative infinity", lambda row: first(row, -np.inf), "finite", "it returned -inf"),
    one_bad_row(
        "a negative probability", lambda row: row + first(0 * row, -1.0) + 1 / len(row), "normalised", "it returned -"
    ),
    one_bad_row("a sum above 1", lambda row: row * (1 + 1e-4), "normalised", "the row sums to 1.0001"),
    one_bad_row("a sum below 1", lambda row: row * (1 - 1e-4), "normalised", "the row sums to 0.9999"),
    one_bad_row("a row of zeros", lambda row: 0 * row, "normalised", "the row sums to 0"),
    PredictorFault(edited(lambda probs: 100 * probs), "normalised", "episode 0, step 1 .*sums to 100", name="per cent"),
    PredictorFault(log_probabilities, "finite", "it returned -inf", where=(BIJECTION,)),
    PredictorFault(log_probabilities, "normalised", "it returned -", where=(COIN,)),
    PredictorFault(
        zero_where_the_oracle_has_mass, "covers the oracle", r"episode 3, step 2 .*probability 0 for symbol \d"
    ),
    PredictorFault(
        only_in_the_last_batch(np.nan), "finite", f"episode {BATCH + 5}, step 3 .*nan", name="NaN in the last batch"
    ),
    PredictorFault(
        only_in_the_last_batch(-np.inf), "finite", f"episode {BATCH + 5}, step 3 .*-inf", name="-inf in the last batch"
    ),
    PredictorFault(
        only_in_the_last_batch(2.0),
        "normalised",
        f"episode {BATCH + 5}, step 3 .*sums to",
        name="a bad sum in the last batch",
    ),
)

# --- lawful rows that depend on what they must not


def leak(share, ahead=0, steps=slice(None)):
    """A share of the probability follows the value that comes `ahead` steps later."""

    def make(tunnel):
        def predictor(episodes):
            probs, came = exact(tunnel)(episodes), values_of(tunnel, episodes)
            told = np.concatenate([came[:, ahead:], np.repeat(came[:, -1:], ahead, axis=1)], axis=1)
            mixed = (1 - share) * probs + share * told
            probs[:, steps] = mixed[:, steps]
            return probs

        return predictor

    return make


def next_key_leaked(tunnel):
    """A key that comes next has another value than this one, so its number is (wrongly) taken off this one's law."""

    def predictor(episodes):
        probs, keys = exact(tunnel)(episodes), np.asarray(episodes.stream["key"])
        coming = np.eye(probs.shape[-1])[np.roll(keys, -1, axis=1)]
        probs[:, :-1] *= 1 - 1e-3 * coming[:, :-1]
        total = probs.sum(axis=-1, keepdims=True)  # 0 where somebody else's future makes an episode impossible
        return np.divide(probs, total, where=total > 0, out=np.zeros_like(probs))

    return predictor


def random(tunnel):
    generator = np.random.default_rng(0)

    def predictor(episodes):
        share = 1e-3 * generator.random()
        probs = exact(tunnel)(episodes)
        return (1 - share) * probs + share / probs.shape[-1]

    return predictor


def random_nan(tunnel):
    """NaN in one call of three."""
    calls = itertools.count()

    def predictor(episodes):
        probs = exact(tunnel)(episodes)
        if next(calls) % 3 == 2:
            probs[-1, -1] = np.nan
        return probs

    return predictor


def _with_batch_mean(probs):
    return 0.999 * probs + 0.001 * probs.mean(axis=0)


def _with_neighbour(probs):
    return 0.999 * probs + 0.001 * np.roll(probs, 1, axis=0)


def _first_row_of_the_batch(probs):
    probs[0] = 0.999 * probs[0] + 0.001 / probs.shape[-1]


PLACE = r"episode \d+, step \d of \d"
DEPENDENT_FAULTS = (
    PredictorFault(leak(1.0), "causal", PLACE, name="says what will come"),
    PredictorFault(leak(1e-3), "causal", PLACE, name="a leak of a thousandth"),
    PredictorFault(leak(1e-3, ahead=1), "causal", PLACE, name="a leak of the next step"),
    PredictorFault(
        leak(1e-3, steps=2), "causal", r"episode \d+, step 3 of .* of step 3 on", name="a leak at one step only"
    ),
    PredictorFault(next_key_leaked, "causal", PLACE, where=(BIJECTION,)),
    PredictorFault(random, "deterministic", f"{PLACE}: asked"),
    PredictorFault(random_nan, "deterministic", f"{PLACE}: asked", where=(COIN,)),
    PredictorFault(
        edited(_with_batch_mean), "deterministic", "asked among other episodes", name="averages over the batch"
    ),
    PredictorFault(edited(_with_neighbour), "deterministic", "asked", name="looks at its neighbour in the batch"),
    PredictorFault(edited(_first_row_of_the_batch), "deterministic", "asked", name="treats the first row apart"),
)

# --- wrong laws


def at_last_step(probs):
    probs[:, -1] = 0.8 * probs[:, -1] + 0.2 / probs.shape[-1]


def rarely_very_wrong(tunnel, rate=1 / 1000):
    """At the last step of few episodes (a hash of their past says which) it all but rules out the likelier values."""

    def predictor(episodes):
        probs = exact(tunnel)(episodes)
        past = np.concatenate([np.asarray(values)[:, :-1] for values in episodes.stream.values()], axis=1)
        picked = ((1 + past) @ np.random.default_rng(0).integers(1, 2**31, past.shape[1])) % round(1 / rate) == 0
        probs[picked, -1] = 1e-12 + np.eye(probs.shape[-1])[probs[picked, -1].argmin(axis=-1)]
        return probs / probs.sum(axis=-1, keepdims=True)

    return predictor


WRONG_LAWS = (
    PredictorFault(
        edited(lambda probs: np.roll(probs, 1, axis=-1) * 0.99 + 0.01 / probs.shape[-1]),
        "kl_bits",
        "",
        name="labels moved",
    ),
    PredictorFault(
        edited(lambda probs: 0.8 * probs + 0.2 / probs.shape[-1]),
        "kl_bits",
        "",
        where=(BIJECTION,),
        name="mass on what is ruled out",
    ),
    PredictorFault(edited(lambda probs: np.full_like(probs, 1 / probs.shape[-1])), "kl_bits", "", name="constant"),
    PredictorFault(edited(at_last_step), "every_step", "", where=(BIJECTION,), name="wrong at the last step only"),
)

PREDICTOR_FAULTS = (*UNREADABLE_FAULTS, *ROW_FAULTS, *DEPENDENT_FAULTS, *WRONG_LAWS)
