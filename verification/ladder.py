"""The ladder of a tunnel: how far each reference agent is from Bayes, and whether the tunnel demands anything at all."""

import dataclasses

import jax
import numpy as np

from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.divergences import entropy_error_bits, floored, kl_bits, total_variation
from ppl_tunnels.verification.reference_agents import reference_agents

# Episodes that the ladder is measured on: enough for two digits, cheap beside a certificate.
LADDER_EPISODES = 2048


@dataclasses.dataclass(frozen=True)
class Rung:
    """One agent's place.

    Attributes:
        agent, description: who.
        kl_bits: mean floored KL from the oracle (floored as in the certificate's claim, so always finite).
        unbounded: whether the unfloored KL is infinite: the agent rules out what can happen.
        total_variation, entropy_error_bits: means.
        within_tolerance: whether this agent's KL is within the tolerance.
        trivial: whether that would make the tunnel vacuous.
    """

    agent: str
    description: str
    kl_bits: float
    unbounded: bool
    total_variation: float
    entropy_error_bits: float
    within_tolerance: bool
    trivial: bool


def ladder(
    tunnel: WindTunnel, key: jax.Array, *, tolerance_bits: float, episodes: int = LADDER_EPISODES
) -> tuple[Rung, ...]:
    """Measure every reference agent, the farthest first.

    Args:
        tunnel: where.
        key: for the episodes.
        tolerance_bits: what "within" means, and the floor of the KL.
        episodes: how many to draw.
    """
    drawn = tunnel.sample(key, episodes).without_latents()
    scored = tunnel.scored
    exact = tunnel.oracle().predictive(drawn).to_numpy()[:, scored]
    rungs = []
    for agent in reference_agents(tunnel):
        said = agent(drawn)[:, scored]
        kl = float(kl_bits(exact, floored(said, tolerance_bits)).mean())
        rungs.append(
            Rung(
                agent=agent.name,
                description=agent.description,
                kl_bits=kl,
                unbounded=bool(np.isinf(kl_bits(exact, said)).any()),
                total_variation=float(total_variation(exact, said).mean()),
                entropy_error_bits=float(entropy_error_bits(exact, said).mean()),
                within_tolerance=kl <= tolerance_bits,
                trivial=agent.trivial,
            )
        )
    return tuple(sorted(rungs, key=lambda rung: -rung.kl_bits))


def vacuous(rungs: tuple[Rung, ...]) -> Rung | None:
    """A trivial agent within the tolerance, if any: then nothing can be certified in this tunnel."""
    return next((rung for rung in rungs if rung.trivial and rung.within_tolerance), None)
