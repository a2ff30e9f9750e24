"""Does the program run forward? Checked by perturbation before an oracle is derived from it.

The law of anything at step t may depend on stream values of earlier steps only, and static latents and the context on none.
A scan guarantees it by construction; within a plate nothing does (`values[::-1]` is an ordinary array operation). The stream
is replaced from step c on by another draw's, for several c, and the laws before c must not move: each is evaluated at four
values, so that a dependence cannot hide behind one coincidence.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.program import compile_time, from_layout, laws_given, log_probs_given, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Cuts at which the future is replaced (all of them in short programs), and draws of each.
_MOST_CUTS = 24
_DRAWS = 4


def check_program_runs_forward(tunnel: "WindTunnel") -> None:
    """Raise unless earlier laws ignore later stream values.

    Raises:
        TunnelError: names the site, and the step whose law moved.
    """
    reading = tunnel.reading
    sites, steps = reading.sites, reading.steps
    draws = tunnel.sample(stream_key(0, Purpose.CHECK), 2 * _DRAWS)
    values = {**draws.context, **draws.latent, **draws.stream}
    streams = reading.named("stream")
    cuts = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_CUTS)).astype(int)) if steps else np.zeros(0, int)

    def log_probs(own, other, alternatives, cut):
        """Every site's log-probabilities at the alternative values, given own values before the cut and other ones after."""
        given = dict(own)
        for name in streams:
            before = (jnp.arange(steps) < cut).reshape(-1, *[1] * (own[name].ndim - 1))
            given[name] = jnp.where(before, own[name], other[name])
        laws = laws_given(tunnel.configured_program, sites, given)

        def at(alternative):
            return {
                name: site_log_prob(laws[name], from_layout(alternative[name], site), site)
                for name, site in sites.items()
            }

        return jax.vmap(at)(alternatives)

    own = {name: value[:_DRAWS] for name, value in values.items()}
    other = {name: value[_DRAWS:] for name, value in values.items()}
    over_cuts = jax.vmap(log_probs, in_axes=(None, None, None, 0))
    over_draws = jax.jit(jax.vmap(over_cuts, in_axes=(0, 0, None, None)))
    # A cut after the last step replaces nothing: the reference. Axes: [draw, cut, alternative, (step)].
    results = jax.tree.map(np.asarray, over_draws(own, other, own, np.append(cuts, steps)))
    for name, site in sites.items():
        reference, moved = results[name][:, -1:], results[name][:, :-1]
        with np.errstate(invalid="ignore"):  # -inf minus -inf, which the equality covers
            changed = ~((moved == reference) | (np.abs(moved - reference) <= 1e-9 * (1 + np.abs(reference))))
        if not site.per_step:
            if changed.any():
                raise TunnelError(
                    f"{site.role} site {name!r} is drawn once, but its law depends on the stream, so it is not a hypothesis "
                    "about it; draw it before the stream"
                )
            continue
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


def feeds_back(tunnel: "WindTunnel") -> bool:
    """Whether any law uses stream values of earlier steps as inputs (given the latents)."""
    reading = tunnel.reading
    sites, steps = reading.sites, reading.steps
    if steps < 2:
        return False
    draws = tunnel.sample(stream_key(1, Purpose.CHECK), 2 * _DRAWS).to_numpy()
    values = {**draws.context, **draws.latent, **draws.stream}
    own = {name: value[:_DRAWS] for name, value in values.items()}
    changed = dict(own)
    for name in reading.named("stream"):
        other = values[name][_DRAWS:]
        last = (np.arange(steps) == steps - 1).reshape(-1, *[1] * (other.ndim - 2))
        changed[name] = np.where(last, own[name], other)
    with compile_time():
        log_probs = jax.jit(jax.vmap(lambda given: log_probs_given(tunnel.configured_program, sites, given)))
        before, after = log_probs(own), log_probs(changed)
    return any(bool((before[name][:, -1] != after[name][:, -1]).any()) for name, site in sites.items() if site.per_step)
