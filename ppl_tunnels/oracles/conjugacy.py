r"""Exact updating of static continuous latents whose likelihood is conjugate to their priors.

For priors of exponential families with statistics T (see `families`), the program is run at a few values theta of the latents,
and s_t, c_t are solved for (see `statistics`) in

    log p(y_t | theta, y_<t) = <s_t, T(theta)> + c_t.

At other values of theta, on every call, the same equation must hold to rounding: it does if and only if the likelihood is
conjugate. Then the posterior after any set of steps is eta + the sum of their s, and

    p(y_t = v | y_<t) = exp(c_t(v)) Z(eta_t + s_t(v)) / Z(eta_t).

Elements of a plate and rows of a table are latents of their own. Priors are taken apart first (see `priors`).

Source: Diaconis and Ylvisaker (1979); reading conjugacy off a program: Hoffman, Johnson and Tran (2018).
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from ppl_tunnels.oracles import parametric
from ppl_tunnels.oracles.families import family_of
from ppl_tunnels.oracles.forms import Form, form_of
from ppl_tunnels.oracles.independent import Independent
from ppl_tunnels.oracles.joint_values import can_be_listed, listed_joint_values
from ppl_tunnels.oracles.masks import evidence_before
from ppl_tunnels.oracles.part import Given, Part, Run, Values
from ppl_tunnels.oracles.priors import Prior, element_shape, elementwise, take_apart
from ppl_tunnels.oracles.statistics import Block, Linear, Solver, evaluate
from ppl_tunnels.oracles.terms import Terms, TermsOf

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

# Statistics of all latents together: the program is run once for each.
MOST_STATISTICS = 2_048
# Of the size of the terms: rounding leaves 1e-15, a likelihood that is not conjugate leaves its own size.
CONJUGATE = 1e-9


class ConjugatePart(Part):
    """Some static latents of a program and the stream sites that they explain; made by `from_tunnel`."""

    name = "conjugacy"

    def __init__(
        self,
        tunnel: "WindTunnel",
        *roles: Any,
        fixed: bool,
        blocks: tuple[Block, ...],
        transformed: tuple[str, ...] = (),
    ):
        super().__init__(tunnel, *roles, fixed=fixed)
        self.terms_of, self.solver = TermsOf(tunnel), Solver(blocks)
        self.blocks = {block.site: block for block in blocks}
        self.forms: dict[str, Form] = {}
        self._no_law: dict[str, str] = {}
        self._transformed = transformed

    @classmethod
    def from_tunnel(
        cls, given: Given, latents: tuple[str, ...], streams: tuple[str, ...], *, fixed: bool
    ) -> "ConjugatePart | str":
        """The part, or which condition the latents fail."""
        tunnel, blocks, transformed = given.tunnel, [], []
        for name in latents:
            site = tunnel.reading.sites[name]
            if site.per_step:
                return f"continuous latent {name!r} is drawn at every step; conjugate updating is of latents drawn once"
            prior = take_apart(given.law(name))
            family = family_of(prior.base)
            if family is None:
                return (
                    f"the prior of {name!r} is a {type(prior.base).__name__}, which is none of the conjugate families"
                )
            if not elementwise(prior) or (family.event_dim and prior.transforms):
                return f"the prior of {name!r} transforms several numbers together"
            transformed += [name] if prior.transforms else []
            elements = element_shape(site, family.event_dim)
            size = site.shape[-1] if family.event_dim else 2
            blocks.append(Block(name, family, elements, size, blocks[-1].stop if blocks else 0))
        if blocks and blocks[-1].stop > MOST_STATISTICS:
            return f"the latents have {blocks[-1].stop:,} sufficient statistics (at most {MOST_STATISTICS:,})"
        part = cls(
            tunnel,
            latents,
            streams,
            given.others(latents),
            fixed=fixed,
            blocks=tuple(blocks),
            transformed=tuple(transformed),
        )
        return part._refusal(given) or part

    def explain(self) -> str:
        """What is updated."""
        families = ", ".join(f"{block.family.name} {name!r}" for name, block in self.blocks.items())
        return (
            f"the likelihood is conjugate to the prior of {families}, so the posterior is the prior with sufficient statistics added; "
            "they are solved for and checked at held-out values on every call"
        )

    def prior_evidence(self, values: Values) -> jax.Array:
        """Log evidence of the fixed factors, a scalar."""
        found = self._solved(values, None)
        return found.sound(found.of["fixed"].c + self._log_evidence(found.eta, found.of["fixed"].s))

    def evidence(self, values: Values, visible: jax.Array | None, until: str | None) -> jax.Array:
        """Log evidence at each step, `[step]`."""
        found = self._solved(values, until)
        s, c = found.before(visible)
        own = found.of["step" if until is None else "earlier"]
        return found.sound(c + own.c + self._log_evidence(found.eta, s + own.s))

    def predictive(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Of a stream site of this part, or of a finite latent summed within its steps."""
        found = self._solved(values, site)
        earlier, target = found.of["earlier"], found.of["target"]
        s, c = found.before(visible)
        s, c = s + earlier.s, c + earlier.c
        log_before = found.sound(c + self._log_evidence(found.eta, s))
        if self.sites[site].support is not None:
            return Run(log_before, self._conditional(found.eta + s, target, earlier).T)
        form = self.forms[site]
        parameters, off = form.fit(*self._alone(found.eta + s, target.s - earlier.s))
        law = form.law(**parameters, impossible=jnp.zeros(off.shape, bool))
        said, right = law.log_prob(values[site]), self._conditional(found.eta + s, found.of["seen"], earlier)
        right = jnp.where(jnp.isneginf(log_before), said, right)
        off |= ~((said == right) | (jnp.abs(said - right) <= CONJUGATE * (1 + jnp.abs(right))))
        return Run(jnp.where(off.any(), jnp.nan, log_before), parameters)

    def posterior(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """Of a static latent of this part: its parameters after each prefix."""
        found = self._solved(values, None)
        s, c = found.after(visible)
        block, rows = self.blocks[site], self.tunnel.length + 1
        transforms = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (rows, *block.elements)), self._priors(values)[site].transforms
        )
        return Run(found.sound(c + self._log_evidence(found.eta, s)), (block.of(found.eta + s), transforms))

    def law(self, site: str, parameters: Any, impossible: jax.Array) -> dist.Distribution:
        """A law of the table, or a posterior seen through the transforms of its prior."""
        if site not in self.blocks:
            return self.forms[site].law(**parameters, impossible=impossible)
        block = self.blocks[site]
        eta, transforms = parameters
        missing = jnp.broadcast_to(impossible.reshape(*impossible.shape, *[1] * len(block.elements)), eta.shape[:-1])
        law = block.family.law(eta, missing)
        if transforms:
            law = parametric.Transformed(law, list(transforms))
        return Independent(law, len(block.elements)) if block.elements else law

    def why_no_predictive(self, site: str) -> str | None:
        """Why the likelihood of a stream site gives it no law of the table."""
        return self._no_law.get(site)

    def _refusal(self, given: Given) -> str | None:
        """Which likelihood is not linear in the statistics in the probing episodes, at any value of a finite site."""
        latents = ", ".join(map(repr, self.latents))
        self._choose_forms(given)
        worst = given.worst(self._conditions)
        if worst["moves"] > 0:
            return f"the prior of {latents} depends on another continuous latent; conjugate updating needs them independent"
        for name, residual in worst["residuals"].items():
            if not residual <= CONJUGATE:
                whose = f"stream site {name!r}" if name else "the finite latents and the context"
                return (
                    f"the likelihood of {whose} is not conjugate to the prior of {latents}: its logarithm is not linear in the prior's "
                    "sufficient statistics"
                )
        for name in self.streams:
            if self.sites[name].support is None and (name not in self.forms or worst["misfits"][name] > 0):
                self._no_law[name] = (
                    f"the predictive law of {name!r} under the posterior of {latents} is none of the table's"
                )
        return None

    def _choose_forms(self, given: Given) -> None:
        families = {block.family.name for block in self.blocks.values()}
        for name in self.streams:
            if self.sites[name].support is None and len(families) == 1:
                form = form_of(next(iter(families)), given.law(name))
                if form is not None:
                    self.forms[name] = form

    def _conditions(self, values: Values) -> dict[str, Any]:
        """What must be (nearly) zero: movement of the priors, residuals by site, misfit of the laws that are not finite."""

        def largest(*parts):
            return jnp.max(jnp.concatenate([jnp.ravel(part.residual) for part in parts]))

        found = {name: self._solved(values, name) for name in self.streams} or {"": self._solved(values, None)}
        residuals = {name: largest(each.of["target"], each.of["earlier"]) for name, each in found.items() if name}
        first = next(iter(found.values()))
        residuals[""] = largest(first.of["fixed"])
        misfits = {
            name: jnp.isnan(self.predictive(values, name, None).log_before).any().astype(float) for name in self.forms
        }
        return {"moves": first.moved.astype(float), "residuals": residuals, "misfits": misfits}

    def _priors(self, values: Values) -> dict[str, Prior]:
        """Of every latent; they depend on no continuous latent, so any values of those do."""
        anything = {name: jnp.ones(self.sites[name].shape) / 2 for name in self.latents}
        others = {name: jnp.asarray(value[0]) for name, value in self.others.items()}
        return self._taken_apart(self.terms_of.run({**values, **others, **anything}))

    def _taken_apart(self, terms: Terms) -> dict[str, Prior]:
        return {name: take_apart(jax.tree.map(lambda leaf: leaf[0], terms.laws[name])) for name in self.latents}

    def _natural(self, priors: dict[str, Prior]) -> jax.Array:
        """Natural parameters of the priors of all latents, `[statistic]`."""
        flat = []
        for name, block in self.blocks.items():
            eta = block.family.natural(priors[name].base)
            flat.append(jnp.broadcast_to(eta, (*block.elements, block.size)).reshape(-1))
        return jnp.concatenate([jnp.zeros(0), *flat])

    def _solved(self, values: Values, site: str | None) -> "Solved":
        """Likelihoods of the fixed factors (), a step (`[step]`), its sites before a site, and every value of that site."""
        seen_through = self._priors(values) if self._transformed else None

        def log_likelihoods(point):
            base, others = point
            latents = base if seen_through is None else {name: seen_through[name].value(x) for name, x in base.items()}
            terms = self.terms_of.run({**values, **others, **latents})
            out = {
                "fixed": terms.fixed if self.fixed else jnp.zeros(()),
                "step": self.terms_of.total(terms, self.streams),
            }
            before = self.own_streams(site)
            if site in self.terms_of.local.names:
                out["earlier"] = jnp.zeros(self.tunnel.length)
                out["target"] = self._of_local(terms, site)
            elif site is not None:
                out["earlier"] = self.terms_of.total(terms, before)
            if site in self.streams:
                out["seen"] = self.terms_of.total(terms, (*before, site))
                symbols = listed_joint_values(self.sites[site]) if can_be_listed(self.sites[site]) else None
                symbols = self.forms[site].probes if symbols is None and site in self.forms else symbols
                out["target"] = (
                    out["seen"][None]
                    if symbols is None
                    else self.terms_of.of_values(terms, before, site, jnp.asarray(symbols))
                )
            priors = self._taken_apart(terms)
            return out, (self._natural(priors), [priors[name].transforms for name in self._transformed])

        of, (eta, transforms) = evaluate(log_likelihoods, self.solver, self.others)
        moved = [jnp.any(leaf != leaf[0]) for leaf in (eta, *jax.tree.leaves(transforms))]
        return Solved(of, eta[0], jnp.stack(moved).any())

    def _of_local(self, terms: Terms, site: str) -> jax.Array:
        """Log joint of a step's stream and each value of one of its finite latents, `[value, step]`."""
        own = self.terms_of.local.index[site]
        member = own[None, :] == np.arange(len(self.sites[site].support) ** _draws(self.sites[site]))[:, None]
        joint = self.terms_of.joint(terms, self.streams)
        return logsumexp(jnp.where(member[:, :, None], joint[None], -jnp.inf), axis=1)

    def _log_evidence(self, eta: jax.Array, s: jax.Array) -> jax.Array:
        """log Z(eta + s) - log Z(eta) of all latents, `[...]`."""
        parts = [
            jnp.sum(block.family.log_evidence(*jnp.broadcast_arrays(block.of(eta), block.of(s))), axis=_last(block))
            for block in self.blocks.values()
        ]
        return sum(parts, start=jnp.zeros(()))

    def _conditional(self, eta: jax.Array, target: Linear, earlier: Linear) -> jax.Array:
        """Log-probability of a value given its step's earlier sites; -inf where those are impossible."""
        never = jnp.isneginf(earlier.c)
        ratio = self._log_evidence(eta, target.s - earlier.s)
        return jnp.where(never, -jnp.inf, target.c - jnp.where(never, 0.0, earlier.c) + ratio)

    def _alone(self, eta: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Parameters and statistics of the one element that each step's site depends on; NaN if there are several."""
        picked_eta, picked_s, count = jnp.zeros(()), jnp.zeros(()), jnp.zeros((), int)
        for block in self.blocks.values():
            own = block.of(s).reshape(*s.shape[:-1], block.count, block.size)
            used = (own != 0).any(axis=(0, -1))  # [step, element]
            count += used.sum(axis=-1)
            picked_eta += jnp.einsum("tn,tnk->tk", used, block.of(eta).reshape(-1, block.count, block.size))
            picked_s += jnp.einsum("tn,ptnk->ptk", used, own)
        single = count == 1
        return jnp.where(single[:, None], picked_eta, jnp.nan), jnp.where(single[:, None], picked_s, jnp.nan)


@dataclasses.dataclass(frozen=True)
class Solved:
    """What one episode's likelihoods say, under one hypothesis.

    Attributes:
        of: of "fixed" (), every "step" `[step]`, "earlier" `[step]` and "target" `[value, step]`, where asked for.
        eta: natural parameters of the priors, `[statistic]`.
        moved: whether the priors differ from point to point of the latents.
    """

    of: dict[str, Linear]
    eta: jax.Array
    moved: jax.Array

    def before(self, visible: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Statistics and constants of what is known before each step, `[step, statistic]` and `[step]`."""
        fixed, step = self.of["fixed"], self.of["step"]
        return fixed.s + evidence_before(step.s.T, visible).T, fixed.c + evidence_before(step.c, visible)

    def after(self, visible: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """The same after each prefix, the empty one first: `[step + 1, ...]`."""
        (s, c), fixed, step = self.before(visible), self.of["fixed"], self.of["step"]
        return jnp.concatenate([fixed.s[None], s + step.s]), jnp.concatenate([fixed.c[None], c + step.c])

    def sound(self, log_evidence: jax.Array) -> jax.Array:
        """NaN throughout where the likelihood of these very episodes is not conjugate: refused, not answered."""
        residual = jnp.max(jnp.concatenate([jnp.ravel(each.residual) for each in self.of.values()]))
        return jnp.where(~(residual <= CONJUGATE) | self.moved, jnp.nan, log_evidence)


def _last(block: Block) -> tuple[int, ...]:
    return tuple(range(-len(block.elements), 0))


def _draws(site: Any) -> int:
    return int(np.prod(site.batch_shape[1:], dtype=int))
