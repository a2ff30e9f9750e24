"""Laws of counts with exact probabilities; see `parametric` for all of them."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles import count_densities as densities
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.incomplete import incomplete_beta
from ppl_tunnels.oracles.laws import Finite


class BetaBinomial(ExactLaw, dist.BetaBinomial):
    """Successes among total_count trials of probability θ ~ Beta(concentration1, concentration0).

    Args:
        concentration1: of successes, positive, `[*batch]`.
        concentration0: of failures, positive, `[*batch]`.
        total_count: number of trials, `[*batch]`; `trials` is that number where all rows have the same.
        impossible: where the evidence has probability zero, bool, `[*batch]`; nowhere if not given.

    Example:
        >>> print(BetaBinomial(1.0, 1.0, 3).finite().to_numpy().round(6))
        [0.25 0.25 0.25 0.25]
    """

    parameters: ClassVar[dict[str, int]] = {"concentration1": 0, "concentration0": 0, "total_count": 0}
    concentration1: Any
    concentration0: Any
    total_count: Any
    counts: ClassVar[tuple[str, ...]] = ("total_count",)
    static: ClassVar[tuple[str, ...]] = ("trials",)
    trials: int | None

    def __init__(
        self, concentration1, concentration0, total_count, *, impossible=None, validate_args: bool | None = None
    ):
        self._fill(
            impossible,
            validate_args,
            concentration1=concentration1,
            concentration0=concentration0,
            total_count=total_count,
        )
        traced = isinstance(total_count, Tracer)
        trials = () if traced else np.unique(np.asarray(total_count))
        self.trials = int(trials[0]) if len(trials) == 1 else None

    @property
    def _beta(self):
        return dist.Beta(self.concentration1, self.concentration0, validate_args=False)

    def _log_density(self, value):
        return densities.beta_binomial(value, self.concentration1, self.concentration0, self.total_count)

    def finite(self) -> Finite:
        """The same law with its values listed, 0 … total_count.

        Raises:
            TunnelError: total_count is traced, or not the same in all rows.
        """
        if self.trials is None:
            raise TunnelError(
                "the numbers of trials of a beta-binomial law are traced, or not one for all rows, so its values cannot be "
                "listed; give one number, outside of jit"
            )
        values = np.arange(self.trials + 1)
        log_probs = jnp.moveaxis(self.log_prob(values.reshape(-1, *(1,) * len(self.batch_shape))), 0, -1)
        return Finite(log_probs, values)

    def _entropy(self):
        return self.finite().entropy()

    def _cdf(self, value):
        probs = self.finite().probs
        return jnp.sum(jnp.where(jnp.arange(probs.shape[-1]) <= value[..., None], probs, 0.0), axis=-1)


class NegativeBinomial(ExactLaw, dist.GammaPoisson):
    """Poisson(θ) with θ ~ Gamma(concentration, rate).

    Args:
        concentration: shape of the law of θ, positive, `[*batch]`.
        rate: of the law of θ, positive, `[*batch]`.
        impossible: as for `BetaBinomial`.

    Example:
        >>> print(f"{NegativeBinomial(1.0, 1.0).log_prob(2):.6f}")  # log(1 / 8)
        -2.079442
    """

    parameters: ClassVar[dict[str, int]] = {"concentration": 0, "rate": 0}
    concentration: Any
    rate: Any

    def __init__(self, concentration, rate, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration=concentration, rate=rate)

    @property
    def _gamma(self):
        return dist.Gamma(self.concentration, self.rate, validate_args=False)

    def _log_density(self, value):
        return densities.gamma_poisson(value, self.concentration, self.rate)

    def _cdf(self, value):
        count = jnp.floor(jnp.maximum(value, 0.0))
        below = incomplete_beta(self.concentration, count + 1, 1 / (1 + 1 / self.rate))
        return jnp.where(value < 0, 0.0, below)


class BetaGeometric(ExactLaw):
    """Failures before the first success, in trials of probability θ ~ Beta(concentration1, concentration0).

    Args:
        concentration1: of successes, positive, `[*batch]`.
        concentration0: of failures, positive, `[*batch]`.
        impossible: as for `BetaBinomial`.

    Example:
        >>> print(f"{BetaGeometric(1.0, 1.0).log_prob(2):.6f}")  # 1 / (3 · 4)
        -2.484907
    """

    parameters: ClassVar[dict[str, int]] = {"concentration1": 0, "concentration0": 0}
    concentration1: Any
    concentration0: Any
    arg_constraints: ClassVar[dict] = {"concentration1": constraints.positive, "concentration0": constraints.positive}

    @property
    def support(self) -> constraints.Constraint:
        return constraints.nonnegative_integer

    def __init__(self, concentration1, concentration0, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration1=concentration1, concentration0=concentration0)

    def _log_density(self, value):
        return densities.beta_geometric(value, self.concentration1, self.concentration0)

    def _cdf(self, value):
        failures = jnp.floor(jnp.maximum(value, 0.0)) + 1
        none = densities.beta_binomial(0.0, self.concentration1, self.concentration0, failures)
        return jnp.where(value < 0, 0.0, -jnp.expm1(none))

    def sample(self, key, sample_shape=()):
        first, second = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        probs = jax.random.beta(first, self.concentration1, self.concentration0, shape)
        return jax.random.geometric(second, probs, shape) - 1

    @property
    def mean(self):
        finite = self.concentration1 > 1
        return jnp.where(finite, self.concentration0 / jnp.where(finite, self.concentration1 - 1, 1.0), jnp.inf)

    @property
    def variance(self):
        finite = self.concentration1 > 2
        heads, tails = jnp.where(finite, self.concentration1, 3.0), self.concentration0
        spread = heads * tails * (heads + tails - 1) / ((heads - 2) * jnp.square(heads - 1))
        return jnp.where(finite, spread, jnp.inf)


class DirichletMultinomial(ExactLaw, dist.DirichletMultinomial):
    """Counts, `[category]`, of total_count draws of probabilities θ ~ Dirichlet(concentration).

    Args:
        concentration: positive, `[*batch, category]`.
        total_count: number of draws, `[*batch]`.
        impossible: as for `BetaBinomial`.

    Example:
        >>> import numpy as np
        >>> print(f"{DirichletMultinomial(np.ones(3), 1).log_prob(np.array([0, 1, 0])):.6f}")  # log(1 / 3)
        -1.098612
    """

    parameters: ClassVar[dict[str, int]] = {"concentration": 1, "total_count": 0}
    concentration: Any
    total_count: Any
    counts: ClassVar[tuple[str, ...]] = ("total_count",)

    def __init__(self, concentration, total_count, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, concentration=concentration, total_count=total_count)

    @property
    def _dirichlet(self):
        return dist.Dirichlet(self.concentration, validate_args=False)

    def _inside(self, value):
        whole = (value >= 0) & (value == jnp.round(value))
        return jnp.all(whole, axis=-1) & (jnp.sum(value, axis=-1) == self.total_count)

    def _log_density(self, value):
        return densities.dirichlet_multinomial(value, self.concentration, self.total_count)

    def sample(self, key, sample_shape=()):
        """Category by category, each given the rest: the number of draws may be traced."""
        first, *keys = jax.random.split(key, self.concentration.shape[-1])
        probs = jax.random.dirichlet(first, self.concentration, (*sample_shape, *self.batch_shape))
        left, mass = jnp.broadcast_to(self.total_count, probs.shape[:-1]), jnp.ones(probs.shape[:-1])
        counts = []
        for index, step in enumerate(keys):
            share = jnp.clip(probs[..., index] / jnp.where(mass > 0, mass, 1.0), 0.0, 1.0)
            counts.append(jax.random.binomial(step, left, share))
            left, mass = left - counts[-1], mass - probs[..., index]
        return jnp.stack([*counts, left], axis=-1).astype(int)
