"""Gaussian latents laid out step by step: what a scan carries, what is drawn once, and what a step draws.

The variables of the belief are the floating-point leaves of the carry that depend on latents, then the latents drawn once.
A step draws its own latents, which extend the belief, shows its stream sites, and maps the variables to the next step's. Leaves
of the carry that no latent enters are run forward with the episode. Where nothing that depends on latents is carried (always
so in a plate) the steps are read off the whole program at once.
"""

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ppl_tunnels.oracles.dependence import dependence
from ppl_tunnels.oracles.gaussian import Linear, extended, mapped, nothing_seen
from ppl_tunnels.oracles.gaussian_part import Event, GaussianPart, Model
from ppl_tunnels.oracles.linearising import held_out_vectors, linearised, misfit, moments, numbers
from ppl_tunnels.oracles.local import finite_latents, why_not_local
from ppl_tunnels.oracles.part import Given, Values
from ppl_tunnels.oracles.priors import take_apart
from ppl_tunnels.oracles.scans import Scan, take_out_scan
from ppl_tunnels.program import from_layout, laws_given

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Variables of the belief: every step multiplies matrices of this size.
MOST_VARIABLES = 512


class KalmanPart(GaussianPart):
    """See the module."""

    name = "Kalman"
    manner = "conditioned on each step and moved to the next"

    @classmethod
    def why_not(cls, given: Given, latents: tuple[str, ...]) -> str | None:
        """A step's latents must be its own, or be carried by a scan."""
        tunnel = given.tunnel
        sites = tunnel.reading.sites
        if not any(sites[name].per_step for name in latents):
            return "no Gaussian latent is drawn at every step"
        if any(sites[name].per_step for name in finite_latents(tunnel)):
            return "finite latents are drawn at every step beside Gaussian ones, so the posterior is a growing mixture"
        reason = why_not_local(tunnel)
        if tunnel.reading.axis == "the scan":
            hidden = _hidden_leaves(tunnel, latents)
            if isinstance(hidden, str):
                return hidden
            reason = None if hidden else reason
        size = sum(numbers(sites[name].shape) for name in latents if not sites[name].per_step)
        if size > MOST_VARIABLES:
            return f"the static latents are {size:,} numbers (at most {MOST_VARIABLES:,})"
        return reason

    @functools.cached_property
    def hidden(self) -> tuple[int, ...]:
        """Leaves of the carry that depend on this part's latents."""
        if self.tunnel.reading.axis != "the scan":
            return ()
        hidden = _hidden_leaves(self.tunnel, self.latents)
        assert not isinstance(hidden, str)
        return hidden

    @functools.cached_property
    def _hidden_shapes(self) -> list[tuple[int, ...]]:
        leaves = _carry_shapes(self.tunnel) if self.hidden else []
        return [leaves[leaf].shape for leaf in self.hidden]

    @property
    def _carried(self) -> int:
        return sum(numbers(shape) for shape in self._hidden_shapes)

    @property
    def _once(self) -> int:
        return sum(numbers(self.sites[name].shape) for name in self.statics)

    @property
    def events(self) -> tuple[Event, ...]:
        """The sites of a step, in program order."""
        return tuple(
            Event(name, name in self.drawn, numbers(self.sites[name].layout[1:]))
            for name in self.sites
            if name in self.drawn or name in self.streams
        )

    def place(self, site: str) -> tuple[int, int, bool]:
        """Carried variables first, then those drawn once, then the step's own."""
        if site in self.statics:
            before = self.statics[: self.statics.index(site)]
            start = self._carried + sum(numbers(self.sites[name].shape) for name in before)
            return start, numbers(self.sites[site].shape), False
        before = self.drawn[: self.drawn.index(site)]
        start = self._carried + self._once + sum(numbers(self.sites[name].layout[1:]) for name in before)
        return start, numbers(self.sites[site].layout[1:]), False

    def model(self, values: Values) -> Model:
        """The program as a linear model of one episode."""
        once, misfit_once = linearised(
            functools.partial(self._statics_given, values), self._once, scaled=self.scale is not None
        )
        belief = nothing_seen(jnp.zeros(0), jnp.zeros((0, 0)))
        for name in self.statics:
            of = once[name]
            belief = extended(belief, Linear(of.matrix[:, : belief.mean.shape[0]], of.offset, of.noise))
        move = None
        if self.hidden:
            first, steps, move, misfit_steps = self._carrying(values)
            belief = mapped(belief, *first)
        else:
            steps, misfit_steps = self._at_once(values)
        variables, kept = self._carried + self._once, {}
        for event in self.events:
            of = steps[event.site]
            kept[event.site] = Linear(of.matrix[..., :variables], of.offset, of.noise)
            variables += event.size if event.drawn else 0
        return Model(
            first=belief,
            steps=kept,
            move=move,
            seen=self.seen(values),
            factor=self.factor(values),
            misfit=jnp.maximum(misfit_once, misfit_steps),
        )

    def _statics_given(self, values: Values, once: jax.Array, precision: jax.Array, which: int) -> tuple[dict, dict]:
        """Moments of the latents drawn once, given their values."""
        given = {**values, **self._others(which), **self._static_values(values, once, precision)}
        given = {**given, **{name: jnp.zeros(self.sites[name].layout) for name in self.drawn}}
        laws = laws_given(self.tunnel.configured_program, self.sites, given)
        found = {name: moments(take_apart(laws[name]).base, self.sites[name].shape, None) for name in self.statics}
        return {name: mean for name, (mean, _) in found.items()}, {name: noise for name, (_, noise) in found.items()}

    def _at_once(self, values: Values) -> tuple[dict[str, Linear], jax.Array]:
        """The steps of a program that carries nothing, from runs of the whole program."""
        sites, steps, once, drawn = self.sites, self.tunnel.length, self._once, self._drawn_size

        def run(static, own, precision, which):
            given = {**values, **self._others(which), **self._static_values(values, static, precision)}
            given |= {name: part.reshape(sites[name].layout) for name, part in self._split(own)}
            laws = laws_given(self.tunnel.configured_program, sites, given)
            found = {
                e.site: moments(take_apart(laws[e.site]).base, sites[e.site].shape, sites[e.site].step_axis)
                for e in self.events
            }
            if all(sites[e.site].step_axis is None for e in self.events):  # an episode of one step
                found = {name: (mean[None], noise[None]) for name, (mean, noise) in found.items()}
            return {name: mean for name, (mean, _) in found.items()}, {
                name: noise for name, (_, noise) in found.items()
            }

        def everywhere(latents, precision, which):
            return run(latents[:once], jnp.broadcast_to(latents[once:], (steps, drawn)), precision, which)

        found, off = linearised(everywhere, once + drawn, scaled=self.scale is not None)
        if drawn:  # what a step draws must not matter at another
            own = jnp.asarray(np.random.default_rng(2).standard_normal((steps, drawn)))
            static = jnp.asarray(held_out_vectors(once)[0])
            latents = jnp.concatenate([jnp.broadcast_to(static, (steps, once)), own], axis=1)
            there, _ = run(static, own, jnp.ones(()), 1)
            apart = [jnp.max(jax.vmap(misfit)(found[name], latents, there[name])) for name in found]
            off = jnp.max(jnp.stack([off, *apart]))
        return found, off

    def _carrying(self, values: Values) -> tuple[tuple[jax.Array, jax.Array], dict[str, Linear], Any, jax.Array]:
        """The first variables from the latents drawn once, the steps, and what maps variables on."""
        sites, carried, once = self.sites, self._carried, self._once
        size = carried + once + self._drawn_size

        def scan_given(static, precision, which):
            given = {**values, **self._others(which), **self._static_values(values, static, precision)}
            before = {name: given[name] for name in given if not sites[name].per_step}
            return take_out_scan(
                self.tunnel.configured_program, {n: from_layout(v, sites[n]) for n, v in before.items()}
            )

        def first(static, precision, which):
            return {"first": self._hidden_of(scan_given(static, precision, which))}, {}

        begin, off_first = linearised(first, once, scaled=self.scale is not None)
        matrix = jnp.concatenate([begin["first"].matrix, jnp.eye(once)])
        offset = jnp.concatenate([begin["first"].offset, jnp.zeros(once)])
        scan = scan_given(jnp.zeros(once), jnp.ones(()), 0)
        idle = {name: jnp.zeros(sites[name].layout[1:]) for name in self.drawn}
        per_step = {name: v for name, v in {**values, **self._others(0)}.items() if sites[name].per_step}

        def forward(carry, given):
            row, step = given
            following, _ = scan.step(carry, row, {**idle, **step})
            return following, carry

        rows = jax.tree.map(jnp.asarray, scan.inputs)
        _, carries = jax.lax.scan(forward, scan.first, (rows, per_step), length=self.tunnel.length)

        def at_step(carry, row, step):
            def function(latents, precision, which):
                inner = scan_given(latents[carried : carried + once], precision, which)
                own = dict(self._split(latents[None, carried + once :]))
                drawn = {name: part[0].reshape(sites[name].layout[1:]) for name, part in own.items()}
                following, laws = inner.step(self._with_hidden(carry, latents[:carried]), row, {**step, **drawn})
                found = {
                    e.site: moments(take_apart(laws[e.site]).base, sites[e.site].layout[1:], None) for e in self.events
                }
                means = {name: mean for name, (mean, _) in found.items()}
                following = Scan(following, None, inner.step, {})
                return {**means, "": self._hidden_of(following)}, {name: noise for name, (_, noise) in found.items()}

            return linearised(function, size, scaled=self.scale is not None)

        steps, off = jax.vmap(at_step)(carries, rows, per_step)
        onward = steps.pop("")
        # The latents drawn once stay what they are.
        stay = jnp.concatenate([jnp.zeros((once, carried)), jnp.eye(once), jnp.zeros((once, self._drawn_size))], axis=1)
        length = self.tunnel.length
        move = (
            jnp.concatenate([onward.matrix, jnp.broadcast_to(stay, (length, *stay.shape))], axis=1),
            jnp.concatenate([onward.offset, jnp.zeros((length, once))], axis=1),
        )
        return (matrix, offset), steps, move, jnp.maximum(off_first, jnp.max(off))

    @property
    def _drawn_size(self) -> int:
        return sum(numbers(self.sites[name].layout[1:]) for name in self.drawn)

    def _split(self, own: jax.Array) -> list[tuple[str, jax.Array]]:
        """What every step draws, `[step, size]`, by site."""
        out, at = [], 0
        for name in self.drawn:
            size = numbers(self.sites[name].layout[1:])
            out.append((name, own[:, at : at + size]))
            at += size
        return out

    def _hidden_of(self, scan: Scan) -> jax.Array:
        leaves = jax.tree.leaves(scan.first)
        return jnp.concatenate([jnp.zeros(0), *(jnp.asarray(leaves[leaf]).reshape(-1) for leaf in self.hidden)])

    def _with_hidden(self, carry: Any, variables: jax.Array) -> Any:
        leaves, structure = jax.tree.flatten(carry)
        at = 0
        for leaf, shape in zip(self.hidden, self._hidden_shapes, strict=True):
            leaves[leaf] = variables[at : at + numbers(shape)].reshape(shape)
            at += numbers(shape)
        return jax.tree.unflatten(structure, leaves)


@functools.lru_cache(maxsize=256)
def _carry_shapes(tunnel: "WindTunnel") -> list[Any]:
    sites = tunnel.reading.sites
    before = {
        name: jax.ShapeDtypeStruct(site.layout, site.dtype)
        for name, site in sites.items()
        if site.role != "stream" and not site.per_step
    }
    return jax.tree.leaves(jax.eval_shape(lambda given: take_out_scan(tunnel.configured_program, given).first, before))


def _hidden_leaves(tunnel: "WindTunnel", latents: tuple[str, ...]) -> tuple[int, ...] | str:
    """Leaves of the carry that some of these latents enter."""
    sites = tunnel.reading.sites
    before = {name: site for name, site in sites.items() if site.role != "stream" and not site.per_step}
    within = {name: site for name, site in sites.items() if site.per_step}
    program = tunnel.configured_program
    try:
        shapes = {name: jax.ShapeDtypeStruct(site.layout, site.dtype) for name, site in before.items()}
        first = jax.eval_shape(lambda given: take_out_scan(program, given).first, shapes)
        inputs = jax.eval_shape(lambda given: jax.tree.map(jnp.asarray, take_out_scan(program, given).inputs), shapes)
    except LookupError:
        return "the program has no scan"
    structure = jax.tree.structure(first)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs)
    own = {name: jax.ShapeDtypeStruct(site.layout[1:], site.dtype) for name, site in within.items()}

    def starting(given):
        return jax.tree.leaves(take_out_scan(program, given).first)

    def stepping(carry, given, row, step):
        following, _ = take_out_scan(program, given).step(jax.tree.unflatten(structure, carry), row, step)
        return jax.tree.leaves(following)

    leaves = jax.tree.leaves(first)
    outer, inner = sorted(shapes), sorted(own)
    start = dependence(starting, shapes)
    step = dependence(stepping, leaves, shapes, row, own)
    rows = len(jax.tree.leaves(row))
    of_outer = {i for i, name in enumerate(outer) if name in latents}
    of_inner = {len(leaves) + len(outer) + rows + i for i, name in enumerate(inner) if name in latents}
    hidden = {leaf for leaf in range(len(leaves)) if start[leaf] & of_outer}
    while True:
        touched = hidden | of_inner | {len(leaves) + i for i in of_outer}
        more = hidden | {leaf for leaf in range(len(leaves)) if step[leaf] & touched}
        if more == hidden:
            break
        hidden = more
    for leaf in hidden:
        if not jnp.issubdtype(leaves[leaf].dtype, jnp.floating):
            return f"the scan carries a {leaves[leaf].dtype} that depends on {', '.join(map(repr, latents))}; only real numbers are linear"
    return tuple(sorted(hidden))
