"""Exact inference of Gaussian latents under Gaussian observations: what the two ways of laying them out share.

A layout (see `kalman`, `joint_gaussian`) says how the program is a linear model: the first belief, and at every step a list of
events, each a latent drawn or a stream site seen, with its matrices. Beliefs are then conditioned step by step (`gaussian`).
The matrices are derivatives of the program's own means; that these are linear, and covariances constant (but for a common
factor), is checked at held-out values on every call.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.oracles import parametric
from ppl_tunnels.oracles.gaussian import (
    Belief,
    Linear,
    conditioned,
    extended,
    factor_after,
    kept,
    log_evidence,
    mapped,
    predicted,
)
from ppl_tunnels.oracles.part import Given, Part, Run, Values
from ppl_tunnels.oracles.priors import Prior, elementwise, take_apart
from ppl_tunnels.oracles.terms import TermsOf
from ppl_tunnels.program import from_layout, to_layout

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Relative to the size of the numbers; means that are not linear are off by their own size.
LINEAR = 1e-9


@dataclasses.dataclass(frozen=True)
class Event:
    """One site of a step: a latent that is drawn, or a stream site that is seen.

    Attributes:
        site: its name.
        drawn: whether it is a latent.
        size: how many numbers.
    """

    site: str
    drawn: bool
    size: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Model:
    """A program's Gaussian part as a linear model of one episode.

    Attributes:
        first: the belief before any step.
        steps: of every event by site, matrices with a leading step axis.
        move: what maps the variables to those of the next step, `(matrix, offset)` with a leading step axis; None where they stay
            and what the step drew is dropped.
        seen: of every stream site, its numbers `[step, k]` and the log Jacobian of its transform `[step]`.
        factor: (a, b) of the unknown precision, or None.
        misfit: how far means are from linear, or covariances from constant, relative to their size.
    """

    first: Belief
    steps: dict[str, Linear]
    move: tuple[jax.Array, jax.Array] | None
    seen: dict[str, tuple[jax.Array, jax.Array]]
    factor: tuple[jax.Array, jax.Array] | None
    misfit: jax.Array


class GaussianPart(Part):
    """See the module; its subclasses say how the program is laid out."""

    manner: str

    def __init__(self, tunnel: "WindTunnel", *roles: Any, fixed: bool, scale: str | None, given: Given):
        super().__init__(tunnel, *roles, fixed=fixed)
        self.scale, self.terms_of = scale, TermsOf(tunnel)
        self.gaussians = tuple(name for name in self.latents if name != scale)
        self.statics = tuple(name for name in self.gaussians if not self.sites[name].per_step)
        self.drawn = tuple(name for name in self.gaussians if self.sites[name].per_step)
        self.event_dims = {name: take_apart(given.law(name)).event_dim for name in (*self.latents, *self.streams)}

    @classmethod
    def from_tunnel(
        cls, given: Given, latents: tuple[str, ...], streams: tuple[str, ...], *, fixed: bool
    ) -> "GaussianPart | str":
        """The part, or which condition the latents fail."""
        sites, scales = given.tunnel.reading.sites, []
        for name in (*latents, *streams):
            prior = take_apart(given.law(name))
            what = "latent" if name in latents else "stream site"
            if isinstance(prior.base, dist.Normal) or type(prior.base) is dist.MultivariateNormal:
                if not elementwise(prior):
                    return f"the law of {what} {name!r} transforms several numbers together"
            elif name in latents and isinstance(prior.base, dist.Gamma) and not sites[name].per_step:
                scales.append(name)
            else:
                return (
                    f"the law of {what} {name!r} is a {type(prior.base).__name__}, not Gaussian given the other latents"
                )
        transformed = [name for name in latents if sites[name].per_step and take_apart(given.law(name)).transforms]
        if transformed:
            return f"latent {transformed[0]!r} of every step is a transformed Gaussian; draw the Gaussian and transform it in the program"
        if len(scales) > 1 or any(sites[name].shape for name in scales):
            return f"{', '.join(map(repr, scales))} are several unknown scales; one common scale can be inferred beside Gaussian latents"
        reason = cls.why_not(given, latents)
        if reason:
            return reason
        part = cls(
            given.tunnel, latents, streams, given.others(latents), fixed=fixed, scale=(scales or [None])[0], given=given
        )
        misfit = given.worst(lambda values: part.model(values).misfit)
        if not misfit <= LINEAR:
            scale = (
                f", or the covariances are not all proportional to a power of {part.scale!r} that its prior is conjugate to"
                if part.scale
                else ""
            )
            return (
                f"latents {', '.join(map(repr, latents))} and stream {', '.join(map(repr, streams))} are not jointly Gaussian: some mean is "
                f"not a linear function of the latents, or some covariance depends on them{scale}"
            )
        return part

    @classmethod
    def why_not(cls, given: Given, latents: tuple[str, ...]) -> str | None:
        """Which condition of this layout fails, or None."""
        raise NotImplementedError

    def model(self, values: Values) -> Model:
        """The program as a linear model of one episode."""
        raise NotImplementedError

    @property
    def events(self) -> tuple[Event, ...]:
        """The sites of a step, in program order."""
        raise NotImplementedError

    def place(self, site: str) -> tuple[int, int, bool]:
        """Where a latent lies among the belief's variables: start, size, and whether it moves on by its size every step."""
        raise NotImplementedError

    def explain(self) -> str:
        """What is conditioned."""
        latents, streams = ", ".join(map(repr, self.gaussians)), ", ".join(map(repr, self.streams))
        what = f"{latents} and {streams} are jointly Gaussian" if self.gaussians else f"{streams} is Gaussian"
        if self.scale:
            what += f", their covariances divided by one unknown precision ({self.scale!r}, a gamma)"
        return f"{what}, so the belief is a mean and a covariance, {self.manner}"

    def prior_evidence(self, values: Values) -> jax.Array:
        """Log-probability of context and finite latents, where this part counts it."""
        return self._fixed(values)

    def evidence(self, values: Values, visible: jax.Array | None, until: str | None) -> jax.Array:
        """Log evidence at each step, `[step]`."""
        model = self.model(values)
        beliefs, _ = self._beliefs(model, visible, until, None)
        return self._sound(model, self._fixed(values) + jax.vmap(lambda b: log_evidence(b, model.factor))(beliefs))

    def predictive(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Location, covariance and degrees of freedom of a stream site."""
        model = self.model(values)
        beliefs, (mean, covariance) = self._beliefs(model, visible, site, site)
        log_before = self._sound(
            model, self._fixed(values) + jax.vmap(lambda b: log_evidence(b, model.factor))(beliefs)
        )
        transforms = self._rows(self._laws(values)[site].transforms, self.sites[site].layout[1:])
        return Run(log_before, (*self._student(beliefs, mean, covariance, model.factor), transforms))

    def posterior(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Of a latent: location, covariance and degrees of freedom, or (a, b) of the unknown factor."""
        model = self.model(values)
        beliefs, _ = self._beliefs(model, visible, None, None)
        target = self.sites[site]
        if not target.per_step:
            first = self._widened(model.first, beliefs)
            beliefs = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, beliefs)
        evidence = self._fixed(values) + jax.vmap(lambda b: log_evidence(b, model.factor))(beliefs)
        log_before = self._sound(model, evidence)
        prior = self._laws(values)[site]
        shape = target.layout[1:] if target.per_step else target.shape
        transforms = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (log_before.shape[0], *shape)), prior.transforms)
        if site == self.scale:
            assert model.factor is not None
            return Run(log_before, (*jax.vmap(lambda b: factor_after(b, model.factor))(beliefs), transforms))
        start, size, moving = self.place(site)
        rows = jnp.arange(beliefs.mean.shape[0])
        starts = start + (rows * size if moving else rows * 0)
        mean = jax.vmap(lambda m, at: jax.lax.dynamic_slice(m, (at,), (size,)))(beliefs.mean, starts)
        covariance = jax.vmap(lambda c, at: jax.lax.dynamic_slice(c, (at, at), (size, size)))(
            beliefs.covariance, starts
        )
        return Run(log_before, (*self._student(beliefs, mean, covariance, model.factor), transforms))

    def law(self, site: str, parameters: Any, impossible: jax.Array) -> dist.Distribution:
        """Normal or Student-t, of one number or several, seen through the site's transforms."""
        target = self.sites[site]
        if site == self.scale:
            shape, rate, transforms = parameters
            law = parametric.Gamma(shape, rate, impossible=impossible)
            return parametric.Transformed(law, list(transforms)) if transforms else law
        mean, covariance, degrees, transforms = parameters
        shape = target.layout[1:] if target.per_step else target.shape
        if self.scale is None:
            law = (
                parametric.Normal(mean[..., 0], jnp.sqrt(covariance[..., 0, 0]), impossible=impossible)
                if shape == ()
                else parametric.MultivariateNormal(mean, covariance, impossible=impossible)
            )
        elif shape == ():
            law = parametric.StudentT(degrees, mean[..., 0], jnp.sqrt(covariance[..., 0, 0]), impossible=impossible)
        else:
            law = parametric.MultivariateStudentT(degrees, mean, jnp.linalg.cholesky(covariance), impossible=impossible)
        changes = list(transforms)
        if len(shape) > 1:
            size = math.prod(shape)
            changes = [dist.transforms.ReshapeTransform(shape, (size,)), *changes]
        return parametric.Transformed(law, changes) if changes else law

    def _beliefs(
        self, model: Model, visible: jax.Array | None, until: str | None, site: str | None
    ) -> tuple[Belief, Any]:
        """The belief at each row, before a stream site or after the step, and the prediction of that site there."""
        steps = self.tunnel.length
        if visible is None:
            return self._forward(model, jnp.ones(steps, dtype=bool), until, site)
        # Every row has a history of its own; of its own step what comes first is always seen.
        rows, said = jax.vmap(lambda shown: self._forward(model, shown, until, site))(
            visible | jnp.eye(steps, dtype=bool)
        )
        own = jnp.arange(steps)
        return jax.tree.map(lambda leaf: leaf[own, own], (rows, said))

    def _forward(self, model: Model, shown: jax.Array, until: str | None, site: str | None) -> tuple[Belief, Any]:
        order, variables = list(self.sites), model.first.mean.shape[0]

        def advance(belief, step):
            matrices, seen, move, is_shown = step
            row: Any = None
            said: Any = None
            for event in self.events:
                if row is None and until is not None and order.index(event.site) >= order.index(until):
                    row = belief
                of = matrices[event.site]
                if event.drawn:
                    belief = extended(belief, of)
                    continue
                if event.site == site:
                    said = predicted(belief, of)
                value, log_slope = seen[event.site]
                belief = conditioned(belief, of, value, log_slope, is_shown)
            row = belief if row is None else row
            after = kept(belief, variables) if move is None else mapped(belief, *move)
            return after, (row, said)

        _, rows = jax.lax.scan(
            advance, model.first, (model.steps, model.seen, model.move, shown), length=self.tunnel.length
        )
        return rows

    def _widened(self, first: Belief, rows: Belief) -> Belief:
        """The first belief with as many variables as those of a step (what a step draws comes last)."""
        more = rows.mean.shape[-1] - first.mean.shape[-1]
        return dataclasses.replace(
            first, mean=jnp.pad(first.mean, (0, more)), covariance=jnp.pad(first.covariance, ((0, more), (0, more)))
        )

    def _student(self, beliefs: Belief, mean: jax.Array, covariance: jax.Array, factor: Any) -> tuple[Any, Any, Any]:
        if factor is None:
            return mean, covariance, jnp.zeros(mean.shape[:1])
        shape, rate = jax.vmap(lambda b: factor_after(b, factor))(beliefs)
        return mean, covariance * (rate / shape)[:, None, None], 2 * shape

    def _fixed(self, values: Values) -> jax.Array:
        return (
            self.terms_of.run({**values, **self._others(0), **self._anywhere()}).fixed if self.fixed else jnp.zeros(())
        )

    def _others(self, which: int) -> Values:
        return {name: jnp.asarray(value[which]) for name, value in self.others.items()}

    def _anywhere(self) -> Values:
        """Some value of every latent of this part."""
        return {name: jnp.ones(self.sites[name].layout) / 2 for name in self.latents}

    def _laws(self, values: Values) -> dict[str, Prior]:
        laws = self.terms_of.run({**values, **self._others(0), **self._anywhere()}).laws
        return {name: take_apart(jax.tree.map(lambda leaf: leaf[0], law)) for name, law in laws.items()}

    def _rows(self, transforms: Any, shape: tuple[int, ...]) -> Any:
        steps = self.tunnel.length

        def broadcast(leaf):
            leaf = jnp.asarray(leaf)
            return jnp.broadcast_to(leaf, (steps, *shape)) if leaf.ndim else jnp.full((steps, *shape), leaf)

        return jax.tree.map(broadcast, transforms)

    def seen(self, values: Values) -> dict[str, tuple[jax.Array, jax.Array]]:
        """The numbers of every stream site before its own transforms, `[step, k]`, and their log Jacobian, `[step]`."""
        laws, out = self._laws(values), {}
        for name in self.streams:
            site = self.sites[name]
            value, jacobian = from_layout(values[name], site), jnp.zeros(site.shape)
            for transform in reversed(laws[name].transforms):
                inner = transform.inv(value)
                jacobian = jacobian - transform.log_abs_det_jacobian(inner, value)
                value = inner
            flat = to_layout(value, site).reshape(self.tunnel.length, -1)
            out[name] = flat, to_layout(jacobian, site).reshape(self.tunnel.length, -1).sum(axis=1)
        return out

    def factor(self, values: Values) -> tuple[jax.Array, jax.Array] | None:
        """(a, b) of the unknown precision's prior."""
        if self.scale is None:
            return None
        base: Any = self._laws(values)[self.scale].base
        return jnp.asarray(base.concentration) + 0.0, jnp.asarray(base.rate) + 0.0

    def _static_values(self, values: Values, once: jax.Array, precision: jax.Array) -> Values:
        """Values of this part's latents drawn once, from their base numbers."""
        laws, out, at = self._laws(values), {}, 0
        for name in self.statics:
            size = math.prod(self.sites[name].shape)
            out[name] = laws[name].value(once[at : at + size].reshape(self.sites[name].shape))
            at += size
        if self.scale is not None:
            out[self.scale] = laws[self.scale].value(precision)
        return out

    def _sound(self, model: Model, log_evidence: jax.Array) -> jax.Array:
        return jnp.where(model.misfit <= LINEAR, log_evidence, jnp.nan)
