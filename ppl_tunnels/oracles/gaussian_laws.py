"""Gaussian and Student-t laws with exact densities, of one number or several; see `parametric` for all laws."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from ppl_tunnels.oracles import continuous_densities as densities
from ppl_tunnels.oracles.entropies import student_t_entropy
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.incomplete import incomplete_beta
from ppl_tunnels.oracles.log_gamma import HALF_LOG_2PI


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
