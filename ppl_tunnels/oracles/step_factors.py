"""The factors of one step: each site's law as an array over states and latents, in the layout that beliefs use.

A factor is p(value of a site | state i, latents z of the step, what is given). Its array has one axis for the state, one for
each latent of the step, and two for hypotheses and episodes; an axis on which it does not depend has length one. What depends
on states, latents and the step's own finite values only is tabulated once, over all those values, and looked up at every
step; everything else is evaluated at every step, for the values given there.

Episodes run along the last axis, where arithmetic is fastest.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ppl_tunnels.oracles.batches import aligned
from ppl_tunnels.oracles.densities import categorical_probabilities
from ppl_tunnels.oracles.joint_values import joint_values, step_batch
from ppl_tunnels.oracles.semirings import Semiring
from ppl_tunnels.oracles.state_space import StateSpace
from ppl_tunnels.oracles.step_function import Sources, StepFunction, one_step_log_prob
from ppl_tunnels.program import Site

# Joint values of one step's finite sites for which a factor is tabulated.
_MOST_TABULATED = 256
# Up to so many values a table is looked up by choosing among them, which vectorises; gathering does not.
_MOST_CHOSEN = 32


@dataclasses.dataclass(frozen=True)
class Given:
    """What is known of some episodes under each hypothesis.

    Attributes:
        context: before the scan, `[episode, ...]` a site.
        static: `[hypothesis, ...]` a site.
        at: values of a step's stream and context sites, `[step, episode, ...]` a site.
        index: which joint value of its own each finite one of these is, `[step, episode]`.
        first: leaves of the first carry, `[hypothesis, episode, ...]`.
        inputs: what is scanned over, `[hypothesis, episode, step, ...]`, or None.
        observed: leaves of the carry run forward, `[hypothesis, episode, step, ...]`; of the hidden ones, any value.
    """

    context: dict[str, jax.Array]
    static: dict[str, jax.Array]
    at: dict[str, jax.Array]
    index: dict[str, jax.Array]
    first: list[jax.Array]
    inputs: Any
    observed: list[jax.Array]


class Table(NamedTuple):
    """Factors as probabilities, or as logarithms of them or of densities.

    Attributes:
        numbers: the array.
        is_log: which of the two.
    """

    numbers: jax.Array
    is_log: bool

    def by(self, ring: Semiring) -> jax.Array:
        """In the numbers of a ring."""
        return ring.of_log(self.numbers) if self.is_log else ring.of_probability(self.numbers)

    def is_near(self, least: float) -> jax.Array:
        """Whether any that is possible is less than that."""
        if self.is_log:
            return jnp.any(jnp.isfinite(self.numbers) & (self.numbers < math.log(least)))
        return jnp.any((self.numbers > 0) & (self.numbers < least))


@dataclasses.dataclass(frozen=True)
class Factor:
    """How one site's factor depends on what varies, decided when deriving.

    Attributes:
        site: its name.
        on_state: whether it depends on the state.
        latents: the latents of the step that it depends on, itself included, in program order.
        looked_up: the finite sites given at the step over whose values it is tabulated, itself last if it is one of them.
        tabulated: whether it is; otherwise it is evaluated at every step.
        batched: whether it differs between hypotheses or episodes, beyond the values looked up.
    """

    site: str
    on_state: bool
    latents: tuple[str, ...]
    looked_up: tuple[str, ...]
    tabulated: bool
    batched: bool


def factor_of(step: StepFunction, space: StateSpace, site: str) -> Factor:
    """What the factor of a site depends on."""
    sources = step.law_from[site]
    latents = tuple(name for name in step.latents if ("latent", name) in sources or name == site)
    finite = {name: each for name, each in (step.now | step.streams).items() if each.support is not None}
    given = [name for name in step.order if {("now", name), ("stream", name)} & sources and name != site]
    given += [site] if site in step.streams or site in step.now else []
    values = math.prod(
        float(len(finite[name].support)) ** math.prod(step_batch(finite[name])) if name in finite else math.inf
        for name in given
    )
    carried = any(kind == "input" or (kind == "carry" and key not in space.hidden) for kind, key in sources)
    tabulated = values <= _MOST_TABULATED and not carried
    return Factor(
        site=site,
        on_state=any(kind == "carry" and key in space.hidden for kind, key in sources),
        latents=latents,
        looked_up=tuple(given) if tabulated else (),
        tabulated=tabulated,
        batched=not tabulated or any(kind in ("context", "static") for kind, _ in sources),
    )


class Factors:
    """Evaluates the factors of a program's step."""

    def __init__(self, step: StepFunction, space: StateSpace):
        self.step, self.space = step, space
        self.factors = {name: factor_of(step, space, name) for name in (*step.latents, *step.streams)}
        sites = step.latents | step.now | step.streams
        self.own_values = {name: joint_values({name: site}, step_batch)[0][name] for name, site in step.latents.items()}
        looked_up = {name for factor in self.factors.values() for name in factor.looked_up} | set(space.moved_by)
        self.values = {name: joint_values({name: sites[name]}, step_batch)[0][name] for name in looked_up}
        used: Sources = frozenset().union(*(step.law_from[name] for name in self.factors), *step.carry_from)
        self.runs_forward = any(kind == "carry" and key not in space.hidden for kind, key in used)

    def index(self, at: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Which of its joint values each finite site given at a step has, `[step, episode]`."""
        return {name: self._index(name, at[name]) for name in self.values}

    def _index(self, name: str, values: jax.Array) -> jax.Array:
        site = (self.step.now | self.step.streams)[name]
        support = jnp.asarray(site.support)
        rows = values.reshape(*values.shape[:2], math.prod(step_batch(site)), 1, -1)
        digits = jnp.argmax((rows == support.reshape(len(support), -1)).all(axis=-1), axis=-1)
        return digits @ (len(support) ** np.arange(digits.shape[-1])[::-1])

    def table(self, name: str, given: Given, value: Any = None) -> Table:
        """A factor: `[state, *latents, *values looked up, hypothesis, episode]`, or with a leading step axis and without the
        values looked up where it is not tabulated.

        Args:
            name: the site.
            given: what is known.
            value: values to evaluate the site at instead of its own, `[value, ...]`; their axis comes right before the
                hypotheses.
        """
        factor, site = self.factors[name], (self.step.latents | self.step.streams)[name]
        own = {} if value is None else {name: jnp.asarray(value)}
        axis = self._own_axis(factor, own)
        if axis is not None and self._lists_its_values(site):
            # All values at once: taking them one by one out of the same row is slow.
            every = self._everywhere(
                lambda laws, _: categorical_probabilities(laws[name]), factor, given, own, at_once=name
            )
            return Table(jnp.moveaxis(jnp.squeeze(every, axis), -1, axis), is_log=False)

        def log_prob(laws, at):
            return one_step_log_prob(laws[name], at[name], site)

        return Table(self._everywhere(log_prob, factor, given, own), is_log=True)

    def _lists_its_values(self, site: Site) -> bool:
        return (
            self.step.kinds[site.name] is dist.CategoricalProbs
            and not step_batch(site)
            and np.array_equal(site.support, np.arange(len(site.support)))
        )

    def _own_axis(self, factor: Factor, own: dict[str, jax.Array]) -> int | None:
        """The axis of a site's own values, if its factor has one."""
        latents = list(self.step.latents)
        states = 1 if factor.tabulated else 2
        if factor.site in latents:
            return states + latents.index(factor.site)
        if own:
            return states + len(latents) + sum(name not in own for name in factor.looked_up)
        return states + len(latents) + len(factor.looked_up) - 1 if factor.tabulated else None

    def laws(self, name: str, given: Given) -> Any:
        """The laws of a stream site, one value a step: `[step, state, *latents, hypothesis, episode]` before the axes of
        their parameters, axes on which they do not depend of length one."""
        factor = dataclasses.replace(self.factors[name], tabulated=False, batched=True, looked_up=())
        return self._everywhere(lambda laws, _: aligned(laws[name], ()), factor, given, {})

    def _everywhere(
        self, result: Any, factor: Factor, given: Given, own: dict[str, jax.Array], at_once: str | None = None
    ) -> Any:
        """`result(laws of the step, values of the step)` for every state, latent value, … that the factor depends on.

        Where `at_once` names a site, its own axis has length one: the result has all its values.
        """
        step, stepped, batched = self.step, not factor.tabulated, factor.batched
        looked_up = {name: jnp.asarray(self.values[name]) for name in factor.looked_up if name not in own}
        arguments = {
            "state": jnp.arange(self.space.size),
            "latent": {name: jnp.asarray(value) for name, value in self.own_values.items()},
            "given": given.at | looked_up | own,
            "context": given.context,
            "static": given.static,
            "input": given.inputs,
            "carry": given.observed,
        }

        def once(argument):
            at = {**argument["latent"], **argument["given"]}
            carry = list(argument["carry"])
            for leaf, states in zip(self.space.hidden, self.space.states, strict=True):
                carry[leaf] = jnp.asarray(states)[argument["state"]]
            groups = ({name: at[name] for name in sites} for sites in (step.now, step.latents, step.streams))
            _, laws = step.laws(argument["context"], argument["static"], carry, argument["input"], *groups)
            return result(laws, at)

        # From the last axis of the result to the first. An axis that is not mapped is taken at its first place.
        at_step = {name: 0 for name in given.at if name not in looked_up | own}
        axes: list[tuple[bool, dict[str, Any]]] = [
            (batched, {"context": 0, "input": 0, "carry": 0, **({"given": at_step} if stepped else {})}),
            (batched, {"static": 0, "input": 0, "carry": 0}),
            *((name != at_once, {"given": {name: 0}}) for name in (*own, *reversed(looked_up))),
            *((name in factor.latents and name != at_once, {"latent": {name: 0}}) for name in reversed(step.latents)),
            (factor.on_state, {"state": 0}),
            *([(True, {"given": at_step, "input": 2, "carry": 2})] if stepped else []),
        ]
        if not stepped:
            # Whatever the step: nothing here depends on it.
            arguments["given"] = {
                name: value[0, 0] if name in at_step else value for name, value in arguments["given"].items()
            }
            arguments["input"], arguments["carry"] = (
                jax.tree.map(lambda leaf: leaf[:, :, 0], arguments[kind]) for kind in ("input", "carry")
            )
        function = once
        for mapped, over in axes:
            function = _mapped(function, over, arguments) if mapped else _at_first(function, over)
        return function(arguments)


def _mapped(function: Any, over: dict[str, Any], arguments: dict[str, Any]) -> Any:
    return jax.vmap(function, in_axes=(_axes_of(over, arguments),))


def _at_first(function: Any, over: dict[str, Any]) -> Any:
    """The same without the axes, which have length one in the result."""

    def at(argument):
        fixed = dict(argument)
        for kind, axis in over.items():
            if isinstance(axis, dict):
                fixed[kind] = {name: value[0] if name in axis else value for name, value in argument[kind].items()}
            else:
                fixed[kind] = jax.tree.map(lambda leaf: leaf[0], argument[kind])
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(fixed))

    return at


def _axes_of(over: dict[str, Any], argument: dict[str, Any]) -> dict[str, Any]:
    """`in_axes` for the argument: mapped where `over` says."""

    def of(kind: str) -> Any:
        axis = over.get(kind)
        if isinstance(axis, dict):
            return {name: axis.get(name) for name in argument[kind]}
        return axis if jax.tree.leaves(argument[kind]) else None

    return {kind: of(kind) for kind in argument}


def look_up(table: jax.Array, axis: int, index: jax.Array) -> jax.Array:
    """The entry of each episode along an axis: `[..., hypothesis, episode]` without it.

    Args:
        table: `[..., hypothesis, episode]`, the last two of length one where they do not matter.
        axis: the one looked up.
        index: `[episode]`.
    """
    size = table.shape[axis]
    table = jnp.moveaxis(table, axis, 0)
    if size <= _MOST_CHOSEN:
        chosen = jnp.broadcast_to(table[0], (*table.shape[1:-1], len(index)))
        for value in range(1, size):
            chosen = jnp.where(index == value, table[value], chosen)
        return chosen
    if table.shape[-1] == 1:
        return jnp.moveaxis(table[..., 0][index], 0, -1)
    return jnp.take_along_axis(table, index.reshape(*[1] * (table.ndim - 1), -1), axis=0)[0]
