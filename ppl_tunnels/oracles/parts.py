"""Finding the parts of a program: which continuous latents and stream sites belong together, and who can infer them."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np

from ppl_tunnels.oracles.local import (
    MOST_LOCAL_VALUES,
    continuous_latents,
    finite_latents,
    local_count,
    why_not_local,
)
from ppl_tunnels.oracles.mixture import MOST_HYPOTHESES, PartsEngine
from ppl_tunnels.oracles.part import Given, Part
from ppl_tunnels.oracles.plain import PlainPart
from ppl_tunnels.program import evaluated, log_probs_given

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

PartBuilder = Callable[..., "Part | str"]


def parts_engine(tunnel: "WindTunnel", kinds: tuple[PartBuilder, ...]) -> PartsEngine | str:
    """Exact inference by parts of these kinds, the first that fits each; or which condition the program fails."""
    latents = continuous_latents(tunnel)
    if not latents:
        return "every latent is finite"
    reason = _why_not_given_the_finite(tunnel)
    if reason:
        return reason
    given = Given(tunnel)
    groups, fixed = _groups(tunnel)
    parts: list[Part] = []
    for names, streams in groups:
        counts_fixed = fixed == names if fixed is not None else not parts
        refusals = []
        for build in kinds if names else (PlainPart.from_tunnel,):
            part = build(given, names, streams, fixed=counts_fixed)
            if not isinstance(part, str):
                parts.append(part)
                break
            refusals.append(part)
        else:
            return "; ".join(dict.fromkeys(refusals))
    return PartsEngine(tunnel, tuple(parts))


def _why_not_given_the_finite(tunnel: "WindTunnel") -> str | None:
    sites = tunnel.reading.sites
    statics = [sites[name] for name in finite_latents(tunnel) if not sites[name].per_step]
    hypotheses = math.prod(float(len(site.support)) ** math.prod(site.batch_shape) for site in statics)
    if hypotheses > MOST_HYPOTHESES:
        return (
            f"the static finite latents {', '.join(repr(site.name) for site in statics)} have {hypotheses:,.0f} joint values (at most "
            f"{MOST_HYPOTHESES:,} get an inference each); use a smaller configuration"
        )
    if local_count(tunnel) > MOST_LOCAL_VALUES:
        return f"the latents of one step have {local_count(tunnel):.3g} joint values (at most {MOST_LOCAL_VALUES:,})"
    if any(sites[name].per_step for name in finite_latents(tunnel)):
        return why_not_local(tunnel)
    return None


def _groups(tunnel: "WindTunnel") -> tuple[list[tuple[tuple[str, ...], tuple[str, ...]]], tuple[str, ...] | None]:
    """(latents, stream sites) that belong together, and the latents that the fixed factors depend on, if any."""
    sites, latents = tunnel.reading.sites, continuous_latents(tunnel)
    streams = tunnel.reading.named("stream")
    moved = _moved(tunnel)
    group = {name: {name} for name in latents}

    def join(names: list[str]) -> None:
        together = set().union(*(group[name] for name in names))
        for name in together:
            group[name] = together

    for site in sites:
        touching = [name for name in latents if site in moved[name]]
        own = [site] if site in group else []
        if touching:
            join(touching + own)
    fixed_sites = [n for n, s in sites.items() if s.role == "context" or (s.role == "latent" and s.support is not None)]
    touching_fixed = [name for name in latents if any(site in moved[name] for site in fixed_sites)]
    if touching_fixed:
        join(touching_fixed)
    if any(sites[name].per_step for name in finite_latents(tunnel)):
        join(list(latents))  # a sum over a step's latents ties its sites together
    out, seen = [], set()
    for name in latents:
        if name in seen:
            continue
        names = tuple(other for other in latents if other in group[name])
        seen |= set(names)
        touched = [s for s in streams if any(s in moved[other] for other in names)]
        out.append((names, tuple(touched)))
    rest = tuple(s for s in streams if all(s not in touched for _, touched in out))
    if any(sites[name].per_step for name in finite_latents(tunnel)):
        out[0] = (out[0][0], streams)
    elif rest:
        out.append(((), rest))
    fixed = next((names for names, _ in out if touching_fixed and touching_fixed[0] in names), None)
    return out, fixed


def _moved(tunnel: "WindTunnel") -> dict[str, set[str]]:
    """Of every continuous latent: the other sites whose laws move with it."""
    sites = tunnel.reading.sites
    draws = {**tunnel.probe.context, **tunnel.probe.latent, **tunnel.probe.stream}
    latents = continuous_latents(tunnel)
    runs = [draws, *({**draws, name: np.roll(draws[name], 1, axis=0)} for name in latents)]
    together = {name: np.stack([run[name] for run in runs]) for name in draws}

    def log_probs(given):
        return log_probs_given(tunnel.configured_program, sites, given)

    # One loop, so that what does not depend on a latent is the same to the last bit.
    results = evaluated(lambda given: jax.lax.map(jax.vmap(log_probs), given), together)
    results = {site: np.asarray(value) for site, value in results.items()}
    return {
        name: {site for site in sites if not np.array_equal(results[site][0], results[site][1 + at], equal_nan=True)}
        - {name}
        for at, name in enumerate(latents)
    }
