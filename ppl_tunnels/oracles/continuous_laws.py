"""Laws of probabilities and of positive numbers, with exact densities; see `parametric` for all laws."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ppl_tunnels.oracles import continuous_densities as densities
from ppl_tunnels.oracles.entropies import beta_entropy, dirichlet_entropy, gamma_entropy
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.incomplete import incomplete_beta, incomplete_gamma
from ppl_tunnels.oracles.log_gamma import digamma_remainder


class Beta(ExactLaw, dist.Beta):
    """Beta(concentration1, concentration0) on [0, 1].

    Args:
        concentration1: of successes, positive, `[*batch]`.
        concentration0: of failures, positive, `[*batch]`.
        impossible: where the evidence has probability zero, bool, `[*batch]`; nowhere if not given.

    Example:
        >>> print(f"{Beta(1.0, 3.0).log_prob(0.0):.6f}")  # log 3
        1.098612
    """

    parameters: ClassVar[dict[str, int]] = {"concentration1": 0, "concentration0": 0}
    concentration1: Any
    concentration0: Any

    def __init__(self, concentration1, concentration0, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _dirichlet(self):
        pair = jnp.stack([self.concentration1, self.concentration0], axis=-1)
        return dist.Dirichlet(pair, validate_args=False)

    def _log_density(self, value):
        return densities.beta(value, self.concentration1, self.concentration0)

    def _entropy(self):
        return beta_entropy(self.concentration1, self.concentration0)

    def _cdf(self, value):
        return incomplete_beta(self.concentration1, self.concentration0, jnp.clip(value, 0.0, 1.0))


class Dirichlet(ExactLaw, dist.Dirichlet):
    """Dirichlet(concentration) on the simplex.

    Args:
        concentration: positive, `[*batch, category]`.
        impossible: as for `Beta`.

    Example:
        >>> import numpy as np
        >>> print(f"{Dirichlet(np.ones(3)).log_prob(np.array([1.0, 0.0, 0.0])):.6f}")  # log 2
        0.693147
    """

    parameters: ClassVar[dict[str, int]] = {"concentration": 1}
    concentration: Any

    def __init__(self, concentration, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration=concentration)

    def _log_density(self, value):
        return densities.dirichlet(value, self.concentration)

    def _entropy(self):
        return dirichlet_entropy(self.concentration)


class Gamma(ExactLaw, dist.Gamma):
    """Gamma(concentration, rate): mean concentration / rate.

    Args:
        concentration: shape, positive, `[*batch]`.
        rate: positive, `[*batch]`.
        impossible: as for `Beta`.

    Example:
        >>> print(f"{Gamma(1.0, 2.0).log_prob(0.0):.6f}")  # log 2
        0.693147
    """

    parameters: ClassVar[dict[str, int]] = {"concentration": 0, "rate": 0}
    concentration: Any
    rate: Any

    def __init__(self, concentration, rate, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration=concentration, rate=rate)

    def _inside(self, value):
        return value >= 0

    def _log_density(self, value):
        return densities.gamma(value, self.concentration, self.rate)

    def _entropy(self):
        return gamma_entropy(self.concentration) - jnp.log(self.rate)

    def _cdf(self, value):
        return incomplete_gamma(self.concentration, self.rate * jnp.maximum(value, 0.0))


class CompoundGamma(ExactLaw):
    """y ~ Gamma(shape, θ) with θ ~ Gamma(concentration, rate); Lomax if shape is 1, in general a scaled beta prime law.

    Args:
        shape: of y, positive, `[*batch]`.
        concentration: shape of the law of θ, positive, `[*batch]`.
        rate: of the law of θ, and the scale of y, positive, `[*batch]`.
        impossible: as for `Beta`.

    Example:
        >>> print(f"{CompoundGamma(1.0, 3.0, 2.0).log_prob(0.0):.6f}")  # log(3 / 2)
        0.405465
    """

    parameters: ClassVar[dict[str, int]] = {"shape_": 0, "concentration": 0, "rate": 0}
    shape_: Any
    concentration: Any
    rate: Any
    arg_constraints: ClassVar[dict] = {"concentration": constraints.positive, "rate": constraints.positive}

    @property
    def support(self) -> constraints.Constraint:
        return constraints.nonnegative

    def __init__(self, shape, concentration, rate, *, impossible=None, validate_args: bool | None = None):
        # `shape` is the name of a method of every NumPyro distribution.
        self._fill(impossible, validate_args, shape_=shape, concentration=concentration, rate=rate)

    def _log_density(self, value):
        return densities.compound_gamma(value, self.shape_, self.concentration, self.rate)

    def _entropy(self):
        shape, concentration = self.shape_, self.concentration
        total = shape + concentration
        # The expected -log(1 - x) with x = y / (rate + y) ~ Beta(shape, concentration); dy/dx = rate / (1 - x)².
        tail = jnp.log1p(shape / concentration) + digamma_remainder(concentration) - digamma_remainder(total)
        return beta_entropy(shape, concentration) + jnp.log(self.rate) + 2 * tail

    def _cdf(self, value):
        value = jnp.maximum(value, 0.0)
        span = self.rate + value
        below = incomplete_beta(self.shape_, self.concentration, value / span)
        above = incomplete_beta(self.concentration, self.shape_, self.rate / span)
        return jnp.where(value < self.rate, below, 1 - above)

    def sample(self, key, sample_shape=()):
        fraction = jax.random.beta(key, self.shape_, self.concentration, (*sample_shape, *self.batch_shape))
        return self.rate * fraction / (1 - fraction)

    @property
    def mean(self):
        finite = self.concentration > 1
        return jnp.where(finite, self.rate * self.shape_ / jnp.where(finite, self.concentration - 1, 1.0), jnp.inf)

    @property
    def variance(self):
        finite = self.concentration > 2
        above = jnp.where(finite, self.concentration, 3.0)
        ratio = self.shape_ * (self.shape_ + above - 1) / (jnp.square(above - 1) * (above - 2))
        return jnp.where(finite, jnp.square(self.rate) * ratio, jnp.inf)
