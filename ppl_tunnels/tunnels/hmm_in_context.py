r"""Hidden Markov chains drawn anew for every episode and revealed up front: the published format.

    T[i], E[i] ~ rows from Dirichlet(1, …, 1), floored at .05 and rounded to .01,    i = 0 … S-1,    the context,
    z_1 ~ Uniform{0, …, S-1},    z_t | z_{t-1} ~ T[z_{t-1}],    x_t | z_t ~ E[z_t],    t = 1 … T.

The model reads T and E, then the symbols, and predicts at each step the state that emitted its symbol (filtering);
`predicting("symbol")` asks for the next symbol. Primitives: **accumulation** and **transport**, with dynamics that have to be
read, not learned.

Flat rows mix fast. An agent that sees only the present symbol is .115 bits from Bayes, one that remembers two .004, and for
the next symbol a constant already comes within .02 bits: certificates there say little. `persistence` mixes the identity into
T before use (zero as published), which lets symbols matter for longer; the fixed chain of `hmm` separates agents best.

Source: "The Bayesian Geometry of Transformer Attention" (arXiv 2512.22471), in its authors' code: S = 5, five symbols, T = 20,
tested at 30 and 50; layout "published" is its sequence of 53 header tokens, then a marker and a symbol a step.
"""

import jax.numpy as jnp
import numpyro

from ppl_tunnels.grid_simplex import RoundedDirichlet
from ppl_tunnels.layouts import Layout
from ppl_tunnels.tunnel import wind_tunnel
from ppl_tunnels.tunnels.hmm import chain


def published(*, length, **_):
    """53 header tokens (at five states and symbols), then a marker and a symbol a step; one range of probabilities."""
    header = "TRANS {transition} EMIT {emission} SEP"
    return Layout(header, ("OBS {symbol}",) * length, shared=(("transition", "emission"),))


@wind_tunnel(
    stream="symbol",
    predict="state",
    context=("transition", "emission"),
    primitives={"accumulation", "transport"},
    small=(
        {"states": 2, "symbols": 2, "length": 3},
        {"states": 2, "symbols": 3, "length": 3, "persistence": 0.5},
    ),
    presets={
        "paper": {"states": 5, "symbols": 5, "length": 20},
        "small": {"states": 3, "symbols": 3, "length": 20},
        "long": {"length": 50},
    },
    layouts={"published": published},
)
def hmm_in_context(states=5, symbols=5, length=20, concentration=1.0, persistence=0.0):
    """Chains of `states` states and `symbols` symbols, revealed before `length` steps; predicts the state of each step."""
    if not 0 <= persistence < 1:
        raise ValueError(f"persistence={persistence} was given; expected a share of the identity, from 0 to below 1")
    with numpyro.plate("states", states):
        transition = numpyro.sample("transition", RoundedDirichlet(states, concentration))
        emission = numpyro.sample("emission", RoundedDirichlet(symbols, concentration))
    moves = persistence * jnp.eye(states) + (1 - persistence) * transition
    chain(jnp.full(states, 1 / states), moves, emission, length)
