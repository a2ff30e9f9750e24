"""Predictors that are Bayesian in some way, but wrong: the ladder a model is measured against.

Most are the tunnel's own oracle with some evidence hidden. Matching the Bayesian entropy tells none of the relabelled ones
from Bayes, and an average over positions hides agents that forget; so a certificate names every agent's divergence, and a
tunnel in which a constant or the last step alone comes within the tolerance certifies nothing.

To add an agent: write its function here and list it in `reference_agents`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.oracles.oracle import Oracle
from ppl_tunnels.tunnel import WindTunnel


@dataclasses.dataclass(frozen=True)
class ReferenceAgent:
    """A named impostor; a Predictor.

    Attributes:
        name: short, unique within the ladder.
        description: what it does, in words.
        trivial: whether a tunnel in which it matches Bayes demands nothing (it ignores all evidence, or all but the last).
        predict: `episodes -> probabilities [episode, step, symbol]`; where the predicted site is not finite, a law.
    """

    name: str
    description: str
    trivial: bool
    predict: Callable[[Episodes], Any] = dataclasses.field(repr=False)

    def __call__(self, episodes: Episodes) -> Any:
        return self.predict(episodes)


def reference_agents(tunnel: WindTunnel, windows: tuple[int, ...] | None = None) -> tuple[ReferenceAgent, ...]:
    """The ladder of a tunnel.

    Args:
        tunnel: whose oracle the agents distort.
        windows: memories, in steps; by default 2, 3, 4, 6, 8, 12, 16, … below those that cover everything.

    Example:
        >>> import ppl_tunnels
        >>> [agent.name for agent in reference_agents(ppl_tunnels.load_tunnel("coin").configure(length=4))]
        ['uniform', 'prior', 'memoryless', 'window-2', 'label-permuted']
    """
    oracle, steps = tunnel.oracle(), tunnel.length
    latent = tunnel.predict in tunnel.reading.named("latent")
    # A latent is predicted with its own step's evidence, which is one step of memory.
    own = 1 if latent else 0
    symbols = tunnel.reading.sites[tunnel.predict].support_size
    agents = []
    if symbols is not None:
        agents.append(ReferenceAgent("uniform", "the same probability for every value, always", True, _uniform(tunnel)))
    agents.append(
        ReferenceAgent(
            "prior",
            "Bayes without evidence from other steps" if latent else "Bayes without evidence",
            True,
            _masked(oracle, np.zeros((steps, steps), dtype=bool)),
        )
    )
    if not latent:
        agents.append(
            ReferenceAgent(
                "memoryless", "Bayes on the last step's evidence alone", True, _masked(oracle, window_mask(steps, 1))
            )
        )
    longest = steps - 1 + own  # with so much memory nothing is forgotten
    for width in _widths(longest) if windows is None else windows:
        agents.append(
            ReferenceAgent(
                f"window-{width}",
                f"Bayes on the last {width} steps' evidence",
                False,
                _masked(oracle, window_mask(steps, width - own)),
            )
        )
    if symbols not in (None, 1):
        agents.append(
            ReferenceAgent(
                "label-permuted",
                "Bayes with every value's name moved to the next: the exact entropy",
                False,
                _relabelled(oracle),
            )
        )
    return tuple(agents)


def window_mask(steps: int, width: int) -> np.ndarray:
    """`visible` for a memory of `width` earlier steps, bool `[step, step]`.

    Example:
        >>> window_mask(3, 1).astype(int).tolist()
        [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    """
    earlier = np.arange(steps)[:, None] - np.arange(steps)[None, :]
    return (earlier >= 1) & (earlier <= width)


def _widths(longest: int) -> tuple[int, ...]:
    doubling = [width for power in range(1, 12) for width in (2**power, 3 * 2 ** (power - 1))]
    return tuple(width for width in sorted(doubling) if width < longest)


def _uniform(tunnel: WindTunnel) -> Callable[[Episodes], np.ndarray]:
    def predict(episodes: Episodes) -> np.ndarray:
        size = tunnel.reading.sites[tunnel.predict].support_size
        assert size is not None, tunnel.predict
        return np.full((len(episodes), tunnel.length, size), 1.0 / size)

    return predict


def _masked(oracle: Oracle, visible: np.ndarray) -> Callable[[Episodes], Any]:
    def predict(episodes: Episodes) -> Any:
        law = oracle.predictive(episodes, visible=visible)
        return law.to_numpy() if isinstance(law, Finite) else law

    return predict


def _relabelled(oracle: Oracle) -> Callable[[Episodes], np.ndarray]:
    return lambda episodes: np.roll(oracle.predictive(episodes).to_numpy(), 1, axis=-1)
