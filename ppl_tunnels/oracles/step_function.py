"""One step of a program's scan as a function, and which of its arguments each of its results depends on.

Sources are named by kind and key: ("context", site) of what the program draws before its scan, ("now", site) of context
drawn within the step, ("static", site), ("carry", leaf), ("input", leaf), ("latent", site) and ("stream", site) of the step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.dependence import dependence
from ppl_tunnels.oracles.scans import take_out_scan
from ppl_tunnels.program import from_layout, site_log_prob

if TYPE_CHECKING:
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel

Source = tuple[str, Any]
Sources = frozenset[Source]


class Unsuitable(Exception):
    """Why a program cannot be filtered; the message names the part and the remedy."""


class StepFunction:
    """The scan of a tunnel's program, taken out.

    Attributes:
        context: context sites drawn before the scan; `now`: those drawn at every step of it.
        statics: latents drawn before the scan; `latents`: those of a step; `streams`: of a step.
        first_from: sources of each leaf of the first carry; `inputs_from`: of the scanned inputs, all together.
        carry_from: sources of each leaf of the next carry; `law_from`: of each site's log-probability in a step.
        order: the sites of a step in program order.
        has_inputs: whether anything is scanned over.
        kinds: the type of each site's law in a step.

    Raises:
        Unsuitable: the program has no such scan.
    """

    def __init__(self, tunnel: "WindTunnel"):
        reading = tunnel.reading
        self.program, self.length = tunnel.configured_program, tunnel.length

        def sites(role: str, per_step: bool) -> "dict[str, Site]":
            return {name: reading.sites[name] for name in reading.named(role, per_step=per_step)}

        self.context, self.now = sites("context", False), sites("context", True)
        self.statics, self.latents, self.streams = (
            sites("latent", False),
            sites("latent", True),
            sites("stream", True),
        )
        self.order = tuple(name for name, site in reading.sites.items() if site.per_step)
        shapes = self._shapes()
        first, inputs, before = self._sources(self._first_leaves, shapes, "context", "static")
        carry, laws = self._sources(
            self._step_results, shapes, "context", "static", "carry", "input", "now", "latent", "stream"
        )
        missing = [name for name in (*self.context, *self.statics) if name not in before]
        if missing:
            raise Unsuitable(f"site {missing[0]!r} is not drawn before the scan; draw it first")
        missing = [name for name in self.order if name not in laws]
        if missing:
            raise Unsuitable(f"the program's first scan does not draw {missing[0]!r}; draw all steps in one scan")
        # Of context sites, whether latents enter their laws; latents count always.
        self.told_by_latents = {
            name: name in self.statics or any(kind == "static" for kind, _ in before[name])
            for name in (*self.context, *self.statics)
        }
        self.first_from: list[Sources] = first
        self.inputs_from: Sources = frozenset().union(*inputs)
        self.carry_from: list[Sources] = carry
        self.law_from: dict[str, Sources] = laws

    def first(self, context: dict, static: dict) -> tuple[list[jax.Array], Any, dict[str, dist.Distribution]]:
        """Leaves of the first carry, the scanned inputs (leading axis the step), and the laws of what was drawn before."""
        scan = take_out_scan(self.program, self._own({**context, **static}))
        inputs = jax.tree.map(jnp.asarray, scan.inputs)
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(scan.first)], inputs, scan.before

    def laws(
        self, context: dict, static: dict, carry: Sequence[Any], given: Any, now: dict, latent: dict, stream: dict
    ) -> tuple[list[jax.Array], dict[str, dist.Distribution]]:
        """Leaves of the next carry, and the law of every site of the step."""
        scan = take_out_scan(self.program, self._own({**context, **static}))
        carry_in = jax.tree.unflatten(jax.tree.structure(scan.first), carry)
        following, laws = scan.step(carry_in, given, {**now, **latent, **stream})
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(following)], laws

    def log_prior(self, context: dict, static: dict) -> jax.Array:
        """Log-probability (nats) of what is drawn before the scan, without the densities that latents do not enter: they cancel."""
        _, _, before = self.first(context, static)
        given, sites = {**context, **static}, {**self.context, **self.statics}
        counted = [name for name in given if sites[name].support is not None or self.told_by_latents[name]]
        parts = (site_log_prob(before[name], from_layout(given[name], sites[name]), sites[name]) for name in counted)
        return sum(parts, start=jnp.zeros(()))

    def log_prob(self, name: str, law: dist.Distribution, value: jax.Array) -> jax.Array:
        """Of a site's whole value in one step, a scalar (nats)."""
        site = {**self.now, **self.latents, **self.streams}[name]
        return one_step_log_prob(law, value, site)

    def _own(self, values: dict) -> dict:
        sites = {**self.context, **self.statics}
        return {name: from_layout(value, sites[name]) for name, value in values.items()}

    def _first_leaves(self, context, static):
        leaves, inputs, before = self.first(context, static)
        sites, given = {**self.context, **self.statics}, {**context, **static}
        log_probs = {
            name: site_log_prob(law, from_layout(given[name], sites[name]), sites[name])
            for name, law in before.items()
            if name in sites
        }
        return leaves, jax.tree.leaves(inputs), log_probs

    def _step_results(self, context, static, carry, given, now, latent, stream):
        following, laws = self.laws(context, static, carry, given, now, latent, stream)
        values = {**now, **latent, **stream}
        self.kinds = {name: type(law) for name, law in laws.items()}
        return following, {name: self.log_prob(name, laws[name], values[name]) for name in values if name in laws}

    def _shapes(self) -> dict[str, Any]:
        def each(sites: "dict[str, Site]", skip: int) -> dict[str, Any]:
            return {name: jax.ShapeDtypeStruct(site.layout[skip:], site.dtype) for name, site in sites.items()}

        shapes: dict[str, Any] = {"context": each(self.context, 0), "static": each(self.statics, 0)}
        try:
            first, inputs = jax.eval_shape(lambda *given: self.first(*given)[:2], shapes["context"], shapes["static"])
        except LookupError:
            raise Unsuitable("the program has no scan, so there is no state to filter") from None
        self.has_inputs = bool(jax.tree.leaves(inputs))
        now, latent, stream = (each(sites, 1) for sites in (self.now, self.latents, self.streams))
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs)
        return {**shapes, "carry": first, "input": one, "now": now, "latent": latent, "stream": stream}

    @staticmethod
    def _sources(function: Any, shapes: dict[str, Any], *parts: str) -> Any:
        """The results of a function with their sources in place of their values."""
        arguments = [shapes[part] for part in parts]
        labels: list[Source] = []
        for part, argument in zip(parts, arguments, strict=True):
            keys = sorted(argument) if isinstance(argument, dict) and part not in ("carry", "input") else None
            labels += [(part, key) for key in (keys if keys is not None else range(len(jax.tree.leaves(argument))))]
        found = [frozenset(labels[i] for i in each) for each in dependence(function, *arguments)]
        structure = jax.tree.structure(jax.eval_shape(function, *arguments))
        return jax.tree.unflatten(structure, found)


def one_step_log_prob(law: dist.Distribution, value: jax.Array, site: "Site") -> jax.Array:
    """Log-probability (nats) of one step's value of a site, summed over its draws in that step."""
    return jnp.sum(jnp.broadcast_to(exact_log_prob(law, value), site.batch_shape[1:]))
