"""Anything that predicts, seen the same way: episodes in, probabilities `[episode, step, symbol]` out.

A predictor is a callable that takes `Episodes` (without latents) and returns either a NumPyro law over the predicted site's
values with batch shape `[episode, step]`, or an array of probabilities in the order of the site's support. Optional
attributes: `name`, `fingerprint` (hex: weights and configuration), `targets` and `training` (what it was trained on).
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.finite_laws import NORMALISATION

Predictor = Callable[[Episodes], Any]


class PredictorError(ValueError):
    """A predictor failed, or what it returned cannot be read as laws of the predicted site (its shape, its type)."""


def probabilities(predictor: Predictor, episodes: Episodes, tunnel: WindTunnel) -> np.ndarray:
    """What the predictor says, float64 `[episode, step, symbol]`; values are not checked (see `invariants`).

    Raises:
        PredictorError: it raised, or a wrong shape, type or set of values; says what was returned and what was expected.
    """
    support = finite_support(tunnel)
    if not callable(predictor):
        raise PredictorError(
            f"the predictor is a {type(predictor).__name__}; expected a function from episodes to probabilities "
            "[episode, step, symbol]"
        )
    try:
        output = predictor(episodes.without_latents())
    except Exception as error:  # whatever somebody else's code raises
        raise PredictorError(
            f"the predictor raised {type(error).__name__} on {len(episodes)} episodes of {tunnel.name!r}: {error}"
        ) from error
    expected = (len(episodes), tunnel.length, len(support))
    probs = _read(output, support)
    if probs.dtype.kind not in "fiu" and probs.dtype.name != "bfloat16":
        raise PredictorError(
            f"the predictor returned values of type {probs.dtype}; expected floating-point probabilities"
        )
    if probs.dtype.itemsize < 4:
        raise PredictorError(
            f"the predictor returned {probs.dtype}; half precision cannot express probabilities to the tolerance (its rows sum to 1 "
            "only to about 1e-3): return float32 or float64"
        )
    if probs.shape != expected:
        raise PredictorError(
            f"the predictor returned shape {probs.shape}; expected {expected}, [episode, step, symbol], the symbols in the order "
            f"of the support of {tunnel.predict!r}"
        )
    return probs.astype(np.float64)


def finite_support(tunnel: WindTunnel) -> np.ndarray:
    """The predicted site's values, `[symbol, *event]`.

    Raises:
        PredictorError: the site is not finite, or is several draws.
    """
    site = tunnel.reading.sites[tunnel.predict]
    draws = site.batch_shape[1:] if site.per_step else site.batch_shape
    if draws:
        raise PredictorError(
            f"the predicted site {tunnel.predict!r} is {math.prod(draws)} draws at once; certificates cover the law of a single "
            "one: predict a site that is drawn once"
        )
    if site.support is None:
        raise PredictorError(
            f"the predicted site {tunnel.predict!r} is not finite ({site.constraint}); certificates cover finite sites: predict a "
            "finite site, or discretise this one"
        )
    return site.support


def _read(output: Any, support: np.ndarray) -> np.ndarray:
    if isinstance(output, dist.Distribution):
        return _read_law(output, support)
    for attribute in ("probs", "probabilities"):
        if hasattr(output, attribute):
            output = getattr(output, attribute)
            break
    if not hasattr(output, "__array__") and not isinstance(output, list | tuple):
        raise PredictorError(
            f"the predictor returned a {type(output).__name__}; expected probabilities [episode, step, symbol], or a NumPyro "
            "distribution with batch shape [episode, step]"
        )
    try:
        return np.asarray(output)
    except Exception as error:  # whatever a foreign __array__ raises
        raise PredictorError(
            f"the predictor returned something that is no array ({error}); expected [episode, step, symbol]"
        ) from error


def _read_law(law: dist.Distribution, support: np.ndarray) -> np.ndarray:
    """Probabilities of the support's values under a NumPyro law over exactly these."""
    try:
        values = np.asarray(law.enumerate_support(expand=False))
    except NotImplementedError as error:
        raise PredictorError(
            f"the predictor returned a {type(law).__name__} (batch shape {law.batch_shape}, event shape {law.event_shape}), whose "
            f"values cannot be listed; expected a law over the {len(support)} values of the predicted site, batch shape "
            "[episode, step]"
        ) from error
    listed = values.reshape(len(values), -1)
    if listed.shape[1] != math.prod(law.event_shape) or not np.array_equal(listed, support.reshape(len(support), -1)):
        raise PredictorError(
            f"the predictor's {type(law).__name__} is over {len(values)} values that are not those of the predicted site's support "
            f"({len(support)}), in that order; give one probability for each of them"
        )
    if isinstance(law, Finite):
        return np.exp(np.asarray(law.log_probs))
    if isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits):
        return np.asarray(law.probs)
    return np.moveaxis(np.exp(np.asarray(exact_log_prob(law, values))), 0, -1)


def describe(predictor: Predictor, tunnel: WindTunnel) -> dict[str, Any]:
    """Name, kind, fingerprint and training facts of a predictor, as plain data.

    A predictor without a fingerprint of its own is identified by what it says on a fixed set of probe episodes.
    """
    fingerprint = getattr(predictor, "fingerprint", None)
    if fingerprint is None:
        said = np.ascontiguousarray(probabilities(predictor, tunnel.probe, tunnel))
        fingerprint = hashlib.sha256(said.tobytes()).hexdigest()
    kind = type(predictor).__name__
    name = getattr(predictor, "name", None) or getattr(predictor, "__name__", None) or kind
    return {
        "name": str(name),
        "kind": kind,
        "fingerprint": str(fingerprint),
        "targets": getattr(predictor, "targets", None),
        "training": getattr(predictor, "training", None),
    }


def first_bad_row(probs: np.ndarray, scored: np.ndarray) -> tuple[str, int, int, float, str] | None:
    """(invariant, episode, step, by how much, what is wrong) of the first row that is no probability law, or None.

    Args:
        probs: `[episode, step, symbol]`; must be finite everywhere.
        scored: the steps at which rows must be laws, bool `[step]`.
    """
    finite = np.isfinite(probs).all(axis=-1)
    if not finite.all():
        episode, step = (int(i) for i in np.argwhere(~finite)[0])
        row = probs[episode, step]
        return "finite", episode, step, math.inf, f"it returned {row[~np.isfinite(row)][0]}"
    lawful = (probs >= 0).all(axis=-1) & (np.abs(probs.sum(axis=-1) - 1) <= NORMALISATION) | ~scored
    if not lawful.all():
        episode, step = (int(i) for i in np.argwhere(~lawful)[0])
        row = probs[episode, step]
        wrong = f"it returned {row.min():.6g}" if row.min() < 0 else f"the row sums to {row.sum():.9g}"
        return "normalised", episode, step, float(max(abs(row.sum() - 1), -row.min())), wrong
    return None
