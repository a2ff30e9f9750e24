"""The ladder of a tunnel: how far each reference agent is from Bayes, and whether the tunnel demands anything at all."""

import dataclasses
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.laws import rows_of
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification import law_divergences
from ppl_tunnels.verification.divergences import entropy_error_bits, floored, kl_bits, total_variation
from ppl_tunnels.verification.reference_agents import reference_agents

# Episodes that the ladder is measured on: enough for two digits, cheap beside a certificate.
LADDER_EPISODES = 2048
# Where the laws are densities, whose divergences may have to be integrated one by one.
_LADDER_OF_DENSITIES = 128


@dataclasses.dataclass(frozen=True)
class Rung:
    """One agent's place.

    Attributes:
        agent, description: who.
        kl_bits: mean floored KL from the oracle (floored as in the certificate's claim, so always finite); of densities,
            the KL itself.
        unbounded: whether the unfloored KL is infinite: the agent rules out what can happen.
        total_variation, entropy_error_bits: means; None for the total variation of densities in several dimensions.
        within_tolerance: whether this agent's KL is within the tolerance.
        trivial: whether that would make the tunnel vacuous.
    """

    agent: str
    description: str
    kl_bits: float
    unbounded: bool
    total_variation: float | None
    entropy_error_bits: float
    within_tolerance: bool
    trivial: bool


def ladder(
    tunnel: WindTunnel, key: jax.Array, *, tolerance_bits: float, episodes: int | None = None
) -> tuple[Rung, ...]:
    """Measure every reference agent, the farthest first.

    Args:
        tunnel: where.
        key: for the episodes.
        tolerance_bits: what "within" means, and the floor of the KL.
        episodes: how many to draw; by default 2,048, or 128 where the predicted site is not finite.
    """
    finite = tunnel.reading.sites[tunnel.predict].support is not None
    count = episodes or (LADDER_EPISODES if finite else _LADDER_OF_DENSITIES)
    drawn = tunnel.sample(key, count).without_latents()
    scored = (slice(None), np.flatnonzero(tunnel.scored))
    exact = rows_of(tunnel.oracle().predictive(drawn), scored)
    exact = exact.to_numpy() if finite else exact
    rungs = []
    for agent in reference_agents(tunnel):
        said = agent(drawn)
        if finite:
            distances = _finite_distances(exact, said[scored], tolerance_bits)
        else:
            distances = _distances(exact, rows_of(said, scored))
        rungs.append(
            Rung(
                agent=agent.name,
                description=agent.description,
                within_tolerance=distances["kl_bits"] <= tolerance_bits,
                trivial=agent.trivial,
                **distances,
            )
        )
    return tuple(sorted(rungs, key=lambda rung: -rung.kl_bits))


def _finite_distances(exact: np.ndarray, said: np.ndarray, tolerance_bits: float) -> dict[str, Any]:
    return {
        "kl_bits": float(kl_bits(exact, floored(said, tolerance_bits)).mean()),
        "unbounded": bool(np.isinf(kl_bits(exact, said)).any()),
        "total_variation": float(total_variation(exact, said).mean()),
        "entropy_error_bits": float(entropy_error_bits(exact, said).mean()),
    }


def _distances(exact: dist.Distribution, said: dist.Distribution) -> dict[str, Any]:
    """The same of any laws."""
    kl = law_divergences.kl_bits(exact, said).value
    several = bool(exact.event_shape)
    entropies = [law_divergences.entropy_bits(law).value for law in (exact, said)]
    return {
        "kl_bits": float(kl.mean()),
        "unbounded": bool(np.isinf(kl).any()),
        "total_variation": None if several else float(law_divergences.total_variation(exact, said).value.mean()),
        "entropy_error_bits": float(np.abs(entropies[0] - entropies[1]).mean()),
    }


def vacuous(rungs: tuple[Rung, ...]) -> Rung | None:
    """A trivial agent within the tolerance, if any: then nothing can be certified in this tunnel."""
    return next((rung for rung in rungs if rung.trivial and rung.within_tolerance), None)
