"""Continuous laws with exact densities; see `parametric` for all of them."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from numpyro.distributions import constraints

from ppl_tunnels.oracles import continuous_densities as densities
from ppl_tunnels.oracles.entropies import beta_entropy, dirichlet_entropy, gamma_entropy, student_t_entropy
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.incomplete import incomplete_beta, incomplete_gamma
from ppl_tunnels.oracles.log_gamma import HALF_LOG_2PI, digamma_remainder


class Normal(ExactLaw, dist.Normal):
    """N(loc, scale²).

    Args:
        loc: mean, `[*batch]`.
        scale: standard deviation, positive, `[*batch]`.
        impossible: where the evidence has probability zero, bool, `[*batch]`; nowhere if not given.

    Example:
        >>> print(Normal(0.0, 2.0).log_prob(1e300), Normal(0.0, 2.0, impossible=True).log_prob(0.0))
        -inf -inf
    """

    parameters: ClassVar[dict[str, int]] = {"loc": 0, "scale": 0}
    loc: Any
    scale: Any

    def __init__(self, loc, scale, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, loc=loc, scale=scale)

    def _log_density(self, value):
        return densities.normal(value, self.loc, self.scale)

    def _entropy(self):
        return 0.5 + HALF_LOG_2PI + jnp.log(self.scale)

    def _cdf(self, value):
        return ndtr((value - self.loc) / self.scale)


class MultivariateNormal(ExactLaw, dist.MultivariateNormal):
    """N(loc, covariance_matrix).

    Args:
        loc: mean, `[*batch, dimension]`.
        covariance_matrix: symmetric and positive definite, `[*batch, dimension, dimension]`.
        impossible: as for `Normal`.

    Example:
        >>> import numpy as np
        >>> print(f"{MultivariateNormal(np.zeros(2), np.eye(2)).entropy():.6f}")  # log(2πe)
        2.837877
    """

    parameters: ClassVar[dict[str, int]] = {"loc": 1, "covariance_matrix": 2, "scale_tril": 2}
    loc: Any
    covariance_matrix: Any
    scale_tril: Any

    def __init__(self, loc, covariance_matrix, *, impossible=None, validate_args: bool | None = None):
        self._fill(
            impossible, validate_args, loc=loc, covariance_matrix=covariance_matrix, scale_tril=covariance_matrix
        )
        with jax.enable_x64(self.loc.dtype == jnp.float64):
            self.scale_tril = jnp.linalg.cholesky(self.covariance_matrix)

    def _log_density(self, value):
        return densities.multivariate_normal(value, self.loc, self.scale_tril)

    def _entropy(self):
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)), axis=-1)
        return self.loc.shape[-1] * (0.5 + HALF_LOG_2PI) + log_det


class StudentT(ExactLaw, dist.StudentT):
    """Student's t with df degrees of freedom, scaled and shifted.

    Args:
        df: degrees of freedom, positive, `[*batch]`.
        loc: centre, `[*batch]`.
        scale: positive, `[*batch]`; not the standard deviation, which is scale · sqrt(df / (df - 2)).
        impossible: as for `Normal`.

    Example:
        >>> print(f"{StudentT(1.0, 0.0, 1.0).log_prob(0.0):.6f}")  # Cauchy: 1 / π
        -1.144730
    """

    parameters: ClassVar[dict[str, int]] = {"df": 0, "loc": 0, "scale": 0}
    df: Any
    loc: Any
    scale: Any

    def __init__(self, df, loc, scale, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, df=df, loc=loc, scale=scale)

    @property
    def _chi2(self):
        return dist.Chi2(self.df, validate_args=False)

    def _log_density(self, value):
        return densities.student_t(value, self.df, self.loc, self.scale)

    def _entropy(self):
        return student_t_entropy(self.df, 1) + jnp.log(self.scale)

    def _cdf(self, value):
        z = (value - self.loc) / self.scale
        square = z * z
        # Each half of the incomplete beta function where it is the small one.
        inner = 0.5 * incomplete_beta(0.5, self.df / 2, square / (self.df + square))
        outer = 0.5 * incomplete_beta(self.df / 2, 0.5, self.df / (self.df + square))
        below = jnp.where(square < self.df, 0.5 - inner, outer)
        return jnp.where(z > 0, 1 - below, below)


class MultivariateStudentT(ExactLaw, dist.MultivariateStudentT):
    """Student's t in several dimensions.

    Args:
        df: degrees of freedom, positive, `[*batch]`.
        loc: centre, `[*batch, dimension]`.
        scale_tril: lower triangular, positive diagonal, `[*batch, dimension, dimension]`.
        impossible: as for `Normal`.

    Example:
        >>> import numpy as np
        >>> print(f"{MultivariateStudentT(3.0, np.zeros(2), np.eye(2)).log_prob(np.zeros(2)):.6f}")  # 1 / 2π
        -1.837877
    """

    parameters: ClassVar[dict[str, int]] = {"df": 0, "loc": 1, "scale_tril": 2}
    df: Any
    loc: Any
    scale_tril: Any

    def __init__(self, df, loc, scale_tril, *, impossible=None, validate_args: bool | None = None):
        self._fill(impossible, validate_args, df=df, loc=loc, scale_tril=scale_tril)

    @property
    def _chi2(self):
        return dist.Chi2(self.df, validate_args=False)

    def _log_density(self, value):
        return densities.multivariate_student_t(value, self.df, self.loc, self.scale_tril)

    def _entropy(self):
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)), axis=-1)
        return student_t_entropy(self.df, self.loc.shape[-1]) + log_det


class Beta(ExactLaw, dist.Beta):
    """Beta(concentration1, concentration0) on [0, 1].

    Args:
        concentration1: of successes, positive, `[*batch]`.
        concentration0: of failures, positive, `[*batch]`.
        impossible: as for `Normal`.

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
        impossible: as for `Normal`.

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
        impossible: as for `Normal`.

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
        impossible: as for `Normal`.

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
