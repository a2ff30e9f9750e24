"""What any predictor must satisfy before its divergences mean anything: each failure names its position.

Checked on the first episodes of a certification (and, for values, on all of them). To add one: write a function that
returns an `Invariant`, and call it in `check_invariants`.
"""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import ImpossibleEvidenceWarning
from ppl_tunnels.program import double_precision
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.finite_laws import NORMALISATION
from ppl_tunnels.verification.predictors import Predictor, PredictorError, first_bad_row, probabilities

# In probability. Float32 arithmetic in another order moves a softmax by some 1e-7; reading the future moves it by more.
REPRODUCIBILITY = 1e-5
# Times that the predictor is asked about twins, at most; each time every episode has a cut of its own.
_MOST_TWINS = 12


@dataclasses.dataclass(frozen=True)
class Invariant:
    """One finding.

    Attributes:
        name: of the property.
        statement: what must hold, in words.
        passed: whether it did.
        worst: the largest violation seen (in probability), 0 if none.
        where: the position of the first or worst failure, None if passed.
    """

    name: str
    statement: str
    passed: bool
    worst: float
    where: str | None = None


STATEMENTS = {
    "finite": "every probability is a finite number",
    "normalised": f"at predicted steps, probabilities are not negative and sum to 1 within {NORMALISATION:g}",
    "covers the oracle": "at predicted steps, no probability is 0 where the exact one is positive",
    "causal": f"changing what comes after a prediction changes it by at most {REPRODUCIBILITY:g}",
    "deterministic": f"the same episodes give the same probabilities, whatever else is in the batch, within {REPRODUCIBILITY:g}",
}


def position(tunnel: WindTunnel, episode: int, step: int, offset: int = 0) -> str:
    """An episode and step in words; steps count from 1, as in reports."""
    return f"episode {episode + offset}, step {step + 1} of {tunnel.length}"


def check_rows(tunnel: WindTunnel, probs: np.ndarray, exact: np.ndarray, offset: int = 0) -> list[Invariant]:
    """Finite, normalised, and covering the oracle; stops at the first kind that fails.

    What is said at steps that do not count may be anything finite; a NaN is a failure even there.

    Args:
        tunnel: for naming the position.
        probs: what the predictor said, `[episode, step, symbol]`.
        exact: the oracle's probabilities.
        offset: number of the first episode.
    """
    bad = first_bad_row(probs, tunnel.scored)
    findings = []
    for name in ("finite", "normalised"):
        if bad is not None and bad[0] == name:
            _, episode, step, worst, what = bad
            where = f"{position(tunnel, episode, step, offset)}: {what}"
            return [*findings, Invariant(name, STATEMENTS[name], False, worst, where)]
        findings.append(Invariant(name, STATEMENTS[name], True, 0.0))
    scored = tunnel.scored[None, :, None]
    missed = (probs == 0) & (exact > 0) & scored
    if missed.any():
        worst = np.where(missed, exact, 0.0)
        episode, step, symbol = (int(i) for i in np.unravel_index(worst.argmax(), worst.shape))
        where = (
            f"{position(tunnel, episode, step, offset)}: probability 0 for symbol {symbol}, which the oracle gives "
            f"{exact[episode, step, symbol]:.6g}"
        )
        findings.append(
            Invariant("covers the oracle", STATEMENTS["covers the oracle"], False, float(worst.max()), where)
        )
    else:
        findings.append(Invariant("covers the oracle", STATEMENTS["covers the oracle"], True, 0.0))
    return findings


def check_causal(predictor: Predictor, tunnel: WindTunnel, episodes: Episodes, other: Episodes) -> Invariant:
    """Twins that share a prefix and differ after it must get the same predictions up to there.

    At a cut t, the earlier sites of step t stay (they are revealed before the prediction); the predicted site of step t
    and everything after it come from another episode. Every step is the cut of some episodes, so that a leak of a single
    step is seen too.
    """
    steps = tunnel.length
    base = probabilities(predictor, episodes, tunnel)
    worst, where = 0.0, None
    for first in np.unique(np.linspace(0, steps - 1, min(steps, _MOST_TWINS)).astype(int)):
        cuts = (first + np.arange(len(episodes))) % steps
        with warnings.catch_warnings():
            # What follows the cut may be impossible under the program; nothing is looked at there.
            warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
            twin = _of_twins(predictor, spliced(tunnel, episodes, other, cuts), tunnel)
        compared = (np.arange(steps) <= cuts[:, None]) & tunnel.scored
        moved = np.where(compared[..., None], _distance(twin, base), 0.0)
        if moved.max() > worst:
            worst = float(moved.max())
            episode, step, _ = (int(i) for i in np.unravel_index(moved.argmax(), moved.shape))
            where = (
                f"{position(tunnel, episode, step)}: its probabilities move by {worst:.3g} when only what is revealed from "
                f"{_revealed(tunnel, int(cuts[episode]))} on is changed"
            )
    passed = worst <= REPRODUCIBILITY
    return Invariant("causal", STATEMENTS["causal"], passed, worst, None if passed else where)


def _of_twins(predictor: Predictor, twins: Episodes, tunnel: WindTunnel) -> np.ndarray:
    try:
        return probabilities(predictor, twins, tunnel)
    except PredictorError as error:
        raise PredictorError(
            f"{error} (these episodes' futures had been replaced by others', to see whether predictions depend on them; a predictor "
            "must bear futures that the program rules out)"
        ) from error


def spliced(tunnel: WindTunnel, episodes: Episodes, other: Episodes, cut: int | np.ndarray) -> Episodes:
    """Episodes with everything that is revealed after the prediction of step `cut` taken from other episodes.

    Args:
        tunnel: whose roles decide what a step reveals before its prediction.
        episodes: what stays.
        other: as many episodes again.
        cut: one step, or a step for each episode, int `[episode]`.
    """
    streams = tunnel.reading.named("stream")
    latent = tunnel.predict not in streams
    revealed_first = streams if latent else streams[: streams.index(tunnel.predict)]
    steps, cuts, stream = np.arange(tunnel.length), np.reshape(cut, (-1, 1)), {}
    for name in streams:
        own, foreign = np.asarray(episodes.stream[name]), np.asarray(other.stream[name])
        keep = steps <= cuts if name in revealed_first else steps < cuts
        stream[name] = np.where(keep.reshape(*keep.shape, *[1] * (own.ndim - 2)), own, foreign)
    return _arrays(Episodes(stream=stream, context=episodes.context))


def _revealed(tunnel: WindTunnel, cut: int) -> str:
    return (
        f"{tunnel.predict!r} of step {cut + 1}"
        if tunnel.predict in tunnel.reading.named("stream")
        else f"step {cut + 2}"
    )


def check_deterministic(predictor: Predictor, tunnel: WindTunnel, episodes: Episodes, other: Episodes) -> Invariant:
    """The same episodes asked about again, in reverse order, and half of them among others: the same rows."""
    base, half = probabilities(predictor, episodes, tunnel), len(episodes) // 2
    turned = jax.tree.map(lambda leaf: np.asarray(leaf)[::-1], episodes)
    # Whatever is averaged over a batch survives a change of order, but not a change of company.
    mixed = jax.tree.map(lambda own, foreign: np.concatenate([foreign[half:], own[:half]]), episodes, other)
    worst, where = 0.0, None
    for again, how in (
        (probabilities(predictor, _arrays(turned), tunnel)[::-1], "asked twice"),
        (probabilities(predictor, _arrays(mixed), tunnel)[len(episodes) - half :], "asked among other episodes"),
    ):
        moved = np.where(tunnel.scored[:, None], _distance(again, base[: len(again)]), 0.0)
        if moved.max(initial=0.0) > worst:
            worst = float(moved.max())
            episode, step, _ = (int(i) for i in np.unravel_index(moved.argmax(), moved.shape))
            where = f"{position(tunnel, episode, step)}: {how}, its probabilities differ by {worst:.3g}"
    passed = worst <= REPRODUCIBILITY
    return Invariant("deterministic", STATEMENTS["deterministic"], passed, worst, None if passed else where)


def _distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """|first - second|, infinite where either is NaN."""
    with np.errstate(invalid="ignore"):
        moved = np.abs(first - second)
    return np.where(np.isnan(moved), np.inf, moved)


def _arrays(episodes: Episodes) -> Episodes:
    """As JAX arrays, which is what a predictor is given elsewhere."""
    with double_precision():
        return jax.tree.map(jnp.asarray, episodes)


def check_invariants(
    predictor: Predictor, tunnel: WindTunnel, episodes: Episodes, other: Episodes, exact: np.ndarray
) -> tuple[Invariant, ...]:
    """All invariants on one batch; those that need meaningful rows are skipped if rows are not laws.

    Args:
        predictor: whom.
        tunnel: where.
        episodes: the batch, without latents.
        other: as many episodes again, for twins.
        exact: the oracle's probabilities for the batch.
    """
    rows = check_rows(tunnel, probabilities(predictor, episodes, tunnel), exact)
    if not all(finding.passed for finding in rows[:2]):
        return tuple(rows)
    return (
        *rows,
        check_causal(predictor, tunnel, episodes, other),
        check_deterministic(predictor, tunnel, episodes, other),
    )
