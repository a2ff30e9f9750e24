"""Does the program run forward? Checked by perturbation before an oracle is derived from it.

The law of anything at step t may depend on stream values of earlier steps only, and static latents and the context on none.
A scan guarantees it by construction; within a plate nothing does (`values[::-1]` is an ordinary array operation). The stream
is replaced from step c on by other values, for several c, and the laws before c must not move: each is evaluated at several
values, and in episodes in which every finite site has any value of its support, so that a dependence cannot hide behind a
coincidence, or where the program seldom goes.
"""

import functools
from typing import TYPE_CHECKING

import jax
import numpy as np

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.perturbing import any_values, other_values
from ppl_tunnels.program import evaluated, from_layout, laws_given, log_probs_given, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Cuts at which the future is replaced (all of them in short programs).
_MOST_CUTS = 24
# Draws that are compared with one another.
_DRAWS = 4


def _draws(tunnel: "WindTunnel") -> dict[str, np.ndarray]:
    """Episodes of the program's own, then as many with any values at the finite sites."""
    few = tunnel.probe[:_DRAWS]
    drawn = {name: np.asarray(value) for name, value in {**few.context, **few.latent, **few.stream}.items()}
    anywhere = any_values(tunnel.reading.sites, drawn)
    return {name: np.concatenate([drawn[name], anywhere[name]]) for name in drawn}


def check_program_runs_forward(tunnel: "WindTunnel") -> None:
    """Raise unless earlier laws ignore later stream values, and every law is one.

    Raises:
        TunnelError: names the site, and the step whose law moved or is undefined.
    """
    reading = tunnel.reading
    sites, steps, draws = reading.sites, reading.steps, _draws(tunnel)
    cuts = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_CUTS)).astype(int)) if steps else np.zeros(0, int)

    def log_probs(given, values):
        """Every site's log-probabilities, given these values, of every draw's own value: `[draw, (step)]`."""
        laws = laws_given(tunnel.configured_program, sites, given)
        at = {
            name: jax.vmap(
                lambda value, name=name, site=site: site_log_prob(laws[name], from_layout(value, site), site)
            )
            for name, site in sites.items()
        }
        return {name: at[name](values[name]) for name in sites}

    # A cut after the last step replaces nothing: the reference. Axes: [draw, cut, alternative, (step)].
    given = {name: np.repeat(values[:, None], len(cuts) + 1, axis=1) for name, values in draws.items()}
    after = np.arange(steps) >= np.append(cuts, steps)[:, None]
    for name in reading.named("stream"):
        others = other_values(given[name], sites[name])
        given[name] = np.where(after.reshape(*after.shape, *[1] * (others.ndim - 3)), others, given[name])
    over_cuts_and_draws = jax.vmap(jax.vmap(log_probs, in_axes=(0, None)), in_axes=(0, None))
    results = jax.tree.map(np.asarray, evaluated(over_cuts_and_draws, given, draws))
    for name, site in sites.items():
        reference, moved = results[name][:, -1:], results[name][:, :-1]
        # Each of the program's own episodes, evaluated at its own values.
        own = np.stack([reference[draw, 0, draw] for draw in range(_DRAWS)])
        if np.isnan(own).any():
            step = f" at step {np.argwhere(np.isnan(own))[0, -1]}" if site.per_step else ""
            raise TunnelError(
                f"the law of site {name!r} is undefined{step} (its log-probability is NaN): a parameter is out of range, such as a "
                "probability below 0 or above 1"
            )
        with np.errstate(invalid="ignore"):  # -inf minus -inf, which the equality covers
            changed = ~((moved == reference) | (np.abs(moved - reference) <= 1e-9 * (1 + np.abs(reference))))
        changed &= ~np.isnan(reference)  # where no law need be stated
        if not site.per_step:
            if changed.any():
                raise TunnelError(
                    f"{site.role} site {name!r} is drawn once, but its law depends on the stream, so it is not a hypothesis "
                    "about it; draw it before the stream"
                )
            continue
        if site.role == "context" and changed.any():
            raise TunnelError(
                f"context site {name!r} is revealed up front, but its law depends on the stream, which it would give away; make it "
                "a stream site"
            )
        if name == tunnel.predict and site.role == "latent" and changed.any():
            raise TunnelError(
                f"predicted latent {name!r} is downstream of the stream: its law depends on stream values, so the stream "
                "causes it instead of being explained by it; predict a latent that the stream does not feed into"
            )
        early = np.arange(steps)[None, :] < cuts[:, None]
        wrong = changed & early[None, :, None, :]
        if wrong.any():
            _, cut, _, step = np.argwhere(wrong)[0]
            raise TunnelError(
                f"the law of site {name!r} at step {step} depends on stream values of step {cuts[cut]} or later; a step may use "
                "earlier steps only (check for reversed, shifted or whole-sequence operations, such as a mean over the plate)"
            )


@functools.lru_cache(maxsize=256)  # asked for by every certificate
def feeds_back(tunnel: "WindTunnel") -> bool:
    """Whether any law uses stream values of earlier steps as inputs (given the latents)."""
    reading = tunnel.reading
    sites, steps = reading.sites, reading.steps
    if steps < 2:
        return False
    # All of them: a few draws may well agree on the one value that matters.
    draws = {**tunnel.probe.context, **tunnel.probe.latent, **tunnel.probe.stream}
    changed = dict(draws)
    last = np.arange(steps) == steps - 1
    for name in reading.named("stream"):
        own, other = draws[name], other_values(draws[name], sites[name])
        changed[name] = np.where(last.reshape(-1, *[1] * (own.ndim - 2)), own, other)

    def log_probs(given):
        return jax.vmap(lambda each: log_probs_given(tunnel.configured_program, sites, each))(given)

    before, after = evaluated(lambda *both: tuple(map(log_probs, both)), draws, changed)
    return any(bool((before[name][:, -1] != after[name][:, -1]).any()) for name, site in sites.items() if site.per_step)


def meaning_of_a_mask(tunnel: "WindTunnel") -> str:
    """What hiding a step with `visible=` means for this program, in one sentence without a full stop."""
    if feeds_back(tunnel):
        return (
            "later laws use earlier stream values as inputs, so hiding a step with visible= drops its likelihood and keeps "
            "those inputs: it is not marginalising"
        )
    return "no later law uses earlier stream values, so hiding a step with visible= is exactly marginalising it"
