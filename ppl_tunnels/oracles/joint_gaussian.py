"""Gaussian latents laid out as one vector: those drawn once, then every step's.

With z the vector, means of the latents are A z + b, so that z ~ N((I - A)^-1 b, (I - A)^-1 D (I - A)^-T), and every stream site
is linear in z. Nothing is assumed about which step's latents enter which step's laws (a cumulative sum over a plate will do);
the price is a covariance of all latents at once.
"""

import functools

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.gaussian import Linear, nothing_seen
from ppl_tunnels.oracles.gaussian_part import Event, GaussianPart, Model
from ppl_tunnels.oracles.linearising import linearised, moments, numbers
from ppl_tunnels.oracles.local import finite_latents
from ppl_tunnels.oracles.part import Given, Values
from ppl_tunnels.oracles.priors import take_apart
from ppl_tunnels.program import laws_given

MOST_VARIABLES = 400


class JointGaussianPart(GaussianPart):
    """See the module."""

    name = "joint Gaussian"
    manner = "of all latents of the episode at once"

    @classmethod
    def why_not(cls, given: Given, latents: tuple[str, ...]) -> str | None:
        """All latents together must be few enough."""
        sites = given.tunnel.reading.sites
        if any(sites[name].per_step for name in finite_latents(given.tunnel)):
            return "finite latents are drawn at every step beside Gaussian ones, so the posterior is a growing mixture"
        size = sum(numbers(sites[name].layout) for name in latents)
        if size > MOST_VARIABLES:
            return f"the latents of an episode are {size:,} numbers (at most {MOST_VARIABLES:,} in one vector)"
        return None

    @property
    def events(self) -> tuple[Event, ...]:
        """The stream sites of a step; every latent is in the vector from the start."""
        return tuple(Event(name, False, numbers(self.sites[name].layout[1:])) for name in self.streams)

    @property
    def _ordered(self) -> tuple[str, ...]:
        return (*self.statics, *self.drawn)

    def place(self, site: str) -> tuple[int, int, bool]:
        """Latents drawn once first, then every step's, one site after the other."""
        start = sum(numbers(self.sites[name].layout) for name in self._ordered[: self._ordered.index(site)])
        if site in self.statics:
            return start, numbers(self.sites[site].layout), False
        return start, numbers(self.sites[site].layout[1:]), True

    def model(self, values: Values) -> Model:
        """The program as a linear model of one episode."""
        size = sum(numbers(self.sites[name].layout) for name in self._ordered)
        found, off = linearised(functools.partial(self._moments, values), size, scaled=self.scale is not None)
        parts = [_flat(found[name]) for name in self._ordered]
        slopes = jnp.concatenate([jnp.zeros((0, size)), *(matrix for matrix, _, _ in parts)])
        offset = jnp.concatenate([jnp.zeros(0), *(constant for _, constant, _ in parts)])
        noise = jax.scipy.linalg.block_diag(*(part for _, _, part in parts)) if parts else jnp.zeros((0, 0))
        unrolled = jnp.linalg.inv(jnp.eye(size) - slopes)
        covariance = unrolled @ noise @ unrolled.T
        return Model(
            first=nothing_seen(unrolled @ offset, (covariance + covariance.T) / 2),
            steps={event.site: found[event.site] for event in self.events},
            move=None,
            seen=self.seen(values),
            factor=self.factor(values),
            misfit=off,
        )

    def _moments(self, values: Values, latents: jax.Array, precision: jax.Array, which: int) -> tuple[dict, dict]:
        once = sum(numbers(self.sites[name].layout) for name in self.statics)
        given = {**values, **self._others(which), **self._static_values(values, latents[:once], precision)}
        at = once
        for name in self.drawn:
            size = numbers(self.sites[name].layout)
            given[name] = latents[at : at + size].reshape(self.sites[name].layout)
            at += size
        traced = laws_given(self.tunnel.configured_program, self.sites, given)
        found = {}
        for name in (*self._ordered, *self.streams):
            site = self.sites[name]
            mean, noise = moments(take_apart(traced[name]).base, site.shape, site.step_axis)
            if site.per_step and site.step_axis is None:
                mean, noise = mean[None], noise[None]
            found[name] = mean, noise
        return {name: mean for name, (mean, _) in found.items()}, {name: noise for name, (_, noise) in found.items()}


def _flat(of: Linear) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Matrix, offset and noise of a latent, its steps one after the other."""
    if of.offset.ndim == 1:
        return of.matrix, of.offset, of.noise
    return (
        of.matrix.reshape(-1, of.matrix.shape[-1]),
        of.offset.reshape(-1),
        jax.scipy.linalg.block_diag(*(of.noise[step] for step in range(of.noise.shape[0]))),
    )
