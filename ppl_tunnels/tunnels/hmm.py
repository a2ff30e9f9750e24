r"""A sticky hidden Markov chain, known and fixed: only the state has to be inferred.

    z_1 ~ Uniform{0, …, S-1},    z_t | z_{t-1} ~ T[z_{t-1}],    x_t | z_t ~ E[z_t],    t = 1 … T,
    T[i] : `stay` on i, `forward` on i + 1 (modulo S), the rest evenly on the others,
    E[i] : `emit` on i, `emit_next` on i + 1 (modulo the number of symbols), the rest evenly on the others.

The start state emits the first symbol: nothing moves before it. The state predicted at a step is the one that emitted the
step's symbol, given all symbols up to it (filtering); `predicting("symbol")` asks for the next symbol instead.

Primitives: **transport**, for the belief has to be pushed through the dynamics before each symbol updates it
(**accumulation**). How far back symbols matter is tunable: the chain forgets its state at the rate

    |λ| = |a + b exp(2πi/S)|,    a = stay - r,    b = forward - r,    r = (1 - stay - forward) / (S - 2)

a step, .834 at the defaults. Sticky chains separate agents that forget from Bayes: by .41 bits of KL for one that sees only the
present symbol, .12 for two, .010 for four, .001 for six. Rows drawn from a flat Dirichlet law, as published, do so much less
(see `hmm_in_context`).

Source: the recursion is Rabiner (1989), section III; sizes S = 5, five symbols and 20 steps are those of "The Bayesian Geometry
of Transformer Attention" (arXiv 2512.22471), whose chains are drawn anew for every episode. This fixed one is ours.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel


def circulant(rows, columns, own, following, names):
    """`own` on the diagonal, `following` right of it (cyclically), the rest evenly elsewhere, `[row, column]`."""
    rest = 1 - own - following
    if min(own, following) < 0 or rest < -1e-12 or (columns < 3 and rest > 1e-12) or (columns < 2 and following > 0):
        raise ValueError(
            f"{names[0]}={own} and {names[1]}={following} were given for {columns} columns; expected probabilities whose sum is at "
            "most 1, and exactly 1 where there is no third column to take the rest"
        )
    line = jnp.full(columns, max(rest, 0.0) / max(columns - 2, 1)).at[0].set(own)
    line = line.at[1].set(following) if columns > 1 else line
    return jnp.stack([jnp.roll(line, row) for row in range(rows)])


def chain(initial, transition, emission, length):
    """The states and symbols of `length` steps; the start state emits the first symbol."""

    def step(previous, first):
        state = numpyro.sample("state", dist.Categorical(jnp.where(first, initial, transition[previous])))
        numpyro.sample("symbol", dist.Categorical(emission[state]))
        return state, None

    scan(step, jnp.array(0), jnp.arange(length) == 0)


@wind_tunnel(
    stream="symbol",
    predict="state",
    primitives={"accumulation", "transport"},
    small=(
        {"states": 3, "symbols": 3, "length": 4},
        {"states": 2, "symbols": 3, "length": 3, "stay": 0.7, "forward": 0.3},
    ),
    presets={
        "paper": {"states": 5, "symbols": 5, "length": 20},
        "small": {"states": 5, "symbols": 5, "length": 20},
        "long": {"length": 50},
    },
)
def hmm(states=5, symbols=5, length=20, stay=0.8, forward=0.15, emit=0.7, emit_next=0.2):
    """`states` hidden states seen through `symbols` symbols for `length` steps; predicts the state of each step."""
    if min(states, symbols) < 1:
        raise ValueError(f"states={states} and symbols={symbols} were given; expected at least one of each")
    transition = circulant(states, states, stay, forward, ("stay", "forward"))
    emission = circulant(states, symbols, emit, emit_next, ("emit", "emit_next"))
    chain(jnp.full(states, 1 / states), transition, emission, length)
