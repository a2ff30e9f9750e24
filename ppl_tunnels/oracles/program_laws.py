"""A program's own laws, gathered over many runs into one batch of laws."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.oracles.batches import aligned, declared
from ppl_tunnels.program import Site


def broadcast_law(fn: dist.Distribution, site: Site) -> dist.Distribution:
    """The same law with every parameter broadcast to the batch of its site, the step axis first."""
    batch = site.shape[: len(site.shape) - site.event_dim]
    law, axis = aligned(fn, batch), site.step_axis
    if axis is None:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], law) if site.per_step else law
    moved = (batch[axis], *batch[:axis], *batch[axis + 1 :])
    return declared(jax.tree.map(lambda leaf: jnp.moveaxis(jnp.asarray(leaf), axis, 0), law), moved)


def components_last(laws: dist.Distribution, axes: int) -> dist.Distribution:
    """Parameters `[episode, *component axes, step, …]`, as vmaps leave them, to `[episode, step, component, …]`."""

    def relay(array):
        array = jnp.moveaxis(array, 1 + axes, 1)
        return array.reshape(*array.shape[:2], -1, *array.shape[2 + axes :])

    return jax.tree.map(relay, laws)
