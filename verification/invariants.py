"""What any predictor must satisfy before its divergences mean anything: each failure names its position.

Checked on the first episodes of a certification (and, for values, on all of them). To add one: write a function that
returns an `Invariant`, and call it in `check_invariants`.
"""

import dataclasses
import warnings

import jax
import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import ImpossibleEvidenceWarning
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.finite_laws import NORMALISATION
from ppl_tunnels.verification.predictors import Predictor, first_bad_row, probabilities

# In probability. Float32 arithmetic in another order moves a softmax by some 1e-7; reading the future moves it by more.
REPRODUCIBILITY = 1e-5
# Different cuts at which the future is replaced, at most (all of them in short episodes).
_MOST_CUTS = 12


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
    "normalised": f"probabilities are not negative and sum to 1 within {NORMALISATION:g}",
    "covers the oracle": "no probability is 0 where the exact one is positive",
    "causal": f"changing what comes after a prediction changes it by at most {REPRODUCIBILITY:g}",
    "deterministic": f"the same episodes give the same probabilities, whatever else is in the batch, within {REPRODUCIBILITY:g}",
}


def position(tunnel: WindTunnel, episode: int, step: int, offset: int = 0) -> str:
    """An episode and step in words; steps count from 1, as in reports."""
    return f"episode {episode + offset}, step {step + 1} of {tunnel.length}"


def check_rows(tunnel: WindTunnel, probs: np.ndarray, exact: np.ndarray, offset: int = 0) -> list[Invariant]:
    """Finite, normalised, and covering the oracle; stops at the first kind that fails.

    Args:
        tunnel: for naming the position.
        probs: what the predictor said, `[episode, step, symbol]`.
        exact: the oracle's probabilities.
        offset: number of the first episode.
    """
    bad = first_bad_row(probs)
    findings = []
    for name in ("finite", "normalised"):
        if bad is not None and bad[0] == name:
            _, episode, step, what = bad
            where = f"{position(tunnel, episode, step, offset)}: {what}"
            return [
                *findings,
                Invariant(name, STATEMENTS[name], False, float("inf") if name == "finite" else 1.0, where),
            ]
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
    and everything after it come from another episode.
    """
    steps = tunnel.length
    base = probabilities(predictor, episodes, tunnel)
    worst, where = 0.0, None
    for cut in np.unique(np.linspace(0, steps - 1, min(steps, _MOST_CUTS)).astype(int)):
        with warnings.catch_warnings():
            # What follows the cut may be impossible under the program; nothing is looked at there.
            warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
            twin = probabilities(predictor, spliced(tunnel, episodes, other, int(cut)), tunnel)
        moved = np.abs(twin - base)[:, : cut + 1]
        moved = np.where(np.isnan(moved), np.inf, moved)
        if moved.max() > worst:
            worst = float(moved.max())
            episode, step, _ = (int(i) for i in np.unravel_index(moved.argmax(), moved.shape))
            where = (
                f"{position(tunnel, episode, step)}: its probabilities move by {worst:.3g} when only what is revealed from "
                f"{_revealed(tunnel, int(cut))} on is changed"
            )
    passed = worst <= REPRODUCIBILITY
    return Invariant("causal", STATEMENTS["causal"], passed, worst, None if passed else where)


def spliced(tunnel: WindTunnel, episodes: Episodes, other: Episodes, cut: int) -> Episodes:
    """Episodes with everything that is revealed after the prediction of step `cut` taken from other episodes."""
    streams = tunnel.reading.named("stream")
    latent = tunnel.predict not in streams
    revealed_first = streams if latent else streams[: streams.index(tunnel.predict)]
    stream = {}
    for name in streams:
        own, foreign = np.asarray(episodes.stream[name]), np.asarray(other.stream[name])
        keep = np.arange(tunnel.length) <= cut if name in revealed_first else np.arange(tunnel.length) < cut
        stream[name] = np.where(keep.reshape(1, -1, *[1] * (own.ndim - 2)), own, foreign)
    return Episodes(stream=stream, context=episodes.context)


def _revealed(tunnel: WindTunnel, cut: int) -> str:
    return (
        f"{tunnel.predict!r} of step {cut + 1}"
        if tunnel.predict in tunnel.reading.named("stream")
        else f"step {cut + 2}"
    )


def check_deterministic(predictor: Predictor, tunnel: WindTunnel, episodes: Episodes) -> Invariant:
    """The same episodes again, in reverse order: the same rows, in reverse order."""
    base = probabilities(predictor, episodes, tunnel)
    again = probabilities(predictor, jax.tree.map(lambda leaf: np.asarray(leaf)[::-1].copy(), episodes), tunnel)[::-1]
    moved = np.abs(again - base)
    worst = float(moved.max())
    where = None
    if not worst <= REPRODUCIBILITY:
        episode, step, _ = (int(i) for i in np.unravel_index(moved.argmax(), moved.shape))
        where = f"{position(tunnel, episode, step)}: asked twice, its probabilities differ by {worst:.3g}"
    return Invariant("deterministic", STATEMENTS["deterministic"], where is None, worst, where)


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
        check_deterministic(predictor, tunnel, episodes),
    )
