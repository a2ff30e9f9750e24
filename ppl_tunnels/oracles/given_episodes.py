"""What filtering knows of some episodes before it starts: hypotheses, their prior, first beliefs, and observed carries."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ppl_tunnels.oracles.joint_values import joint_values, step_batch
from ppl_tunnels.oracles.state_space import StateSpace
from ppl_tunnels.oracles.step_factors import Factors, Given
from ppl_tunnels.oracles.step_function import StepFunction

# How far the first carry of an episode may be from the state that it is, by rounding (programs are compiled in many ways).
_ROUNDING = 1e-9


class Knowledge:
    """Makes `Given` of context and stream.

    Hypotheses are joint values of the static latents; *merged*, of those that matter beyond the first state.
    """

    def __init__(self, step: StepFunction, space: StateSpace, factors: Factors):
        self.step, self.space, self.factors = step, space, factors
        self.values, index = joint_values(step.statics, lambda site: site.batch_shape)
        self.count = len(next(iter(self.values.values()))) if self.values else 1
        group = np.zeros(self.count, dtype=int)
        for name in step.statics:
            if name not in space.initial:
                group = group * (int(index[name].max()) + 1) + index[name]
        # Every group has as many members: the joint values of the initial latents.
        self.members = {True: np.argsort(group, kind="stable").reshape(len(np.unique(group)), -1)}
        self.members[False] = np.arange(self.count)[:, None]

    @property
    def hypotheses(self) -> int:
        """How many there are, merged."""
        return len(self.members[True])

    @property
    def numbers(self) -> int:
        """About how many numbers an episode holds under one hypothesis."""
        sizes = {name: len(values) for name, values in self.factors.own_values.items()}
        every = self.space.size * math.prod(sizes.values())

        def of(name: str) -> int:
            factor = self.factors.factors[name]
            states = self.space.size if factor.on_state else 1
            return 0 if factor.tabulated else states * math.prod(sizes[z] for z in factor.latents)

        finite = [site for site in self.step.streams.values() if site.support is not None]
        widest = max((len(site.support) ** math.prod(step_batch(site)) for site in finite), default=1)
        stepped = sum(of(name) for name in self.factors.factors)
        return self.step.length * (stepped + widest + 4) + 4 * every + self.space.size * self.members[True].shape[1]

    def of(self, values: dict[str, jax.Array], *, merge: bool = True) -> Given:
        """What is known of episodes `[episode, ...]`."""
        step = self.step
        context = {name: values[name] for name in step.context}
        static = {name: jnp.asarray(value[self.members[merge][:, 0]]) for name, value in self.values.items()}
        at = {name: jnp.swapaxes(values[name], 0, 1) for name in (*step.now, *step.streams)}
        count = len(next(iter(values.values())))
        first, inputs = self._for_all(lambda *given: step.first(*given)[:2], context, static, count)
        observed = self._observed(context, static, at, first, inputs)
        return Given(context, static, at, self.factors.index(at), first, inputs, observed)

    def hypotheses_of(self, given: Given, *, merge: bool) -> tuple[jax.Array, jax.Array]:
        """Log prior of each hypothesis and the context together, `[hypothesis, episode]`, and log of the first beliefs,
        `[state, hypothesis, episode]`."""
        static = jax.tree.map(jnp.asarray, self.values)
        count = len(next(iter(given.at.values()))[0])
        prior, leaves = self._for_all(
            lambda *each: (self.step.log_prior(*each), [self.step.first(*each)[0][leaf] for leaf in self.space.hidden]),
            given.context,
            static,
            count,
        )
        if not any(kind == "context" for leaf in self.space.hidden for kind, _ in self.step.first_from[leaf]):
            leaves = [leaf[:, :1] for leaf in leaves]
        members = self.members[merge]
        prior, state = prior[members], self._state_of(leaves)[members]  # [hypothesis, member, episode]
        total = logsumexp(prior, axis=1)
        share = jnp.where(jnp.isneginf(prior), -jnp.inf, prior - jnp.where(jnp.isneginf(total), 0.0, total)[:, None])
        states = jnp.arange(self.space.size)[:, None, None, None]
        beliefs = logsumexp(jnp.where(state == states, share, -jnp.inf), axis=2)
        return total, jnp.where((state == self.space.size).any(axis=1), jnp.nan, beliefs)

    def _for_all(self, function: Any, context: dict, static: dict, count: int) -> Any:
        """`[hypothesis, episode, ...]`."""
        if context:
            function = jax.vmap(function, in_axes=(0, None))
            if static:
                return jax.vmap(function, in_axes=(None, 0))(context, static)
            return jax.tree.map(lambda leaf: leaf[None], function(context, static))
        out = (
            jax.vmap(function, in_axes=(None, 0))(context, static)
            if static
            else jax.tree.map(lambda leaf: leaf[None], function(context, static))
        )
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (len(leaf), count, *leaf.shape[1:])), out)

    def _observed(self, context: dict, static: dict, at: dict, first: list[jax.Array], inputs: Any) -> list[jax.Array]:
        """The carry before every step, `[hypothesis, episode, step, ...]` a leaf; the hidden leaves hold no meaning."""
        step, length = self.step, self.step.length
        if not self.factors.runs_forward:
            return [jnp.broadcast_to(leaf[:, :, None], (*leaf.shape[:2], length, *leaf.shape[2:])) for leaf in first]
        latent = {name: jnp.asarray(values[0]) for name, values in self.factors.own_values.items()}

        def one(context, static, at, first, inputs):
            def advance(carry, given):
                now_inputs, values = given
                now, stream = ({name: values[name] for name in sites} for sites in (step.now, step.streams))
                following, _ = step.laws(context, static, carry, now_inputs, now, latent, stream)
                return following, carry

            return jax.lax.scan(advance, first, (inputs, at), length=length)[1]

        per_episode = jax.vmap(one, in_axes=(0 if context else None, None, 1, 0, 0 if step.has_inputs else None))
        return jax.vmap(per_episode, in_axes=(None, 0 if static else None, None, 0, 0 if step.has_inputs else None))(
            context, static, at, first, inputs
        )

    def _state_of(self, leaves: list[jax.Array]) -> jax.Array:
        """The state that each hidden carry `[hypothesis, episode, ...]` is; one beyond the last if it is none."""
        distance, same = jnp.zeros(()), jnp.asarray(True)
        for leaf, states in zip(leaves, self.space.states, strict=True):
            own = leaf.reshape(*leaf.shape[:2], 1, -1).astype(jnp.float64)
            each = jnp.asarray(states).reshape(len(states), -1).astype(jnp.float64)
            gap = jnp.abs(own - each)
            same &= (gap <= _ROUNDING * (1 + jnp.abs(each))).all(axis=-1)
            distance += gap.sum(axis=-1)
        nearest = jnp.argmin(jnp.where(same, distance, jnp.inf), axis=-1)
        return jnp.where(same.any(axis=-1), nearest, self.space.size)
