"""The law of a transformed variable, as of a posterior for exp(x), 1 / x or 2 x."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform, ExpTransform, PowerTransform

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.change_of_variables import transformed_log_prob
from ppl_tunnels.oracles.continuous_laws import Gamma
from ppl_tunnels.oracles.densities import exact_log_prob
from ppl_tunnels.oracles.exact_law import ExactLaw, in_own_precision
from ppl_tunnels.oracles.log_gamma import digamma_remainder
from ppl_tunnels.oracles.transformed_moments import transformed_moments


class Transformed(ExactLaw, dist.TransformedDistribution):
    """The law of y = t_n(… t_1(x)), with x from a law of this package.

    Args:
        base_law: law of x, one of `parametric`; its `impossible` is this law's.
        transforms: one NumPyro transform or a list, applied in order; their parameters broadcast against the batch.

    Example:
        >>> from numpyro.distributions.transforms import ExpTransform
        >>> from ppl_tunnels.oracles.gaussian_laws import Normal
        >>> law = Transformed(Normal(0.0, 1.0), ExpTransform())
        >>> print(law.log_prob(1.0).round(6), law.log_prob(0.0), law.log_prob(-1.0))
        -0.918939 -inf -inf
    """

    base_dist: Any

    def __init__(self, base_law: ExactLaw, transforms: Any, *, validate_args: bool | None = None):
        if not isinstance(base_law, ExactLaw):
            raise TunnelError(
                f"a transformed law was given a base of type {type(base_law).__name__}; give it one of "
                "ppl_tunnels.oracles.parametric, whose densities are exact"
            )
        listed = [transforms] if isinstance(transforms, dist.transforms.Transform) else list(transforms)
        if isinstance(base_law, Transformed):
            listed = [*base_law.transforms, *listed]
            base_law = base_law.base_dist
        self.base_dist = base_law
        self.transforms = listed
        self._validate_args = bool(validate_args)
        self.transforms = self.broadcast_to(base_law.batch_shape).transforms

    @property
    def impossible(self) -> jax.Array:
        return self.base_dist.impossible

    @property
    def event_shape(self) -> tuple[int, ...]:
        shape = self.base_dist.event_shape
        for transform in self.transforms:
            shape = transform.forward_shape(shape) if transform.domain.event_dim else shape
        return tuple(shape)

    def tree_flatten(self):
        return (self.base_dist, self.transforms), (self._validate_args,)

    @classmethod
    def tree_unflatten(cls, aux_data, params):
        law = cls.__new__(cls)
        law.base_dist, law.transforms = params
        (law._validate_args,) = aux_data
        return law

    @in_own_precision
    def broadcast_to(self, batch: tuple[int, ...]) -> "Transformed":
        # Under vmap and indexing, a transform's parameters must have the batch axes that the law's have.
        event, transforms = self.base_dist.event_shape, []
        for transform in self.transforms:
            shape = (*batch, *event)
            if transform.domain.event_dim == 0:
                transform = jax.tree.map(lambda leaf, to=shape: jnp.broadcast_to(jnp.asarray(leaf), to), transform)
            transforms.append(transform)
            event = transform.forward_shape(event) if transform.domain.event_dim else event
        return type(self).tree_unflatten((self._validate_args,), (self.base_dist.broadcast_to(batch), transforms))

    def log_prob(self, value, intermediates=None) -> jax.Array:
        """Logarithm of the density in nats, with the Jacobian; -inf outside the support, never NaN."""
        return jnp.where(self.impossible, -jnp.inf, transformed_log_prob(self, jnp.asarray(value), exact_log_prob))

    def _entropy(self):
        """That of x plus the expected logarithm of the Jacobian, where that has a closed form."""
        law, exponentiated = self.base_dist, False
        entropy, loc, scale = law.entropy(), jnp.zeros(()), jnp.ones(())
        for transform in self.transforms:
            if isinstance(transform, AffineTransform):
                entropy = entropy + self._over_event(jnp.log(jnp.abs(transform.scale)))
                loc, scale = transform.loc + transform.scale * loc, transform.scale * scale
            elif isinstance(transform, ExpTransform) and not exponentiated:
                entropy, exponentiated = entropy + self._over_event(loc + scale * law.mean), True
            elif isinstance(transform, PowerTransform) and isinstance(law, Gamma) and transform is self.transforms[0]:
                mean_log = jnp.log(law.concentration) - digamma_remainder(law.concentration) - jnp.log(law.rate)
                exponent, exponentiated = transform.exponent, True
                entropy = entropy + jnp.log(jnp.abs(exponent)) + (exponent - 1) * mean_log
            else:
                raise NotImplementedError(
                    f"the entropy of {type(law).__name__} under {type(transform).__name__} has no closed form here; "
                    "measure it with ppl_tunnels.verification.law_divergences.entropy_bits"
                )
        return entropy

    def _over_event(self, array):
        return jnp.sum(array, axis=tuple(range(-len(self.event_shape), 0)))

    def _cdf(self, value):
        for transform in reversed(self.transforms):
            low = getattr(transform.codomain, "lower_bound", -jnp.inf)
            high = getattr(transform.codomain, "upper_bound", jnp.inf)
            value = transform.inv(jnp.clip(value, low, high))
        sign: Any = 1.0
        for transform in self.transforms:
            sign = sign * transform.sign
        below = self.base_dist.cdf(value)
        return jnp.where(sign < 0, 1 - below, below)

    @property
    def mean(self):
        """`[*batch, *event]`; infinite where it does not exist, and an error where it has no closed form here."""
        return transformed_moments(self.base_dist, self.transforms)[0]

    @property
    def variance(self):
        """As `mean`, of every number by itself."""
        return transformed_moments(self.base_dist, self.transforms)[1]

    def to_numpy(self) -> dict[str, np.ndarray]:
        """The parameters of the base law, and "impossible"; the transforms are in `transforms`."""
        return self.base_dist.to_numpy()
