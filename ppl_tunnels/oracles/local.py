"""Finite latents that matter within their own step only: summed there, not carried along.

A latent drawn at every step is *local* where the laws of step t involve its value at t and at no other step, so that

    p(y_t | h) = sum_z p(z_t = z | h) p(y_t | z_t = z, h),

one run of the program for every joint value z of one step's latents, the same value at every step. Inside a plate nothing
guarantees this, inside a scan only a carry free of them does; so it is checked by replacing the latents at some steps and
seeing whether the laws of the other steps move.
"""

import functools
import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from ppl_tunnels.oracles.joint_values import joint_values, step_batch
from ppl_tunnels.oracles.perturbing import other_values
from ppl_tunnels.program import evaluated, log_probs_given

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Joint values of one step's latents.
MOST_LOCAL_VALUES = 4_096
# Random halves of the steps at which the latents are replaced; every two steps are told apart by a quarter of them.
_REPLACEMENTS = 32


class LocalLatents:
    """The joint values of one step's finite latents.

    Args:
        tunnel: whose finite latents drawn at every step are local (see `why_not_local`).
        summed: whether there are to be any; else none is local.

    Attributes:
        names: their sites, in program order.
        values: `[value, *batch of one step, *event]` a site; one empty value where there is no such latent.
        index: which joint value of its own each one is, `[value]` a site.
        count: how many joint values there are.
    """

    def __init__(self, tunnel: "WindTunnel", *, summed: bool = True):
        sites = tunnel.reading.sites
        self.names = tuple(name for name in finite_latents(tunnel) if sites[name].per_step and summed)
        self.steps = tunnel.length
        self.values, self.index = joint_values({name: sites[name] for name in self.names}, step_batch)
        self.count = len(next(iter(self.values.values()))) if self.names else 1

    def everywhere(self, one: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """One step's values at every step: `[step, …]` a site."""
        return {name: jax.numpy.broadcast_to(value, (self.steps, *value.shape)) for name, value in one.items()}


def finite_latents(tunnel: "WindTunnel") -> tuple[str, ...]:
    """Latent sites with a listed support, in program order."""
    sites = tunnel.reading.sites
    return tuple(name for name in tunnel.reading.named("latent") if sites[name].support is not None)


def continuous_latents(tunnel: "WindTunnel") -> tuple[str, ...]:
    """Latent sites without one, in program order."""
    sites = tunnel.reading.sites
    return tuple(name for name in tunnel.reading.named("latent") if sites[name].support is None)


def local_count(tunnel: "WindTunnel") -> float:
    """How many joint values the finite latents of one step have."""
    sites = [tunnel.reading.sites[name] for name in finite_latents(tunnel)]
    return math.prod(float(len(site.support)) ** math.prod(step_batch(site)) for site in sites if site.per_step)


@functools.lru_cache(maxsize=256)
def why_not_local(tunnel: "WindTunnel") -> str | None:
    """Which latent of a step matters at another step, or None where all are local (or there is none).

    Looks at finite and continuous latents alike.
    """
    sites, steps = tunnel.reading.sites, tunnel.length
    names = tunnel.reading.named("latent", per_step=True)
    if not names or steps < 2:
        return None
    draws = {**tunnel.probe.context, **tunnel.probe.latent, **tunnel.probe.stream}
    halves = np.random.default_rng(0).random((_REPLACEMENTS, steps)) < 0.5
    replaced = {name: np.repeat(value[None], _REPLACEMENTS, axis=0) for name, value in draws.items()}
    for name in names:
        own, other = draws[name][None], other_values(draws[name], sites[name])[None]
        replaced[name] = np.where(halves.reshape(_REPLACEMENTS, 1, steps, *[1] * (own.ndim - 3)), other, own)

    def log_probs(given):
        return log_probs_given(tunnel.configured_program, sites, given)

    one, every = jax.vmap(log_probs), jax.vmap(jax.vmap(log_probs))
    before, after = evaluated(lambda own, others: (one(own), every(others)), draws, replaced)
    for name, site in sites.items():
        was, now = np.asarray(before[name])[None], np.asarray(after[name])
        with np.errstate(invalid="ignore"):
            moved = ~((now == was) | (np.abs(now - was) <= 1e-9 * (1 + np.abs(was))))
        if site.per_step:
            moved &= ~halves[:, None, :]
        if moved.any():
            return (
                f"the law of site {name!r} depends on a latent of another step ({', '.join(map(repr, names))}), so the "
                "latents of a step cannot be summed within it"
            )
    return None
