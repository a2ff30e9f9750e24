r"""Mess3: three hidden states whose posterior beliefs fill a fractal.

    z_1 ~ Uniform{0, 1, 2},    P(z_t = j | z_{t-1} = i) = 1 - 2x if j = i, else x,
    P(s_t = k | z_t = j) = α if k = j, else (1 - α) / 2,    t = 1 … T.

It is usually written with labelled transition matrices, T^(s)_ij = P(s, j | i): each factors into a move and an emission by
the state moved to, and as the start is stationary, it does not matter that here the first state emits before anything moves.
The state of a step is the one that emitted its symbol. Every belief is a different point of the simplex: the next-symbol law
depends on the whole past, though less and less on what lies further back.

Primitives: **transport** and **accumulation**. Source: Marzen and Crutchfield (2017); Shai et al. (2024), "Transformers
represent belief state geometry in their residual stream", for α = .85, x = .05 and sequences of ten.
"""

import jax.numpy as jnp

from ppl_tunnels.tunnel import wind_tunnel
from ppl_tunnels.tunnels.hmm import chain, circulant


@wind_tunnel(
    stream="symbol",
    primitives={"accumulation", "transport"},
    small=({"length": 4},),
    presets={"paper": {"length": 10}, "small": {"length": 16}},
)
def mess3(length=16, alpha=0.85, x=0.05):
    """`length` symbols of the mess3 process; predicts the next symbol."""
    moves = circulant(3, 3, 1 - 2 * x, x, ("1 - 2x", "x"))
    emission = circulant(3, 3, alpha, (1 - alpha) / 2, ("alpha", "(1 - alpha) / 2"))
    chain(jnp.full(3, 1 / 3), moves, emission, length)
