"""The recursion of filtering for one program: factors to tables, tables to steps, beliefs to what is read of them."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.beliefs import Beliefs, Memory, Moves, Step, least_safe
from ppl_tunnels.oracles.joint_values import first_fastest_order, listed_joint_values, step_batch
from ppl_tunnels.oracles.semirings import Semiring
from ppl_tunnels.oracles.state_space import StateSpace
from ppl_tunnels.oracles.step_factors import Factors, Given, Table, look_up
from ppl_tunnels.oracles.step_function import StepFunction
from ppl_tunnels.program import Site

# Where a step keeps the factor that is read.
_OWN = " own"


class Recursion:
    """See the module.

    Args:
        step: of the program.
        space: its states.
        factors: of the step.
        sites: of the program.
    """

    def __init__(self, step: StepFunction, space: StateSpace, factors: Factors, sites: Mapping[str, Site]):
        self.step, self.space, self.factors, self.sites = step, space, factors, sites
        self.order = tuple(name for name in step.order if name in step.latents or name in step.streams)
        strides, stride = {}, 1
        for name in reversed(space.moved_by):
            strides[name] = stride
            stride *= len(factors.values[name])
        self.moves = Moves(space, strides)

    def run(
        self, given: Given, first: jax.Array, memory: Memory, site: str | None, ring: Semiring
    ) -> tuple[Any, jax.Array]:
        """Through all steps.

        Args:
            given: what is known.
            first: log of the first belief, `[state, hypothesis, episode]`.
            memory: what is shown.
            site: whose rows are read; None for the evidence of prefixes.
            ring: the arithmetic.

        Returns:
            What `Beliefs.run` returns: rows with their weights (None for a single hypothesis), or the evidence; and whether
            anything came near underflowing.
        """
        tables = {name: self.factors.table(name, given) for name in self.order}
        own = self._own_table(site, given, tables)
        scales = {name: self._scale_of(tables[name].numbers) for name in self.order if self._is_density(name)}
        for name, scale in scales.items():
            numbers = tables[name].numbers
            tables[name] = Table(numbers - _as_factor(scale, numbers), is_log=True)
        least = least_safe(len(self.order))
        near = Table(first, is_log=True).is_near(least)
        for table in (*tables.values(), *([] if own is None else [own])):
            near |= table.is_near(least)

        every = {name: table.by(ring) for name, table in tables.items()}
        if own is not None:
            every[_OWN] = every[site] if own is tables[site] else own.by(ring)
        kinds = {name: self.factors.factors[site if name == _OWN else name] for name in every}
        stepped = {name: table for name, table in every.items() if not kinds[name].tabulated}
        steps = (stepped, scales, given.index, jnp.asarray(self.space.row_of_step), jnp.arange(self.step.length))

        def step_of(each):
            stepped, scales, index, row, number = each
            looked_up = {
                name: self._looked_up(site if name == _OWN else name, every[name], index, own=name == _OWN)
                for name in every
                if name not in stepped
            }
            return Step(looked_up | stepped, scales, index, row, number)

        beliefs = Beliefs(self.moves, self.order, tuple(self.step.streams), len(self.step.latents), ring)
        read, until = self._reading(site, ring)
        out, came_near = beliefs.run(
            ring.of_log(first), steps, memory, step_of=step_of, read=read, until=until, weighted=first.shape[1] > 1
        )
        return out, near | came_near

    def _own_table(self, site: str | None, given: Given, tables: dict[str, Table]) -> Table | None:
        """Factor of a finite stream site at each of its values, an axis before the hypotheses."""
        if site is None or site not in self.step.streams or self.sites[site].support is None:
            return None
        if self.factors.factors[site].tabulated and not step_batch(self.sites[site]):
            return tables[site]
        return self.factors.table(site, given, listed_joint_values(self.sites[site]))

    def _reading(self, site: str | None, ring: Any) -> tuple[Any, str | None]:
        """How a row is read, and before which site of the step."""
        hidden = tuple(range(1 + len(self.step.latents)))
        if site is None:
            return None, None
        if site in self.step.latents:
            own = 1 + list(self.step.latents).index(site)
            order = first_fastest_order(self.sites[site])
            others = tuple(axis for axis in hidden if axis != own)
            if (order == np.arange(len(order))).all():  # to gather what is in order takes time
                return (lambda w, step: ring.total(w, axis=others)), None
            return (lambda w, step: ring.total(w, axis=others)[order]), None
        if self.sites[site].support is not None:
            return (lambda w, step: ring.total(ring.times(w[..., None, :, :], step.factors[_OWN]), axis=hidden)), site
        factor = self.factors.factors[site]
        kept = [factor.on_state, *(name in factor.latents for name in self.step.latents)]

        def components(w, step):
            for axis in hidden:
                if not kept[axis]:
                    w = jnp.expand_dims(ring.total(w, axis=axis), axis)
            return w.reshape(-1, *w.shape[-2:])

        return components, site

    def _looked_up(self, name: str, table: jax.Array, index: dict[str, jax.Array], *, own: bool = False) -> jax.Array:
        axis = 1 + len(self.step.latents)
        for other in self.factors.factors[name].looked_up:
            if own and other == name:
                break
            table = look_up(table, axis, index[other])
        return table

    def _is_density(self, name: str) -> bool:
        return name in self.step.streams and self.sites[name].support is None

    def _scale_of(self, table: jax.Array) -> jax.Array:
        """Log of the greatest density over states and latents, `[step, hypothesis, episode]`."""
        scale = jnp.max(
            table, axis=tuple(range(1, 2 + len(self.step.latents))), initial=-jnp.inf, where=~jnp.isnan(table)
        )
        return jnp.where(jnp.isfinite(scale), scale, 0.0)


def _as_factor(scale: jax.Array, table: jax.Array) -> jax.Array:
    return scale.reshape(len(scale), *[1] * (table.ndim - 3), *scale.shape[1:])
