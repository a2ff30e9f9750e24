r"""A Markov chain whose transition rows are drawn anew for every episode.

    P[i] ~ Dirichlet(a, …, a),    x_1 ~ Uniform{0, …, S-1},    x_t | x_{t-1} ~ P[x_{t-1}],    t = 2 … T.

The exact predictive counts what followed the present symbol before: (n_ij + a) / (n_i + S a), the rule of Laplace for a = 1 and
of Krichevsky and Trofimov for a = 1/2. Primitives: **binding**, for the counts that matter are those that stood after the same
symbol, and **accumulation** of them.

Source: Edelman et al. (2024), "The evolution of statistical induction heads: in-context learning Markov chains" (arXiv
2402.11004), who draw chains from a Dirichlet prior; the sizes are ours.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel


@wind_tunnel(
    stream="symbol",
    primitives={"accumulation", "binding"},
    small=({"symbols": 2, "length": 3}, {"symbols": 2, "length": 3, "concentration": 0.5}),
    presets={"paper": {"symbols": 3, "length": 100}, "small": {"symbols": 3, "length": 30}},
)
def markov_chain(symbols=3, length=30, concentration=1.0):
    """`length` symbols of a chain with unknown rows; predicts the next symbol."""
    if symbols < 1 or not concentration > 0:
        raise ValueError(
            f"symbols={symbols} and concentration={concentration} were given; expected at least 1, and above 0"
        )
    with numpyro.plate("symbols", symbols):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.full(symbols, concentration)))

    def step(previous, first):
        law = jnp.where(first, jnp.ones(symbols) / symbols, rows[previous])
        symbol = numpyro.sample("symbol", dist.Categorical(law))
        return symbol, None

    scan(step, jnp.array(0), jnp.arange(length) == 0)
