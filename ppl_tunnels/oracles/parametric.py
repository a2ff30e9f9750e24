"""The parametric laws that oracles return: NumPyro distributions whose `log_prob` is exact in double precision.

Each is an instance of NumPyro's class of the same kind where there is one, is a pytree of its parameters alone (so that
jit, vmap and indexing of the leaves give a law of the right shape), marks rows of impossible evidence in `impossible`,
gives its parameters as NumPy arrays by `to_numpy()`, and is computed in double precision even for a caller who is not.
"""

from ppl_tunnels.oracles.continuous_laws import Beta, CompoundGamma, Dirichlet, Gamma
from ppl_tunnels.oracles.count_laws import BetaBinomial, BetaGeometric, DirichletMultinomial, NegativeBinomial
from ppl_tunnels.oracles.exact_law import ExactLaw
from ppl_tunnels.oracles.gaussian_laws import MultivariateNormal, MultivariateStudentT, Normal, StudentT
from ppl_tunnels.oracles.transformed_law import Transformed

__all__ = [
    "Beta",
    "BetaBinomial",
    "BetaGeometric",
    "CompoundGamma",
    "Dirichlet",
    "DirichletMultinomial",
    "ExactLaw",
    "Gamma",
    "MultivariateNormal",
    "MultivariateStudentT",
    "NegativeBinomial",
    "Normal",
    "StudentT",
    "Transformed",
]
