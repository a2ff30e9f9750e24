"""Divergences of a predictor from the oracle on fresh episodes, per sequence and per step.

The independent unit is the sequence: steps within one are averaged before anything is concluded from them.
"""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.divergences import (
    entropy_bits,
    entropy_error_bits,
    floored,
    jensen_shannon_bits,
    kl_bits,
    total_variation,
)
from ppl_tunnels.verification.invariants import Invariant, check_rows
from ppl_tunnels.verification.predictors import Predictor, probabilities

# Episodes judged at once: bounds memory, and keeps every batch of one shape.
BATCH = 2048


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What was measured over scored steps.

    Attributes:
        kl: floored KL in bits, `[episode, scored step]`.
        total_variation: mean over scored steps, `[episode]`.
        entropy_error: mean over scored steps in bits, `[episode]`.
        jensen_shannon: mean over scored steps in bits, `[episode]`.
        raw_kl: mean unfloored KL in bits; infinite if any row misses mass.
        ruled_out_mass: mean probability put where the oracle has none.
        model_entropy, oracle_entropy, entropy_error_by_step: means in bits, `[scored step]`.
        failed: an invariant that some row broke; the arrays then end before that batch.
    """

    kl: np.ndarray
    total_variation: np.ndarray
    entropy_error: np.ndarray
    jensen_shannon: np.ndarray
    raw_kl: float
    ruled_out_mass: float
    model_entropy: np.ndarray
    oracle_entropy: np.ndarray
    entropy_error_by_step: np.ndarray
    failed: Invariant | None = None


def batches(tunnel: WindTunnel, key: jax.Array, episodes: int) -> Iterator[Episodes]:
    """Fresh episodes without latents, in batches of one shape; the total is a multiple of the batch size.

    Args:
        tunnel: what to draw from.
        key: each batch folds its own number into it.
        episodes: how many; see `rounded_up`.
    """
    size = min(BATCH, episodes)
    for number in range(episodes // size):
        yield tunnel.sample(jax.random.fold_in(key, number), size).without_latents()


def rounded_up(episodes: int) -> int:
    """The number of episodes that whole batches make.

    Example:
        >>> rounded_up(100), rounded_up(2049)
        (100, 4096)
    """
    return episodes if episodes <= BATCH else -(-episodes // BATCH) * BATCH


def evaluate(
    predictor: Predictor,
    tunnel: WindTunnel,
    key: jax.Array,
    episodes: int,
    *,
    tolerance_bits: float,
    on_progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Judge a predictor on fresh episodes.

    Args:
        predictor: whom.
        tunnel: where.
        key: for the episodes.
        episodes: how many (whole batches).
        tolerance_bits: fixes the floor of the KL.
        on_progress: called with the number of episodes judged so far.
    """
    oracle, scored = tunnel.oracle(), tunnel.scored
    rows: list[dict[str, np.ndarray]] = []
    failed, done = None, 0
    for batch in batches(tunnel, key, episodes):
        exact = oracle.predictive(batch).to_numpy()
        said = probabilities(predictor, batch, tunnel)
        failed = next((finding for finding in check_rows(tunnel, said, exact, done) if not finding.passed), None)
        if failed is not None and failed.name != "covers the oracle":
            break
        rows.append(_measure(exact[:, scored], said[:, scored], tolerance_bits))
        done += len(batch)
        if on_progress is not None:
            on_progress(done)
        if failed is not None:
            break
    steps = int(scored.sum())
    if not rows:
        empty, none = np.zeros(0), np.zeros(steps)
        return Evaluation(np.zeros((0, steps)), empty, empty, empty, np.inf, 0.0, none, none, none, failed)
    joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return Evaluation(
        kl=joined["kl"],
        total_variation=joined["total_variation"],
        entropy_error=joined["entropy_error"].mean(axis=1),
        jensen_shannon=joined["jensen_shannon"],
        raw_kl=float(joined["raw_kl"].mean()),
        ruled_out_mass=float(joined["ruled_out_mass"].mean()),
        model_entropy=joined["model_entropy"].mean(axis=0),
        oracle_entropy=joined["oracle_entropy"].mean(axis=0),
        entropy_error_by_step=joined["entropy_error"].mean(axis=0),
        failed=failed,
    )


def _measure(exact: np.ndarray, said: np.ndarray, tolerance_bits: float) -> dict[str, np.ndarray]:
    return {
        "kl": kl_bits(exact, floored(said, tolerance_bits)),
        "raw_kl": kl_bits(exact, said).mean(axis=1),
        "total_variation": total_variation(exact, said).mean(axis=1),
        "jensen_shannon": jensen_shannon_bits(exact, said).mean(axis=1),
        "entropy_error": entropy_error_bits(exact, said),
        "ruled_out_mass": np.where(exact == 0, said, 0.0).sum(axis=-1).mean(axis=1),
        "model_entropy": entropy_bits(said),
        "oracle_entropy": entropy_bits(exact),
    }
