"""Mixtures: p(x) = sum over components of w_i p_i(x), for weights that may be zero and components of any kind.

What an oracle returns where a finite latent lies over a law in closed form. A component of weight zero takes no part, not
even with an infinite density or a NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.batches import aligned, declared, over_batch, parameters
from ppl_tunnels.oracles.cumulative import exact_cdf
from ppl_tunnels.oracles.densities import exact_log_prob, unchecked_log_prob
from ppl_tunnels.oracles.exact_law import ExactLaw, in_own_precision


class Mixture(ExactLaw):
    """A mixture of laws over the same values.

    Args:
        log_weights: natural logarithms, `[*batch, component]`. Rows sum to one in probability, or are -inf throughout where
            the evidence is impossible.
        components: a NumPyro law, one of `parametric` or another, with batch shape `[*batch, component]` (or one that
            broadcasts to it; a law made under vmap counts by its parameters).

    Raises:
        TunnelError: the components' parameters do not broadcast to the shape of the weights.

    Example:
        >>> import numpy as np
        >>> from ppl_tunnels.oracles.parametric import Normal
        >>> law = Mixture(np.log([0.25, 0.75]), Normal(np.array([0.0, 4.0]), 1.0))
        >>> print(law.mean, law.variance, law.log_prob(2.0).round(6))
        3.0 4.0 -2.918939
    """

    def __init__(self, log_weights, components: dist.Distribution, *, validate_args: bool | None = None):
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((log_weights, components)))
        with jax.enable_x64(True if not traced else jax.config.jax_enable_x64):
            self.log_weights = jnp.asarray(log_weights)
            if self.log_weights.ndim == 0:
                raise TunnelError("a mixture was given one log-weight without an axis; expected [*batch, component]")
            try:
                self._components = aligned(components, self.log_weights.shape)
            except ValueError as error:
                raise TunnelError(
                    f"a mixture was given log-weights of shape {self.log_weights.shape} and {type(components).__name__} "
                    "components whose parameters do not broadcast to it; give components of batch shape [*batch, component]"
                ) from error
        self._validate_args = bool(validate_args)

    @property
    def components(self) -> dist.Distribution:
        """Their law, batch shape `[*batch, component]`."""
        return declared(self._components, self.log_weights.shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.log_weights.shape[:-1])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self._components.event_shape)

    @property
    def impossible(self) -> jax.Array:
        """Where the evidence has probability zero, `[*batch]`."""
        return in_own_precision(lambda self: jnp.all(jnp.isneginf(self.log_weights), axis=-1))(self)

    @property
    def support(self) -> constraints.Constraint | None:
        """That of the components where they all have one; NumPyro's `dependent` where it differs with their parameters."""
        support = self._components.support
        if support is None or not jax.tree.leaves(support):
            return support
        return constraints.dependent(is_discrete=support.is_discrete, event_dim=support.event_dim)

    def tree_flatten(self):
        return (self.log_weights, self._components), (self._validate_args,)

    @classmethod
    def tree_unflatten(cls, aux_data, params):
        law = cls.__new__(cls)
        law.log_weights, law._components = params
        (law._validate_args,) = aux_data
        return law

    @in_own_precision
    def broadcast_to(self, batch: tuple[int, ...]) -> "Mixture":
        shape = (*batch, self.log_weights.shape[-1])
        return Mixture(jnp.broadcast_to(self.log_weights, shape), aligned(self._components, shape))

    @property
    @in_own_precision
    def weights(self) -> jax.Array:
        """Probabilities of the components, `[*batch, component]`."""
        return jnp.exp(self.log_weights)

    def _for_each_component(self, value) -> jax.Array:
        value = jnp.asarray(value)
        return jnp.expand_dims(value, value.ndim - len(self.event_shape))

    def log_prob(self, value, intermediates=None) -> jax.Array:
        """Logarithm of the density or probability in nats; -inf outside the support, never NaN."""
        return self._mixed(exact_log_prob(self.components, self._for_each_component(value)))

    def unchecked_log_prob(self, value) -> jax.Array:
        return self._mixed(unchecked_log_prob(self.components, self._for_each_component(value)))

    def _mixed(self, of_component: jax.Array) -> jax.Array:
        absent = jnp.isneginf(self.log_weights)
        return logsumexp(jnp.where(absent, -jnp.inf, self.log_weights + of_component), axis=-1)

    def cdf(self, value) -> jax.Array:
        """P(X ≤ value), `[*sample, *batch]`, where the components have one."""
        return self._average(exact_cdf(self.components, self._for_each_component(value)), 0)

    def _average(self, of_components, event_dim: int) -> jax.Array:
        weights = self.weights.reshape(*self.log_weights.shape, *(1,) * event_dim)
        return jnp.sum(jnp.where(weights > 0, weights * of_components, 0.0), axis=-1 - event_dim)

    @property
    def mean(self) -> jax.Array:
        """`[*batch, *event]`; infinite where a component's is."""
        return self._average(self.components.mean, len(self.event_shape))

    @property
    def variance(self) -> jax.Array:
        """`[*batch, *event]`: the components' on average, and the spread of their means."""
        law, event_dim = self.components, len(self.event_shape)
        about = jnp.expand_dims(self.mean, len(self.batch_shape))
        return self._average(law.variance + jnp.square(law.mean - about), event_dim)

    def sample(self, key, sample_shape=()) -> jax.Array:
        """Draws, `[*sample, *batch, *event]`: a component by its weight, then a value from it."""
        shape, axis = (*sample_shape, *self.batch_shape), len(self.batch_shape)
        first, second = jax.random.split(key)
        chosen = jax.random.categorical(first, self.log_weights, shape=shape)

        def draw(law, index, key):
            one = declared(jax.tree.map(lambda leaf: leaf[index], law), ())
            return one.sample(key)

        keys = jax.random.split(second, shape)
        over = over_batch(draw, axis)
        for _ in sample_shape:
            over = jax.vmap(over, in_axes=(None, 0, 0))
        return over(self._components, chosen, keys)

    def entropy(self) -> jax.Array:
        raise NotImplementedError(
            "the entropy of a mixture has no closed form; measure it with "
            "ppl_tunnels.verification.law_divergences.entropy_bits"
        )

    def to_numpy(self) -> dict[str, Any]:
        """`weights` and `impossible`, and under their names the components' parameters, `[*batch, component, ...]`."""
        law = self.components
        if isinstance(law, ExactLaw):
            known = {name: value for name, value in law.to_numpy().items() if name != "impossible"}
        else:
            known = {name: np.asarray(value, np.float64) for name, value in parameters(law).items()}
        weights = np.exp(np.asarray(self.log_weights, np.float64))
        return {"weights": weights, **known, "impossible": np.asarray(self.impossible)}
