"""What an encoding must obey, tested by changing episodes and looking at what a model would read.

    Hidden: no input up to a readout changes with the answer read there, or with anything that comes after it. A label that
    stands at a position whose input holds it teaches copying.
    Shown: the inputs up to a readout do change with each piece of evidence; otherwise Bayes' answer cannot be given there.

Only scored predictions are looked at. An answer may be left out for good (a blank), so earlier answers need not be shown.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.tunnel import WindTunnel

if TYPE_CHECKING:
    from ppl_tunnels.encoding import Encoding


def encoding_faults(encoding: "Encoding", tunnel: WindTunnel) -> list[str]:
    """Where the encoding leaks an answer or withholds evidence; empty if nowhere.

    Args:
        encoding: anything with `encode(episodes)` and `readout`.
        tunnel: whose probe episodes are changed, one site of one step at a time.

    Example:
        >>> import ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=4)
        >>> encoding_faults(coin.encoding(), coin)
        []
    """
    episodes, predict = tunnel.probe, tunnel.predict
    streams = tunnel.reading.named("stream")
    evidence = streams[: streams.index(predict)] if predict in streams else streams
    readout, own, faults = np.asarray(encoding.readout), _inputs(encoding, episodes), []
    for site in streams:
        values = np.asarray(episodes.stream[site])
        # The value of another episode, where the two differ.
        other = np.roll(values, 1, axis=0)
        for step in range(tunnel.length):
            differs = (values[:, step] != other[:, step]).reshape(len(values), -1).any(axis=1)
            if not differs.any():
                continue
            swapped = values.copy()
            swapped[:, step] = other[:, step]
            changed = _inputs(encoding, dataclasses.replace(episodes, stream={**episodes.stream, site: swapped}))
            first = _first_change(own, changed, differs)
            faults += _faults(site, step, first, readout, tunnel.scored, site in evidence, site == predict)
    return faults


def _faults(
    site: str, step: int, first: int, readout: np.ndarray, scored: np.ndarray, evidence: bool, predicted: bool
) -> list[str]:
    """What is wrong with where a site of one step is first seen, for the predictions before, at and after it."""
    faults = []
    for at in np.flatnonzero(scored):
        known = at > step or (at == step and evidence)
        if not known and first <= readout[at]:
            faults.append(
                f"step {at + 1}: what position {readout[at]} and those before it hold changes with {site!r} of "
                f"{'that step' if at == step else f'step {step + 1}'}, whose law is predicted there: the answer leaks"
                if predicted
                else f"step {at + 1}: what position {readout[at]} and those before it hold changes with {site!r} of step {step + 1}, "
                "which comes after the prediction"
            )
        elif known and first > readout[at] and not predicted:
            faults.append(
                f"step {at + 1}: the positions up to {readout[at]} do not change with {site!r} of "
                f"{'that step' if at == step else f'step {step + 1}'}, on which Bayes' answer rests"
            )
    return faults


def _first_change(own: np.ndarray, changed: np.ndarray, differs: np.ndarray) -> int:
    """The first position that differs in any episode whose values do."""
    positions = np.flatnonzero((own != changed)[differs].any(axis=(0, 2)))
    return int(positions[0]) if len(positions) else own.shape[1]


def _inputs(encoding: Any, episodes: Episodes) -> np.ndarray:
    """Everything a model reads, `[episode, position, token and features]`."""
    tokens, features = encoding.encode(episodes)
    columns = np.asarray(tokens, float)[..., None]
    return columns if features is None else np.concatenate([columns, np.asarray(features, float)], axis=-1)
